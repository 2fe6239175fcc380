// G10's books, in its paper's form and in its artifact's: of each link the bytes that it can still carry during each
// op, and for how long memory is over a line.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "vedette/model.h"

namespace vedette::planning {

// Whether what `slower` carries also takes from `bus`: they share a bus, and that link is as fast as it.
inline bool takes_from(const Link& slower, const Link& bus) {
  return share_a_bus(bus, slower) && bus.bytes_per_s > slower.bytes_per_s;
}

// Full ops are stepped over, so that a walk costs the others alone. Pure.
class Bucket {
 public:
  Bucket(const Trace& trace, const Link* link, double scale) {
    const double speed =
        link == nullptr || link->bytes_per_s == 0 ? 1e18 : scale * static_cast<double>(link->bytes_per_s);
    for (const Op& op : trace.ops) left_.push_back(speed * static_cast<double>(op.time.value) / 1e9);
    capacity_ = left_;
    up_.resize(left_.size() + 1);
    std::iota(up_.begin(), up_.end(), 0U);
    down_ = up_;
    for (std::uint32_t i = 0; i < left_.size(); ++i) {
      if (left_[i] <= 0) full(i);
    }
  }
  bool any(std::uint32_t begin, std::uint32_t end) { return next(begin) < end; }
  // The op in which the last of `bytes` is through, from `begin` on, or `end` where they are not.
  std::uint32_t forward(double bytes, std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t i = next(begin); i < end; i = next(i + 1)) {
      if ((bytes -= left(i)) <= 0) return i;
    }
    return end;
  }
  // The op in which a move has to begin that ends before `end`; `begin` - 1 where that is too late.
  std::uint32_t backward(double bytes, std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t i = previous(end); i > begin; i = previous(i - 1)) {
      if ((bytes -= left(i - 1)) <= 0) return i - 1;
    }
    return begin == 0 ? 0 : begin - 1;
  }
  void fill(double bytes, std::uint32_t begin, std::uint32_t end) {
    fill(bytes, begin, end, [](std::uint32_t, double) {});
  }
  // `told` hears each op's part of it.
  template <class Told>
  void fill(double bytes, std::uint32_t begin, std::uint32_t end, const Told& told) {
    for (std::uint32_t i = next(begin); i < end && bytes > 0; i = next(i + 1)) {
      const auto op = i % static_cast<std::uint32_t>(left_.size());
      const double taken = std::min(left_[op], bytes);
      take(op, taken);
      bytes -= taken;
      told(op, taken);
    }
  }
  void take(std::uint32_t op, double bytes) {
    if (left_[op] <= 0) return;
    left_[op] -= bytes;
    if (left_[op] <= 0) full(op);
  }
  double left(std::uint32_t op) const { return left_[op % left_.size()]; }
  double capacity(std::uint32_t op) const { return capacity_[op]; }

 private:
  // Full ops are stepped over: a period may span thousands of them.
  void full(std::uint32_t op) {
    up_[op] = op + 1;
    down_[op + 1] = op;
  }
  static std::uint32_t find(std::vector<std::uint32_t>& links, std::uint32_t at) {
    while (links[at] != at) at = links[at] = links[links[at]];
    return at;
  }
  // The first op from this one on that is not full, counted on past the end of the step; of two full steps, the end.
  std::uint32_t next(std::uint32_t op) {
    const auto n = static_cast<std::uint32_t>(left_.size());
    for (; op < 2 * n; op = (op / n + 1) * n) {
      if (const std::uint32_t found = find(up_, op % n); found < n) return op / n * n + found;
    }
    return 2 * n;
  }
  // The end of the last op before `end` that is not full; 0: there is none.
  std::uint32_t previous(std::uint32_t end) {
    const auto n = static_cast<std::uint32_t>(left_.size());
    while (end > 0) {
      const std::uint32_t lap = (end - 1) / n * n, found = find(down_, end - lap);
      if (found > 0) return lap + found;
      end = lap;
    }
    return 0;
  }

  std::vector<double> left_, capacity_;
  // union-find: [op] to the next that is not full, [end of an op] to the end of the last
  std::vector<std::uint32_t> up_, down_;
};

// Times of ops that are over some line: how long they are in sum, of a range.
class TimeOver {
 public:
  explicit TimeOver(std::size_t ops) : sums_(ops + 1) {}
  void add(std::size_t op, std::int64_t time) {
    for (std::size_t at = op + 1; at < sums_.size(); at += at & (~at + 1)) sums_[at] += time;
  }
  std::int64_t before(std::size_t op) const {
    std::int64_t time = 0;
    for (; op > 0; op &= op - 1) time += sums_[op];
    return time;
  }

 private:
  std::vector<std::int64_t> sums_;  // a Fenwick tree
};

}  // namespace vedette::planning
