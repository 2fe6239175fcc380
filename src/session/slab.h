// Places of small objects. A span is a run of pages, cut into objects of one size class; spans lie in chunks that hold
// nothing else. The lowest span of the oldest chunk with room is given first, so that chunks of later births become
// empty.
//
// What always holds: an object's place is in use from allocate() to release(). A span belongs to one chunk and one
// class for as long as the chunk is in the slab. Books take two bytes an object and some 90 a span.
//
// Not thread safe: the session's lock guards it. O(log spans) a call.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "vedette/units.h"

namespace vedette {

class Slab {
 public:
  // Largest object of a slab, whatever the chunk.
  static constexpr std::uint64_t largest = 1 << 20;

  explicit Slab(Bytes chunk) : chunk_(chunk.value) {}

  // `bytes` in [1, largest], at most a quarter of a chunk. nullopt: the slab needs a chunk more.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes);
  void add_chunk(std::uint64_t offset);  // of its first byte
  struct Released {
    std::uint64_t bytes = 0;  // as allocated, rounded up to 64
    bool emptied = false;     // no object is left in its chunk
  };
  std::optional<Released> release(std::uint64_t offset);  // nullopt: no object begins there
  void remove_chunk(std::uint64_t offset);                // one without objects

 private:
  struct Span {
    std::uint32_t first_slot = 0, first_page = 0;
    std::uint32_t object = 0;                     // bytes of its class
    std::uint16_t slots = 0, used = 0, free = 0;  // the first free slot, or end_of_list
  };
  struct Chunk {
    std::uint64_t offset = 0, order = 0;  // of coming
    std::uint32_t used = 0, next_page = 0;
    std::vector<Span> spans;
    std::vector<std::uint32_t> span_of_page;
    std::vector<std::uint16_t> slots;  // in use: in_use | bytes / 64; free: the next free slot
  };
  using Place = std::pair<std::uint64_t, std::uint32_t>;  // order of the chunk, span in it
  struct Slot {
    Chunk* chunk = nullptr;
    std::uint32_t span = 0, slot = 0;
  };
  static constexpr std::uint16_t in_use = 0x8000, end_of_list = 0x7fff;

  std::optional<Slot> find(std::uint64_t offset);
  bool add_span(std::uint64_t object);  // false: the newest chunk has no pages left

  const std::uint64_t chunk_;
  std::unordered_map<std::uint64_t, Chunk> chunks_;            // by number
  std::unordered_map<std::uint64_t, std::uint64_t> by_order_;  // number of each chunk
  std::map<std::uint64_t, std::set<Place>> with_room_;         // by class
  std::optional<std::uint64_t> newest_;                        // number
  std::uint64_t next_order_ = 0;
};

}  // namespace vedette
