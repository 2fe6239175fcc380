// A step that ended, up to the sizes of its tensors: the kinds of its ops, the tensors that each used and made, and the
// op that uses each of them next. Steps with other batches, lengths or caches are alike in this.
//
// What always holds: tensors have their numbers of the step's log, in order of appearance, so that two steps with the
// same ops number them alike. Tensors of the slab, and those touched in rows, are in no list.
//
// Pure. O(operands) to make, 8 bytes an operand and 36 an op.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/grouped.h"
#include "pack/units.h"

namespace vedette::detail {

class LikeStep {
 public:
  static constexpr std::uint32_t none = ~0u;

  struct Use {
    std::uint32_t tensor = 0;
    std::uint32_t next = none;  // the op of the step that uses the tensor next
    bool operator==(const Use&) const = default;
  };
  struct Tensor {
    std::uint64_t offset = 0;
    Bytes bytes;
    std::uint32_t first_use = none;
    std::uint32_t dead_at = none;     // the op of the step that begins without it; ops(): the step ends without it
    bool born = false, dies = false;  // in the step
  };

  // `kinds`: of each op of `log`; `sequence`: a hash of its ops with their sizes. `timed_later`: the step's number,
  // where the log has no times of its ops yet.
  LikeStep(const StepLog& log, std::span<const std::uint64_t> kinds, std::uint64_t sequence,
           std::optional<std::uint64_t> timed_later = {});
  std::optional<std::uint64_t> timed_later() const noexcept { return timed_later_; }
  void set_times(std::span<const Nanoseconds> of_ops);  // of each op; other counts change nothing
  void keep_times(const LikeStep& of_other_sizes) { begins_ = of_other_sizes.begins_; }

  std::uint32_t ops() const noexcept { return static_cast<std::uint32_t>(kinds_.size()); }
  std::uint64_t kind(std::uint32_t op) const { return kinds_[op]; }
  std::span<const std::uint64_t> kinds() const noexcept { return kinds_; }
  std::uint64_t sequence() const noexcept { return sequence_; }
  bool numbers_alike(const LikeStep& other) const;  // of the same kinds: a number means the same tensor in both
  bool has_kinds(std::span<const std::uint64_t> kinds) const;  // of a whole step
  // The operands of an op: reads, then writes, in the order in which it names them.
  std::span<const Use> uses(std::uint32_t op) const { return uses_[op]; }
  // Born since the op before began, and not after this one began.
  std::span<const std::uint32_t> births_before(std::uint32_t op) const { return births_[op]; }
  // Of those and of the op itself: tensors that are not dead when the next op begins.
  Bytes born_to_stay(std::uint32_t op) const { return stays_[op]; }
  std::span<const Tensor> tensors() const noexcept { return tensors_; }
  // Compute time of the step when each op begins; last, when the step ends. nullptr: not known yet.
  const std::shared_ptr<const std::vector<Nanoseconds>>& begins() const noexcept { return begins_; }
  // No op from `op` on to the next `within` ops writes the tensor.
  bool unwritten(std::uint32_t tensor, std::uint32_t op, std::uint32_t within) const;

  // Where in the step the last of `kinds` may be, which has `gram` entries: the op nearest to `to` that ends ops of
  // these kinds, on either side.
  static constexpr std::uint32_t gram = 3;
  struct Found {
    std::optional<std::uint32_t> before, at_or_after;
  };
  Found find(std::span<const std::uint64_t> kinds, std::uint32_t to) const;

 private:
  std::vector<std::uint64_t> kinds_;
  std::uint64_t sequence_ = 0;
  std::optional<std::uint64_t> timed_later_;
  std::vector<Tensor> tensors_;
  Grouped<Use> uses_;
  Grouped<std::uint32_t> births_;
  Grouped<std::uint32_t> writes_;  // [tensor]: ops
  std::vector<Bytes> stays_;
  std::shared_ptr<const std::vector<Nanoseconds>> begins_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> grams_;  // hash and last op, sorted
};

// Operands of an op of a log that likeness counts, in their order.
template <class Take>
void for_each_operand(const StepLog& log, const LoggedOp& op, Take take) {
  for (const OperandList* const list : {&op.reads, &op.writes})
    for (const std::uint32_t t : *list)
      if (!log.tensors[t].small && !log.tensors[t].in_parts) take(t);
}

// Tensors of a log that were born until the ops begin: call with ascending ops.
class BirthsByOp {
 public:
  explicit BirthsByOp(const StepLog& log) : log_(&log) {}
  template <class Take>
  void until(std::uint32_t op, Take take) {
    for (; next_ < log_->tensors.size() && log_->tensors[next_].birth <= log_->ops[op].events.begin; ++next_)
      if (log_->tensors[next_].birth > 0 && !log_->tensors[next_].small) take(next_);
  }

 private:
  const StepLog* log_;
  std::uint32_t next_ = 0;
};

}  // namespace vedette::detail
