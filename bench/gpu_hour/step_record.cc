// See step_record.h.
#include "gpu_hour/step_record.h"

#include <algorithm>

namespace vedette::gpu {
namespace {

template <class Value>
Value& grown(std::vector<Value>& values, std::size_t at, Value otherwise = Value()) {
  if (values.size() <= at) values.resize(at + 1, otherwise);
  return values[at];
}

}  // namespace

std::vector<Op>& StepRecord::times(BlockName block) {
  return grown(times_[static_cast<std::size_t>(block.age)], block.number);
}

const std::vector<Op>* StepRecord::known_times(BlockName block) const {
  const auto& of_age = times_[static_cast<std::size_t>(block.age)];
  return block.number < of_age.size() && !of_age[block.number].empty() ? &of_age[block.number] : nullptr;
}

void StepRecord::birth(Op op, std::uint32_t number, std::size_t bytes) {
  grown(born_before_, op + 1) += bytes;
  grown(born_at_, number) = op;
  grown(died_at_, number, never) = never;
}

void StepRecord::use(Op op, BlockName block) {
  std::vector<Op>& when = times(block);
  if (!when.empty() && when.back() == op) return;
  when.push_back(op);
  grown(uses_, op).push_back(block);
}

void StepRecord::death(Op op, BlockName block) {
  if (block.age == Age::born) grown(died_at_, block.number, never) = op;
}

void StepRecord::end(Op ops) {
  ops_ = std::max<Op>(ops, 1);
  uses_.resize(std::size_t{ops_} + 1);
  born_before_.resize(std::size_t{ops_} + 2);
  for (std::size_t i = 1; i < born_before_.size(); ++i) born_before_[i] += born_before_[i - 1];
}

Op StepRecord::next_use(BlockName block, Op now) const {
  if (const auto* when = known_times(block)) {
    const auto later = std::upper_bound(when->begin(), when->end(), now);
    if (later != when->end()) return *later;
    if (block.age == Age::kept) return ops_ + when->front();
  }
  if (block.age == Age::born) {
    if (const auto* when = known_times({.age = Age::carried, .number = block.number})) return ops_ + when->front();
  }
  return never;
}

std::size_t StepRecord::born_bytes(Op from, Op to) const {
  return born_before_[std::min(to, ops_ + 1)] - born_before_[std::min(from, ops_ + 1)];
}

Op StepRecord::life(std::uint32_t number) const {
  if (number >= born_at_.size() || died_at_[number] == never) return never;
  return died_at_[number] - born_at_[number];
}

}  // namespace vedette::gpu
