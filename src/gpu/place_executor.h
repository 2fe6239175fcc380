// Blocks of device memory that leave for pinned host memory and come back elsewhere: the executor of a GPU.
//
// A block is a storage. It lies at a place of one device range, or it is away, in a slot of pinned memory. Nothing is
// remapped; a block that moves gets another address. All order is by points of streams, never by a wait of the host:
//
//   evict   The out stream copies behind the block's last uses. The place remembers the end of the copy.
//   fetch   The in stream copies behind all that the place remembers, and the copy that filled the slot. The op's
//           stream runs behind this copy.
//   birth   The op's stream runs behind all that the place remembers.
//   death   The place remembers the block's last uses.
//   drop    As death, and the block lives: it is nowhere, until it adopts the place of another block (place_drops.cc).
//   rows    An op that uses few bytes of a block that is away uses them in its slot, over the link (place_rows.cc). The
//           op's stream runs behind the copies of the slot, and later copies run behind the op.
//
// A plan says where blocks lie (`place`, an offset) and when they leave and come back: leave(), bring(). Ops without a
// plan are served as well: first fit, eviction of the least recently used block (moves/range_allocator.h). Where an
// earlier step predicts what comes, the block leaves whose room is free longest (place_ahead.cc). A planned place in
// which an unplanned block lies is cleared; where that block may not leave, the planned one lies elsewhere.
//
// Thread rule: one thread at a time, in which the device's context is current. The host waits in three cases:
// pinned memory is full of slots whose copies still run, an op needs a block that is still read from the disk, and at
// the end.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include "base/inline_list.h"
#include "cuda/device_range.h"
#include "cuda/points.h"
#include "gpu/host_slots.h"
#include "moves/look_ahead.h"
#include "moves/next_uses.h"
#include "moves/op_schedule.h"
#include "moves/range_allocator.h"
#include "tier/link_habits.h"
#include "vedette/observer.h"

namespace vedette {

class PlaceExecutor {
 public:
  using BlockIndex = moves::BlockIndex;

  struct Transfer {
    Verb verb = Verb::fetch;  // drop: the block left without a copy
    MoveCause cause = MoveCause::planned;
    BlockIndex block;
    Bytes bytes;
    std::uint8_t slow = 1;                // 2: a fetch whose bytes had been on the disk
    cuda::StreamHandle stream = nullptr;  // of the copy; of a drop, a stream whose latest work is the block's last use
  };
  // Its functions are called by the thread that calls the place executor.
  class Owner {
   public:
    virtual ~Owner() = default;
    // False: code that would not see the block's address change holds it. The block stays until allow_moves().
    virtual bool may_move(BlockIndex) noexcept { return true; }
    virtual void moved(BlockIndex, cuda::Address) noexcept = 0;  // 0: it is away

    // Of each copy: its waits are queued, and then the copy. A copy that was refused has no end. Copies of one call of
    // the driver begin as one, and are then queued one after the other.
    virtual void begins(const Transfer&) noexcept {}
    virtual void is_queued(const Transfer&) noexcept {}
    // Work that the calling thread queues next may be late: its stream waits for room, or the thread itself waits for
    // room in pinned memory or for the disk. The wait of begin_op()'s answer is none of these. Each ends in the same
    // call.
    virtual void wait_begins(HostSlots::WaitsFor) noexcept {}
    virtual void wait_ends() noexcept {}
    virtual void pins_no_more(Bytes /*limit*/, bool /*there_is_a_disk*/) noexcept {}
  };

