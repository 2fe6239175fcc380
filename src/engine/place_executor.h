// Blocks of device memory that leave for pinned host memory and come back elsewhere: the executor of a GPU.
//
// A block is a storage. It lies at a place of one device range, or it is away, in a slot of pinned memory. Nothing is
// remapped; a block that moves gets another address. All order is by points of streams, never by a wait of the host:
//
//   evict   The out stream copies behind the block's last uses. The place remembers the end of the copy.
//   fetch   The in stream copies behind what the place remembers, and behind the copy that filled the slot. The op's
//           stream runs behind this copy.
//   birth   The op's stream runs behind what the place remembers.
//   death   The place remembers the block's last uses.
//
// A plan says where blocks lie (`place`, an offset) and when they leave and come back: leave(), bring(). Ops without a
// plan are served as well: first fit, eviction of what was used least recently (place/arena.h). A planned place in
// which an unplanned block lies is cleared; where that block may not leave, the planned one lies elsewhere.
//
// Thread rule: any thread in which the device's context is current; calls take turns. The host waits in two cases:
// pinned memory is full of slots whose copies still run, and at the end.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "cuda/device_range.h"
#include "cuda/pinned_pool.h"
#include "cuda/points.h"
#include "place/arena.h"

namespace vedette {

class PlaceExecutor {
 public:
  using BlockIndex = place::BlockIndex;

  // Told, under the executor's lock, when a block's address changes. 0: it is away.
  class Pointers {
   public:
    virtual ~Pointers() = default;
    virtual void moved(BlockIndex, cuda::Address) noexcept = 0;
  };

  struct Options {
    Bytes budget;       // of device memory, mapped at the start in whole granules (2 MiB)
    Bytes most_pinned;  // of host memory; 0: without limit
    Bytes alignment = {512};
  };
  struct Born {
    BlockIndex block;
    cuda::Address address = 0;
  };
  struct Counters {
    std::uint64_t evictions = 0, fetches = 0;
    std::uint64_t misplaced = 0;  // blocks that got another place than the plan's
    Bytes evicted, fetched, live, most_live, in_use, most_in_use;
    Bytes unchanged;  // left without a copy
  };
  using Place = std::optional<std::uint64_t>;  // an offset in the device's range; nullopt: no plan has one

  static Result<std::unique_ptr<PlaceExecutor>> make(std::shared_ptr<const cuda::Device>, const Options&, Pointers&);
  ~PlaceExecutor();  // waits for the device's copies
  PlaceExecutor(const PlaceExecutor&) = delete;
  PlaceExecutor& operator=(const PlaceExecutor&) = delete;

  // A new block that work of `stream` may write from now on. It stays until allow_moves(). Errors: out_of_memory where
  // blocks that cannot leave take too much room, or pinned memory is used up.
  Result<Born> allocate(Bytes, cuda::StreamHandle stream, Place place = {});
  void release(BlockIndex);  // no op that is announced later uses it; what is queued still may
  void allow_moves(BlockIndex);

  // By a plan, between ops. What leaves goes behind its last uses; what may not leave stays, without an error. What
  // comes back as `unchanged` leaves again without a copy, unless forget_unchanged() came between.
  Result<void> leave(BlockIndex);
  Result<void> bring(BlockIndex, Place place, bool unchanged);
  void forget_unchanged();

  // An op on `stream` begins to use these blocks, one that it names twice included: they are in place by when the
  // stream gets there, and stay until end_op() with the same blocks. True: the stream may have to wait for a copy, or
  // for the place of one. Errors leave none of them pinned.
  Result<bool> begin_op(std::span<const BlockIndex>, cuda::StreamHandle stream);
  // All work of the op is queued.
  void end_op(std::span<const BlockIndex>, cuda::StreamHandle stream);
  // Work on `stream` that no op announces uses the block, as record_stream() says.
  void record_stream(BlockIndex, cuda::StreamHandle stream);

  cuda::Address address(BlockIndex) const;  // 0: away
  Place place(BlockIndex) const;            // nullopt: away
  Bytes bytes(BlockIndex) const;
  Counters counters() const;

 private:
  using StreamPoint = cuda::StreamPoint;
  using Fences = std::vector<StreamPoint>;  // at most one a stream
  struct Block {
    Bytes bytes;
    bool alive = false, movable = false, unchanged = false;
    std::uint32_t pins = 0;
    StreamPoint ready;                   // of the copy that brought it; what uses it runs behind
    Fences uses;                         // its last use by each stream
    std::vector<std::uint32_t> unended;  // streams with work on it that no point covers yet
    std::byte* slot = nullptr;
    StreamPoint slot_filled, slot_read;
  };
  struct Leaving {  // a slot of a block that died, with the copy that may still use it
    std::byte* slot = nullptr;
    Bytes bytes;
    StreamPoint last;
  };

  PlaceExecutor(std::shared_ptr<const cuda::Device>, const Options&, Pointers&, cuda::DeviceRange, cuda::Stream in,
                cuda::Stream out);
  Result<std::uint64_t> room_for(BlockIndex, Bytes, Place);
  Result<std::uint64_t> any_room_for(BlockIndex, Bytes);
  Result<void> evict(BlockIndex);
  Result<void> copy_out(Block&, std::uint64_t offset);
  Result<void> fetch(BlockIndex, Place);
  Result<void> cover_uses(Block&);
  Result<std::byte*> slot_for(Bytes);
  void reclaim_slots(bool all);
  void bury(BlockIndex);  // a block that is released and in no open op
  std::uint64_t rounded(Bytes) const noexcept;
  void remember(std::uint64_t offset, std::uint64_t bytes, const Fences&);
  Fences take_fences(std::uint64_t offset, std::uint64_t bytes);
  Result<void> let_wait(std::uint32_t stream, const Fences&);
  static void join(Fences&, StreamPoint);

  const std::shared_ptr<const cuda::Device> device_;
  const Options options_;
  Pointers& pointers_;
  mutable std::mutex guard_;  // over all that follows
  cuda::DeviceRange range_;
  cuda::PinnedPool pinned_;
  cuda::Stream in_, out_;
  cuda::Points points_;
  std::uint32_t in_number_ = 0, out_number_ = 0;
  place::Arena arena_;
  std::vector<Block> blocks_;
  std::vector<BlockIndex> unused_;
  // By offset: what must have happened before bytes of a hole are written again.
  struct Remembered {
    std::uint64_t end = 0;
    Fences fences;
  };
  std::map<std::uint64_t, Remembered> remembered_;
  std::vector<Leaving> leaving_;
  Counters counters_;
};

}  // namespace vedette
