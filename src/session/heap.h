// Addresses of the arena without a plan: which bytes, never whether they are in fast memory.
//
// There are four kinds of places, or one: where tensors share no chunks, each gets a run of whole ones. Runs of whole
// chunks are for tensors that fill them, last in, first out by size. Two heaps of pages, one for tensors that outlive
// steps and one for others, give the lowest address that fits, so that neighbours in birth are neighbours in memory. A
// slab is for small objects (slab.h), in chunks of its own. Zones, taken off the top, are laid out by a plan.
//
// A run that is free serves its own size alone, so that steps alike get addresses alike. Where no address is left that
// was never given out, larger runs are cut, and all that is free is joined when none is large enough.
//
// Not thread safe: the session's lock guards it. O(log n) a call; O(n log n) where free runs are joined.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "session/slab.h"
#include "vedette/units.h"

namespace vedette {

class Heap {
 public:
  enum class Chunks : std::uint8_t { shared, of_one_tensor };
  Heap(std::uint32_t chunks, Bytes chunk, Chunks use = Chunks::shared)
      : chunks_(chunks), chunk_(chunk.value), use_(use), slab_(chunk) {}

  struct Place {
    std::uint64_t offset = 0;                     // from the arena's first byte
    bool small = false;                           // in the slab
    std::optional<std::uint32_t> new_slab_chunk;  // the caller sees to its bytes
  };
  // `bytes` > 0; `alignment` a power of two, at most 4096. nullopt: the arena's addresses are used up.
  std::optional<Place> allocate(std::uint64_t bytes, std::uint64_t alignment, bool persistent);
  // The place at this address, where an earlier one of the same kind was; false: not all of it is free.
  bool allocate_at(std::uint64_t offset, std::uint64_t bytes, bool persistent);
  void release(std::uint64_t offset, std::uint64_t bytes, bool persistent);
  std::optional<Slab::Released> release_small(std::uint64_t offset);  // nullopt: no small one begins there
  void release_slab_chunk(std::uint64_t offset);                      // that holds none any more

  // Whole pages for a small one, in chunks of their own that may leave: while a step is profiled.
  std::optional<std::uint64_t> allocate_alone(std::uint64_t bytes);
  void release_alone(std::uint64_t offset, std::uint64_t bytes);

  // Whole chunks at the top, for a plan's layout; given back for zones of the same size.
  std::optional<std::uint64_t> reserve_zone(std::uint64_t bytes);
  void release_zone(std::uint64_t offset, std::uint64_t bytes);

  bool is_small(std::uint64_t bytes) const noexcept { return use_ == Chunks::shared && bytes <= small_limit(); }
  std::uint64_t small_limit() const noexcept { return std::clamp<std::uint64_t>(chunk_ / 64, 1024, Slab::largest); }
  std::uint32_t top() const noexcept { return top_; }  // in chunks: none above is given out

 private:
  std::optional<std::uint64_t> take_chunks(std::uint64_t count);
  std::optional<std::uint64_t> take_of_larger_run(std::uint64_t count);
  void give_chunks(std::uint64_t offset, std::uint64_t count) { free_runs_[count].push_back(offset); }
  void join_free_runs();
  std::optional<std::uint64_t> take_pages(std::map<std::uint64_t, std::uint64_t>& holes, std::uint64_t bytes);
  static void cut(std::map<std::uint64_t, std::uint64_t>& holes, std::map<std::uint64_t, std::uint64_t>::iterator hole,
                  std::uint64_t offset, std::uint64_t bytes);
  static bool take_pages_at(std::map<std::uint64_t, std::uint64_t>& holes, std::uint64_t offset, std::uint64_t bytes);
  static void give_pages(std::map<std::uint64_t, std::uint64_t>& holes, std::uint64_t offset, std::uint64_t bytes);
  std::optional<Place> allocate_small(std::uint64_t bytes);
  bool takes_run(std::uint64_t bytes, bool persistent) const noexcept;

  const std::uint32_t chunks_;
  const std::uint64_t chunk_;
  const Chunks use_;
  std::uint32_t top_ = 0;
  std::map<std::uint64_t, std::vector<std::uint64_t>> free_runs_;     // by number of chunks
  std::map<std::uint64_t, std::uint64_t> lasting_, passing_, alone_;  // holes: offset -> bytes, coalesced
  Slab slab_;
};

}  // namespace vedette
