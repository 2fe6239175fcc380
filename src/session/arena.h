// The session's addresses: which bytes of the arena belong to which living tensor, and which are free. It knows nothing
// of fast memory, steps or plans.
//
// What always holds: the extents of living tensors are disjoint. Each lies in a place of the heap, or in a zone that a
// plan laid out. live_bytes() is the sum over living tensors, each rounded up to 64.
//
// Lock rule: not thread safe; the session's lock guards it. The layout functions (base, chunks_of, ...) read constants,
// from any thread.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "base/mapping.h"
#include "os/chunk_index.h"
#include "session/heap.h"
#include "vedette/session.h"

namespace vedette::detail {

struct Live {  // a tensor that lives; small ones of the slab have none
  Bytes bytes;
  std::string name;
  TensorKind kind = TensorKind::activation;
  bool lasting = false;  // from the heap of persistent tensors
  bool planned = false;  // at an address of a plan's zone
  bool small = false;    // of the slab's size, on pages of its own since its birth was profiled
  bool scratch = false;  // of a recipe that runs: in no log
  std::vector<std::int64_t> shape;
  Site site;
};

class Arena {
 public:
  using Tensors = std::pmr::map<std::uint64_t, Live>;  // by offset

  struct Wanted {
    std::uint64_t bytes = 1, alignment = 64;
    bool lasting = false;
    bool alone = false;                    // a small one, on pages of its own
    std::optional<std::uint64_t> planned;  // an offset in a zone, free as room_at() says
    std::optional<std::uint64_t> again;    // an offset in no zone, where it should be if that is free
  };
  struct Place {
    std::uint64_t offset = 0, bytes = 0;
    ChunkRange chunks;
    bool slab = false;  // a small object
    bool lasting = false, alone = false, planned = false;
  };

  Arena(Mapping memory, Bytes chunk, Heap::Chunks use = Heap::Chunks::shared);

