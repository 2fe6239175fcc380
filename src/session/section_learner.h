// Large ops in sections, for one sequence of ops. Of the steps by its plan the first is timed: it tells when large ops
// allocate. In the second their operands are observed at each allocation, so that the operands touched until the next
// one are known. Then their sections are learned and the step is planned anew, and ops have the new sections once this
// plan is there. An op that touches something in another section than it was seen to is planned without sections.
//
//        first whole step           second whole step
//   timing --------------> observing ------------------> learned
//      \____________________________________________________^   where no op is worth observing
//
// What always holds: stages follow in this order; an op has no section or at least two; times are kept only while
// timing; of() is as the plan has it that the step runs by.
//
// Lock rule: the op thread's. `after_event` of sections is noted with the session's lock held.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "os/chunk_index.h"
#include "pack/op_sections.h"
#include "pack/units.h"

namespace vedette::detail {

constexpr std::uint32_t no_log_tensor = ~0u;

struct ObservedOp {  // of the running step: one that is observed, or that has sections
  std::uint32_t op = 0;
  std::vector<ChunkRange> operands;
  std::vector<std::uint32_t> tensors;    // of the log, one for each operand; no_log_tensor: a part of one
  std::vector<WatchedSection> sections;  // where it is observed
};

// [op]: it allocates, and its operands are near the largest op's: such ops decide which tensors have to leave. `trace`
// is the step in units.
std::vector<char> worth_observing(const Trace& trace, const StepLog& log, Bytes chunk);

class SectionLearner {
 public:
  enum class Stage : std::uint8_t { timing, observing, learned };

  SectionLearner() = default;
  explicit SectionLearner(std::vector<char> worth);  // [op], as worth_observing()

  Stage stage() const noexcept { return stage_; }
  bool may_change() const noexcept;  // ops may yet get other sections than they have
  bool observes(std::uint32_t op) const { return stage_ == Stage::observing && worth_[op] != 0; }

  // --- while a step runs ---------------------------------------------------------------------------------------------
  const std::vector<WatchedSection>& of(std::uint32_t op) const;
  void time_op(std::uint32_t op);                     // it begins; ignored but while timing, as is
  void add_time(std::uint32_t op, Nanoseconds took);  // from birth to birth, and to the op's end
  void begins_after(std::uint32_t op, std::uint32_t section, std::uint32_t event) {
    sections_.at(op)[section].after_event = event;
  }
  void failed(std::uint32_t op) { failed_.push_back(op); }  // its sections do not match its touches

  // --- after a whole step by the plan --------------------------------------------------------------------------------
  // changed: some ops have other sections in the next plan. Until that is there nothing else changes.
  enum class Outcome : std::uint8_t { nothing, observed, changed };
  struct Planned {                            // the plan by which the step ran
    std::span<const std::uint32_t> first;     // of each op, its first section; one more at the end
    std::span<const Nanoseconds> least_time;  // of each section
    Bytes chunk;
    std::uint32_t frames = 0;
  };
  Outcome step_ended(std::span<const ObservedOp> ops, const Planned& planned);
  // After a change: the next sections of those ops that have some, with the tensors of the log that they touch.
  std::vector<SectionedOp> sectioned(std::span<const ObservedOp> ops) const;
  bool waits_for_plan() const noexcept { return next_.has_value(); }
  void plan_is_there() noexcept;  // by which the next step runs

 private:
  using Sections = std::unordered_map<std::uint32_t, std::vector<WatchedSection>>;  // of ops that have some
  Sections learn(std::span<const ObservedOp> ops, const Planned& planned);

  Stage stage_ = Stage::timing;
  std::vector<char> worth_;
  Sections sections_;
  std::optional<Sections> next_;                                       // in a plan that is not there yet
  std::unordered_map<std::uint32_t, std::vector<Nanoseconds>> times_;  // of ops that are worth observing
  std::vector<std::uint32_t> failed_;                                  // in the latest step
};

}  // namespace vedette::detail