  struct Options {
    Bytes budget;       // of device memory, mapped at the start in whole granules (2 MiB)
    Bytes most;         // after resize(); 0: `budget`
    Bytes most_pinned;  // of host memory; 0: without limit
    Bytes alignment = {512};
    bool managed = false;      // the device's memory is managed (cuda/managed_tracker.h)
    LinkSpeed link;            // to pinned memory; 0: not known
    bool reaches_host = true;  // kernels use pinned memory where it lies, under the host's addresses
  };
  struct Born {
    BlockIndex block;
    cuda::Address address = 0;
  };
  struct Counters {
    std::uint64_t evictions = 0, fetches = 0;
    std::uint64_t batches = 0, batched = 0;  // calls of the driver with several copies, and copies in them
    std::uint64_t misplaced = 0;             // blocks that got another place than the plan's
    Bytes evicted, fetched, live, most_live, in_use, most_in_use;
    Bytes unchanged;  // left without a copy
    Bytes shifted;    // moved inside of the device
    Bytes from_far;   // of fetches: read from the disk first
    Bytes in_slots;   // used where they lie, in pinned memory
    HostSlots::Counters host;
  };
  using Place = std::optional<std::uint64_t>;  // an offset in the device's range; nullopt: no plan has one

  // `disk`: behind pinned memory, for slots without room there; nullptr: there is none.
  static Result<std::unique_ptr<PlaceExecutor>> make(std::shared_ptr<const cuda::Device>, const Options&, Owner&,
                                                     std::unique_ptr<DiskThread> disk = nullptr);
  ~PlaceExecutor();  // waits for the device's copies
  PlaceExecutor(const PlaceExecutor&) = delete;
  PlaceExecutor& operator=(const PlaceExecutor&) = delete;

  // A new block that work of `stream` may write from now on. It stays until allow_moves(). Errors: out_of_memory where
  // blocks that cannot leave take too much room, or pinned memory is used up.
  Result<Born> allocate(Bytes, cuda::StreamHandle stream, Place place = {});
  // A new block with the bytes that lie at `from` behind the work of `stream`, for whose copy the host waits. Nothing
  // leaves for it: where there is no hole, it begins its life away. Of such blocks the latest leaves first.
  Result<Born> allocate_copy(Bytes, cuda::Address from, cuda::StreamHandle stream);
  void release(BlockIndex);  // no op that is announced later uses it; queued work may
  void allow_moves(BlockIndex);
  void forbid_moves(BlockIndex);  // until then

  // By a plan, between ops. A block leaves behind its last uses; one that may not leave stays, without an error. A
  // block that comes back as `unchanged` leaves again without a copy, unless forget_plan() came between. `far`: on to
  // the disk, where there is one; of a block that is away already, too. A block on the disk is read first: its copy is
  // queued when an op begins and the bytes are there, and at the latest for the op that uses it.
  Result<void> leave(BlockIndex, bool far = false);
  Result<void> bring(BlockIndex, Place place, bool unchanged);
  // The same of several. Copies of small ones come first, in few calls of the driver (place_batches.cc). Each is tried,
  // and the first error is told; out_of_memory where there is no other.
  struct Leaving {
    BlockIndex block;
    bool far = false;
  };
  struct Coming {
    BlockIndex block;
    Place place = {};
    bool unchanged = false;
  };
  Result<void> leave_all(std::span<const Leaving>);
  Result<void> bring_all(std::span<const Coming>);
  // Between two ops: blocks come to these places, as by bring_all() in this order, and all others leave that may. What
  // is in another place moves inside of the device, or leaves and comes back where nothing has room meanwhile.
  struct Target {
    BlockIndex block;
    std::uint64_t place = 0;
  };
  Result<void> rearrange(std::span<const Target>);
  // Queues a copy of its bytes, from its place or its slot, on `stream`. Waits for the disk where they are there.
  Result<void> copy_to(BlockIndex, cuda::Address to, cuda::StreamHandle stream);
  void may_change(BlockIndex);  // work that is queued next writes it
  void forget_plan();           // unchanged blocks, and reads on their way from the disk

  // Ops without a plan: predictions from an earlier step, of the op that begins next and of those that follow.
  struct Expected {
    Ticks now = 0;
    moves::Outlook outlook;  // births in bytes
    std::span<const moves::NextUses<BlockIndex>::Use> uses;
    struct Fetch {
      BlockIndex block;
      bool unchanged = false;
    };
    std::span<const Fetch> fetches;
  };
  void expect(const Expected&);  // before begin_op()
  void expect_nothing();         // from now on: of all blocks
  // After end_op(): what is used next comes, and what is used last makes room for it and for births. What cannot come
  // now is tried again. A wrong expectation costs copies.
  Result<void> look_ahead();

