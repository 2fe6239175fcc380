// What a step of training does, as seen from the memory of its tensors: which op uses which block, what is born when
// and for how long. One step is recorded; the following ones repeat it, so it tells the future.
//
// A block is one of three: born in this step (known by its number among the step's births), carried (born in the step
// before), or kept (older; known by a number of its own). No CUDA, no clock: same calls, same answers. Thread rule: the
// caller's lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vedette::gpu {

using Op = std::uint32_t;  // counted within a step
constexpr Op never = ~Op{0};

enum class Age : std::uint8_t { born, carried, kept };

struct BlockName {
  Age age = Age::kept;
  std::uint32_t number = 0;
  bool operator==(const BlockName&) const = default;
};

class StepRecord {
 public:
  void birth(Op op, std::uint32_t number, std::size_t bytes);
  void use(Op op, BlockName block);
  void death(Op op, BlockName block);
  void end(Op ops);  // the step is over; from now on it can be asked

  bool complete() const { return ops_ != 0; }
  Op ops() const { return ops_; }
  // The first op after `now` that uses the block: in this step, or counted on into the next one; `never`.
  Op next_use(BlockName block, Op now) const;
  // Blocks that this op uses, each once.
  const std::vector<BlockName>& used_by(Op op) const { return uses_[op]; }
  // Bytes born in [from, to).
  std::size_t born_bytes(Op from, Op to) const;
  // How many ops the block of this birth lives in its step.
  Op life(std::uint32_t number) const;

 private:
  std::vector<Op>& times(BlockName block);
  const std::vector<Op>* known_times(BlockName block) const;

  std::vector<std::vector<Op>> times_[3];  // by age and number, ascending
  std::vector<std::vector<BlockName>> uses_;
  std::vector<std::size_t> born_before_;  // bytes born before an op
  std::vector<Op> born_at_, died_at_;     // by number of birth
  Op ops_ = 0;
};

}  // namespace vedette::gpu