  std::byte* base() const noexcept { return memory_.data(); }
  Bytes bytes() const noexcept { return memory_.bytes(); }
  std::uint64_t chunk_bytes() const noexcept { return chunk_; }
  std::uint64_t whole_chunks(std::uint64_t bytes) const noexcept { return (bytes + chunk_ - 1) / chunk_ * chunk_; }
  std::uint64_t offset_of(const void* address) const noexcept {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base());
  }
  bool has(const void* address) const noexcept {  // within it
    const auto* const at = static_cast<const std::byte*>(address);
    return at >= base() && at < base() + bytes().value;
  }
  ChunkRange chunks_of(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  // So many bytes of a range lie in the chunk.
  std::uint64_t bytes_in(ChunkIndex chunk, std::uint64_t offset, std::uint64_t bytes) const noexcept {
    const std::uint64_t begin = std::max(chunk.value * chunk_, offset);
    return std::max(std::min((chunk.value + 1) * chunk_, offset + bytes), begin) - begin;
  }
  bool is_small(std::uint64_t bytes, std::uint64_t alignment) const noexcept {
    return heap_.is_small(bytes) && alignment <= 64;
  }

  // --- places: taken, then filled with a tensor or given back
  // ---------------------------------------------------------
  std::optional<Place> take(const Wanted& wanted);  // nullopt: the addresses are used up
  void give_back(const Place& place);
  bool room_at(std::uint64_t offset, std::uint64_t bytes) const;  // no tensor lives there
  // Whole chunks that a plan lays out itself; nullopt: the addresses are used up.
  std::optional<std::uint64_t> reserve_zone(std::uint64_t bytes) { return heap_.reserve_zone(bytes); }
  // Given back, as soon as no tensor lives in it.
  void release_zone(std::uint64_t offset, std::uint64_t bytes);

  // --- chunks of the slab: born by the caller, and held by it where they stay
  // -----------------------------------------
  bool slab_is_unborn(ChunkIndex chunk) const { return slab_at(chunk) == SlabChunk::unborn; }
  void slab_is_born(ChunkIndex chunk, bool stays);
  // All but `most` that stay may leave from now on: the caller lets them go.
  std::vector<ChunkIndex> let_slab_leave(std::uint32_t most);
  std::uint32_t slab_chunks_that_stay() const noexcept { return slab_stay_; }
  std::uint32_t slab_chunks_that_may_leave() const noexcept { return slab_may_leave_; }
  // The chunk of the small tensor at this address where it may leave. nullopt: it stays, or none lives there.
  std::optional<ChunkIndex> slab_chunk_that_may_leave(const void* address) const;
  void free_slab_chunk(ChunkIndex chunk);  // it may leave, no small tensor is left there, and it is dead

  // --- tensors -------------------------------------------------------------------------------------------------------
  void add_small(const Place& place);
  // The tensor's name, kind, shape and site are `what`'s.
  const Live& add(const Place& place, Live what);
  struct Small {
    ChunkIndex chunk;
    bool last = false;  // nothing lives in its chunk any more, which may leave: let it die, then free_slab_chunk()
  };
  std::optional<Small> remove_small(std::uint64_t offset);  // nullopt: no small one lives there
  // Its place stays taken until free_place(): the address may be given out when its chunks are dead, not before.
  std::optional<Live> remove(std::uint64_t offset);
  void free_place(std::uint64_t offset, const Live& dead);

  const Tensors& tensors() const noexcept { return tensors_; }
  // tensors().end(): none, or a small one. O(1) where the tensor begins there and was asked for not long ago.
  Tensors::const_iterator holding(const void* address) const;
  bool lasts(std::uint64_t offset) const;  // a lasting tensor begins there
  void label(std::uint64_t offset, std::string_view name, TensorKind kind);
  bool shape(std::uint64_t offset, std::span<const std::int64_t> sizes);  // false: it has one
  std::string names_in(ChunkIndex chunk, std::size_t most) const;         // for last words

  std::uint64_t live_bytes() const noexcept { return live_bytes_; }
  std::uint64_t peak_bytes() const noexcept { return peak_bytes_; }
  bool empty() const noexcept { return tensors_.empty() && small_ == 0; }
  void unmap() noexcept { memory_.empty(); }             // nothing lives; the addresses stay taken,
  void give_back_addresses() noexcept { memory_ = {}; }  // until then

 private:
  enum class SlabChunk : std::uint8_t { none, unborn, stays, may_leave };  // none: a chunk of something else
  struct Recent {                                                          // a tensor that begins there
    std::uint64_t offset = ~std::uint64_t{0};
    Tensors::const_iterator tensor;
  };
  static constexpr std::size_t most_recent = 1024;

  struct Zone {
    std::uint64_t offset = 0, bytes = 0;
  };

  void count(std::uint64_t bytes);
  void uncount(std::uint64_t bytes);
  SlabChunk slab_at(ChunkIndex chunk) const noexcept {
    return chunk.value < slab_.size() ? slab_[chunk.value] : SlabChunk::none;
  }
  void set_slab(ChunkIndex chunk, SlabChunk kind);
  Recent& recent(std::uint64_t offset) const { return recent_[(offset >> 6 ^ offset >> 16) % most_recent]; }

  Mapping memory_;
  const std::uint64_t chunk_;
  Heap heap_;
  std::pmr::unsynchronized_pool_resource pool_;  // births and deaths of a steady step allocate nothing
  Tensors tensors_{&pool_};
  std::uint64_t small_ = 0;             // living ones
  mutable std::vector<Recent> recent_;  // by offset; removed ones are forgotten
  std::vector<SlabChunk> slab_;         // by chunk
  std::vector<Zone> waiting_;           // no plan's any more, but a tensor lives there
  std::uint32_t slab_stay_ = 0, slab_may_leave_ = 0;
  std::uint64_t live_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace vedette::detail