  // Blocks that are dropped and recomputed, between ops. A dropped block has no bytes: no op may use it, leave() and
  // bring() do nothing. False: it may not leave.
  bool drop(BlockIndex);
  bool is_dropped(BlockIndex) const;
  bool has_slot(BlockIndex) const;  // of host memory
  void prepare_slots(std::vector<Bytes> slots);
  Place dropped_from(BlockIndex) const;  // where it lay, or would lie again first; nullopt: it is not dropped
  // `to`, which is dropped, gets the place and the bytes of `from`, which is in place and has the same size, and is
  // left without either.
  void adopt(BlockIndex from, BlockIndex to);
  // As begin_op() and end_op(), for work of which the program does not know: it runs behind all that was queued for
  // these blocks, on other streams, too, and later uses run behind it.
  Result<void> begin_again(std::span<const BlockIndex>, cuda::StreamHandle stream);
  void end_again(std::span<const BlockIndex>, cuda::StreamHandle stream);

  // Where no plan says where an op's results lie, one piece is left for them. It is as large as the largest operand, if
  // there is as much beside the operands, and as `result`, or all that there is.
  enum class Results : std::uint8_t { placed, anywhere };
  // How the op's end is remembered, and deaths until the next op begins: by an event each, which costs the host a
  // microsecond, or on the default stream by none. What waits for one that is noted waits for all that is queued by
  // then.
  enum class Ends : std::uint8_t { marked, noted };
  struct Few {  // bytes of a block, somewhere in it, of which an op uses no others
    BlockIndex block;
    Bytes bytes;
    bool written = false;
  };
  // An op on `stream` begins to use these blocks, one that it names twice included. They are in place by when the
  // stream gets there, and stay until end_op() with the same blocks and those of `few`. Where they fit, but not between
  // one another, they are moved side by side. A block of `few` that is away has the address of its slot until then;
  // none is named twice. True: the stream may have to wait for a copy, or for the place of one. Errors leave none of
  // them pinned.
  Result<bool> begin_op(std::span<const BlockIndex>, cuda::StreamHandle stream, Results = Results::placed,
                        Ends = Ends::marked, Bytes result = {}, std::span<const Few> few = {});
  // All work of the op is queued.
  void end_op(std::span<const BlockIndex>, cuda::StreamHandle stream);
  // Work on `stream` that no op announces uses the block, as record_stream() says.
  void record_stream(BlockIndex, cuda::StreamHandle stream);
  // Between ops: from now on no event is recorded on a stream for what was queued there before, as one that is captured
  // has to be left alone.
  void cover_all_uses();

  // Between ops: another budget. Blocks beyond it leave, and the host waits for the device until their memory is free
  // for others; one that may not leave keeps what lies below its end. Returns the budget from now on. Errors: of the
  // driver, and out_of_memory where the device has no more; then it is as it was.
  Result<Bytes> resize(Bytes budget);
  Bytes budget() const noexcept { return arena_.bytes(); }

  // Ops of `stream` that begin_op() does not announce may use all blocks, from now on until move_again(). Nothing moves
  // meanwhile: what needs that is refused as out_of_memory. Waits for copies. all_in_place() before.
  Result<void> keep_still(cuda::StreamHandle stream);
  void move_again() noexcept { still_ = false; }  // all their work has passed
  bool is_still() const noexcept { return still_; }
  bool all_in_place() const;

  cuda::Address range() const noexcept { return range_.address(); }
  moves::RangeAllocator::Stretch longest_movable() const;  // of the range: no block lies there that may not move
  cuda::Address address(BlockIndex) const;                 // 0: away
  Place place(BlockIndex) const;                           // nullopt: away
  Bytes bytes(BlockIndex) const;
  Counters counters() const;

