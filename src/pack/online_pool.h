// The same lives by an allocator that does not know the future: the best fit of a pool as NVIDIA's CnMem has it, the
// baseline of SmartPool (arXiv 1903.06631). Sizes are rounded up to 512 bytes; the smallest hole that is wide enough is
// split; neighbours that are free become one; the pool grows at its end when no hole is wide enough. A tensor that is
// away leaves its bytes and may come back elsewhere.
//
// Pure, deterministic; any thread. O(n log n).
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "pack/buffers.h"

namespace vedette::pack {

constexpr std::uint64_t pool_granule = 512;  // bytes: online_pool_peak() rounds sizes up to it

class BestFitPool {
 public:
  std::uint64_t take(std::uint64_t bytes);  // bytes > 0; returns the offset
  void give(std::uint64_t at, std::uint64_t bytes);
  std::uint64_t end() const { return end_; }  // the most bytes that it ever had

 private:
  std::uint64_t grow(std::uint64_t bytes);
  void remember(std::uint64_t at, std::uint64_t bytes);
  void forget(std::uint64_t at);

  std::map<std::uint64_t, std::uint64_t> holes_;  // bytes by offset
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;
  std::uint64_t end_ = 0;
};

Bytes online_pool_peak(const Problem& problem);

}  // namespace vedette::pack
