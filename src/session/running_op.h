// The op that runs: its operands, its births, its current section, and the ops of the step that were observed or had
// sections.
//
// What always holds: an op that is in sections has as many operands as its sections know of. section() is below their
// number. needed() names no chunk of a tensor that was born in the op and is dead.
//
// Lock rule: the op thread's, but for born(), died() and needed(), which need the session's lock: other threads release
// tensors that were born in the op.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "moves/executor.h"
#include "session/section_learner.h"

namespace vedette::detail {

class RunningOp {
 public:
  void begin_step() { seen_.clear(); }
  void begin();

  // `logged`: no_log_tensor where it is a part of a tensor
  void operand(ChunkRange chunks, std::uint32_t logged, bool written);
  const std::vector<ChunkRange>& operands() const noexcept { return operands_; }
  // Of operands that are parts of tensors: the op may use so much of this chunk where it lies.
  void may_lie_far(ChunkIndex chunk, Bytes used, bool written);
  // Those, and what the plan has the op use so, which lives as long as the plan.
  std::span<const OpMoves::InPlace> in_place(std::span<const OpMoves::InPlace> planned);
  // Of a tensor that moves whole: the op uses so many bytes of it, anywhere.
  void few_of(ChunkRange tensor, Bytes bytes, bool written);
  std::span<const Executor::Part::Few> few() const noexcept { return few_; }
  // The chunk of a small tensor: needed all through the op, and no operand to plans and sections.
  void small_operand(ChunkIndex chunk);
  // The chunks that the op, or its current section, needs in fast memory: operands() unless this says more.
  bool needs_more_than_operands() const noexcept { return in_sections() || !small_.empty(); }
  std::vector<ChunkRange> needed() const;
  // Operands that the op writes; of the chunk of a small tensor that is not known.
  std::span<const ChunkRange> written() const noexcept { return written_; }

  // --- in a plan -----------------------------------------------------------------------------------------------------
  std::uint32_t part() const noexcept { return part_; }  // the running op or section, as plans count
  void planned_as(std::uint32_t part) { part_ = part; }
  // `sections` outlive the op; `early`: Executor::early_touches() now.
  void cut(const std::vector<WatchedSection>& sections, std::uint64_t early);
  bool in_sections() const noexcept { return sections_ != nullptr; }
  std::uint32_t section() const noexcept { return section_; }
  bool in_last_section() const { return sections_ == nullptr || section_ + 1 >= sections_->size(); }
  bool section_begins_with(std::uint64_t bytes) const;  // the next birth, if it is of so many bytes
  void next_section() { ++section_, ++part_; }
  std::uint64_t early_before() const noexcept { return early_before_; }

  // --- births --------------------------------------------------------------------------------------------------------
  void count_birth() { ++births_; }
  std::uint32_t births() const noexcept { return births_; }  // by the op thread
  void born(ChunkRange chunks);                              // noted where the op is in sections
  void died(ChunkRange chunks);

  // --- observation ---------------------------------------------------------------------------------------------------
  void remember(std::uint32_t op, bool observed);
  bool observed() const noexcept { return observed_; }
  // A section to observe begins with the n-th birth, of so many bytes; 0: with the op.
  void observe(std::uint32_t birth, std::uint64_t bytes, std::uint32_t after_event);
  std::vector<char>& touched() { return seen_.back().sections.back().touched; }  // by operand, of that section
  std::span<const ObservedOp> seen() const noexcept { return seen_; }            // in this step

 private:
  std::vector<ChunkRange> operands_, written_;
  std::vector<std::uint32_t> tensors_;  // of the log, one for each operand
  std::vector<ChunkIndex> small_;       // chunks, sorted
  std::vector<ChunkRange> born_;
  std::vector<OpMoves::InPlace> far_;       // by chunk, each once
  std::vector<OpMoves::InPlace> in_place_;  // those, and the plan's
  std::vector<Executor::Part::Few> few_;
  std::uint32_t births_ = 0;
  const std::vector<WatchedSection>* sections_ = nullptr;  // nullptr: it has none
  std::uint32_t section_ = 0, part_ = 0;
  std::uint64_t early_before_ = 0;
  bool observed_ = false;
  std::vector<ObservedOp> seen_;
};

}  // namespace vedette::detail