 private:
  using StreamPoint = cuda::StreamPoint;
  using Fences = InlineList<StreamPoint, 4>;  // at most one a stream
  struct Block {
    Bytes bytes;
    bool alive = false, movable = false, unchanged = false, dropped = false;
    bool is_copied = false;  // with others: the call comes next, and nothing else has its place and its slot meanwhile
    std::uint32_t in_slot = 0;  // ops that use its bytes there
    bool changes_slot = false;  // one of them writes some
    std::uint32_t pins = 0;
    StreamPoint ready;                      // of the copy that brought it; uses run behind
    Fences uses;                            // its last use by each stream
    InlineList<std::uint32_t, 4> unended;   // streams with work on it that no point covers yet
    InlineList<std::uint32_t, 4> recorded;  // streams that may get work on it which no op announces
    InlineList<std::uint32_t, 2> owners;    // of its birth, and all that were recorded: its death is behind their work
    std::optional<HostSlot> slot;
    Place dropped_from;
  };
  struct Fetch {  // that has a place
    Coming what;
    MoveCause cause = MoveCause::planned;
    std::uint64_t offset = 0;
    Fences fences;  // of the place
    BlockIndex block() const { return what.block; }
  };
  struct Eviction {
    BlockIndex index;
    std::uint64_t offset = 0;
    MoveCause cause = MoveCause::planned;
    BlockIndex block() const { return index; }
  };
  struct InSlots;  // place_rows.cc
  struct Parts {
    cuda::DeviceRange range;
    cuda::Stream in, out;
    std::unique_ptr<DiskThread> disk;
  };

  PlaceExecutor(std::shared_ptr<const cuda::Device>, const Options&, Owner&, Parts);
  BlockIndex unused_index();
  Result<StreamPoint> copy_born(BlockIndex, cuda::Address from, StreamPoint made);
  Result<std::uint64_t> room_for(BlockIndex, Bytes, Place);
  Result<std::uint64_t> any_room_for(BlockIndex, Bytes);
  std::uint64_t rank(BlockIndex) const;
  std::optional<std::vector<BlockIndex>> victims(Bytes) const;
  bool has_room_for(Bytes all, Bytes in_one_piece) const;
  Result<bool> make_room_ahead(Bytes, Ticks unused_until);
  double ns_of_fetch(Bytes) const;
  Ticks busy_until();
  bool read_queued_slots();  // false: no fetch is queued
  bool give_up_a_copy();     // false: no block in place has a slot
  Result<bool> comes_ahead(const Expected::Fetch&);
  void forget_fetches();
  bool has_come(const Expected::Fetch&) const;
  void leaves_too_soon(BlockIndex);
  Result<void> evict(BlockIndex, MoveCause);
  Result<bool> pin_for(std::span<const BlockIndex>, std::uint32_t stream, Results, Bytes result = {});
  void unpin_for(std::span<const BlockIndex>, std::uint32_t stream);
  Result<void> copy(const Transfer&, const cuda::Copy&);
  void leave_without_copy(BlockIndex, MoveCause);
  Result<void> copy_out(const Eviction&);
  void copied_out(const Eviction&, StreamPoint);
  void has_left(const Eviction&, const Fences& before);
  Result<void> fetch(const Coming& what, MoveCause);
  Result<Fetch> begin_fetch(const Coming& what, MoveCause);
  Result<void> copy_in(const Fetch&);
  Transfer transfer_of(const Fetch&) const;
  Transfer transfer_of(const Eviction&) const;
  cuda::Copy copy_of(const Fetch&) const;
  cuda::Copy copy_of(const Eviction&) const;
  void end_fetch(const Fetch&, StreamPoint);
  void undo_fetch(const Fetch&);
  bool is_small(BlockIndex) const;
  void cover_uses_of(std::span<const BlockIndex>);
  template <class Moving>
  bool goes_first(const std::vector<Moving>& queued, Bytes next, std::uint32_t stream, const Fences& before) const;
  Result<StreamPoint> copy_together(std::uint32_t stream);
  template <class Moving, class Ended, class Alone>
  Result<void> copy_queued(std::vector<Moving>& queued, std::vector<Moving>& moving, cuda::Stream& stream,
                           std::uint32_t number, Ended ended, Alone alone);
  Result<void> leave_with_others(BlockIndex, MoveCause);
  Result<void> copy_out_together();
  Result<void> evict_all(std::span<const BlockIndex>, MoveCause);
  bool comes_with_others(BlockIndex);
  Result<void> come_with_others(const Coming&, MoveCause);
  Result<void> copy_in_together();
  Result<void> fetch_in_order(const Coming&, MoveCause);
  Result<void> end_fetches();
  void fetch_small(std::span<const BlockIndex>, bool unchanged);
  Result<void> bring_now(const Coming&);
  Result<void> shift(BlockIndex, std::uint64_t to);
  bool has_room_at(BlockIndex, std::uint64_t place) const;
  Result<void> shift_all(std::vector<Target>& misplaced);
  Result<std::uint64_t> clear_from(std::uint64_t end);
  Result<void> make_slot(Block&);
  std::optional<Coming> take_coming(BlockIndex);
  Result<void> pin(std::span<const BlockIndex>, Results);
  Result<void> pin_side_by_side(std::span<const BlockIndex>, Results);
  bool leaves_one_piece(std::span<const BlockIndex>, Bytes result) const;
  void advance();
  Result<cuda::StreamPoint> end_of_uses(std::uint32_t stream);
  Result<void> cover_uses(Block&);
  void wait_for_uses(Block&);
  bool may_leave(BlockIndex);
  bool clear(const std::vector<BlockIndex>&, MoveCause, Result<void>& left);
  void bury(BlockIndex);  // a block that is released and in no open op
  std::uint64_t rounded(Bytes) const noexcept;
  void tell_of_wait(HostSlots::WaitsFor what, bool begins);
  Result<void> let_wait_for_room(std::uint32_t stream, const Fences&);
  void remember(std::uint64_t offset, std::uint64_t bytes, const Fences&);
  Fences take_fences(std::uint64_t offset, std::uint64_t bytes);
  Result<void> let_wait(std::uint32_t stream, const Fences&);
  void let_use(std::uint32_t stream, const Block&);
  static void join(Fences&, StreamPoint);

