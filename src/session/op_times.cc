// Sums of times: see op_times.h.
#include "session/op_times.h"

#include <algorithm>

namespace vedette::detail {

void OpTimes::begin_step(Nanoseconds now) {
  times_.clear();
  stalls_.clear();
  step_began_ = last_end_ = now;
}

void OpTimes::begin_op(Nanoseconds now, Nanoseconds stalled) {
  part_began_ = now;
  times_.push_back({std::max<std::int64_t>((now - last_end_ - stalled).value, 0)});
  stalls_.push_back(stalled);
}

Nanoseconds OpTimes::count_until(Nanoseconds now, Nanoseconds stalled) {
  const Nanoseconds took{std::max<std::int64_t>((now - part_began_ - stalled).value, 0)};
  times_.back() += took;
  stalls_.back() += stalled;
  part_began_ = now;
  return took;
}

void OpTimes::next_section(Nanoseconds now, Nanoseconds stalled) {
  times_.push_back({});
  stalls_.push_back(stalled);
  part_began_ = now;
}

Nanoseconds OpTimes::of_latest(std::size_t sections) const {
  Nanoseconds sum;
  for (std::size_t s = 0; s < sections; ++s) sum += times_[times_.size() - 1 - s];
  return sum;
}

void OpTimes::remember_as_usual(std::span<const std::uint64_t> hashes, std::span<const LoggedOp> ops) {
  usual_.clear();
  for (std::size_t i = 0; i < hashes.size(); ++i) usual_[hashes[i]].push_back(ops[i].time);
}

void OpTimes::replace_by_usual(std::span<const std::uint64_t> hashes, std::span<LoggedOp> ops) const {
  std::unordered_map<std::uint64_t, std::size_t> nth;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto usual = usual_.find(hashes[i]);
    if (usual == usual_.end()) continue;
    const std::size_t n = nth[hashes[i]]++;
    if (n < usual->second.size()) ops[i].time = std::min(ops[i].time, usual->second[n]);
  }
}

}  // namespace vedette::detail
