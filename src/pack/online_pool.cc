#include "pack/online_pool.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace vedette::pack {
std::uint64_t BestFitPool::take(std::uint64_t bytes) {
  const auto hole = by_size_.lower_bound({bytes, 0});
  if (hole == by_size_.end()) return grow(bytes);
  const auto [size, at] = *hole;
  forget(at);
  if (size > bytes) remember(at + bytes, size - bytes);
  return at;
}

void BestFitPool::give(std::uint64_t at, std::uint64_t bytes) {
  const auto after = holes_.find(at + bytes);
  if (after != holes_.end()) {
    bytes += after->second;
    forget(after->first);
  }
  const auto before = holes_.lower_bound(at);
  if (before != holes_.begin() && std::prev(before)->first + std::prev(before)->second == at) {
    const std::uint64_t below = std::prev(before)->first;
    forget(below);
    bytes += at - below;
    at = below;
  }
  remember(at, bytes);
}

std::uint64_t BestFitPool::grow(std::uint64_t bytes) {
  std::uint64_t at = end_;  // or where a hole at the end of the pool begins
  if (!holes_.empty() && std::prev(holes_.end())->first + std::prev(holes_.end())->second == end_) {
    at = std::prev(holes_.end())->first;
    forget(at);
  }
  end_ = at + bytes;
  return at;
}

void BestFitPool::remember(std::uint64_t at, std::uint64_t bytes) {
  holes_[at] = bytes;
  by_size_.insert({bytes, at});
}

void BestFitPool::forget(std::uint64_t at) {
  const auto hole = holes_.find(at);
  by_size_.erase({hole->second, at});
  holes_.erase(hole);
}

Bytes online_pool_peak(const Problem& problem) {
  std::vector<std::tuple<Time, bool, std::uint32_t>> events;  // deaths (false) first
  std::size_t away = 0;
  for (std::uint32_t b = 0; b < problem.buffers.size(); ++b) {
    const Buffer& buffer = problem.buffers[b];
    const bool lives = buffer.life.begin < buffer.life.end && buffer.bytes.value > 0;
    if (lives) events.emplace_back(buffer.life.begin, true, b), events.emplace_back(buffer.life.end, false, b);
    for (; away < problem.away.size() && problem.away[away].buffer == b; ++away)
      if (lives)
        events.emplace_back(problem.away[away].when.begin, false, b),
            events.emplace_back(problem.away[away].when.end, true, b);
  }
  std::sort(events.begin(), events.end());
  BestFitPool pool;
  std::vector<std::uint64_t> at(problem.buffers.size());
  for (const auto& [when, arrives, b] : events) {
    const std::uint64_t bytes = (problem.buffers[b].bytes.value + pool_granule - 1) / pool_granule * pool_granule;
    if (arrives) {
      at[b] = pool.take(bytes);
    } else {
      pool.give(at[b], bytes);
    }
  }
  return {pool.end()};
}

}  // namespace vedette::pack