  const std::shared_ptr<const cuda::Device> device_;
  const Options options_;
  Owner& owner_;
  cuda::DeviceRange range_;
  cuda::Stream in_, out_;
  cuda::Points points_;
  HostSlots host_;
  std::uint32_t in_number_ = 0, out_number_ = 0;
  moves::RangeAllocator arena_;
  std::vector<Block> blocks_;
  std::vector<BlockIndex> unused_;
  // By offset: points to pass before bytes of a hole are written again.
  struct Remembered {
    std::uint64_t end = 0;
    Fences fences;
  };
  std::pmr::unsynchronized_pool_resource pool_;
  std::pmr::map<std::uint64_t, Remembered> remembered_{&pool_};
  Ends ends_ = Ends::marked;      // of the latest op
  bool still_ = false;            // nothing moves
  std::vector<BlockIndex> away_;  // of the op that begins
  std::vector<Coming> coming_;    // read from the disk, and then fetched
  struct {
    std::vector<Eviction> out;  // copies of the next call, each behind all that it waits for; empty between ops
    std::vector<Fetch> in;
    bool refused = false;  // such a call, once: there are no more
    // For use within one function, so that a steady step allocates nothing.
    std::vector<Eviction> leaving;
    std::vector<Fetch> coming;
    std::vector<BlockIndex> may_leave, leave_alone;
    std::vector<Coming> come_alone;
    std::vector<Transfer> transfers;
    std::vector<cuda::Copy> copies;
  } together_;
  moves::NextUses<BlockIndex> uses_;
  moves::LookAhead ahead_;
  std::vector<Expected::Fetch> fetches_;  // that are expected
  Counters counters_;
};

}  // namespace vedette
