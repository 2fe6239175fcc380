// Host memory of blocks that are away from the GPU: pinned slots within a limit and, where there is a disk, its pieces
// behind them. A copy to or from the device uses a near slot alone. A slot goes far when the plan says so, or when
// pinned memory is nearly used up: the one that was filled longest ago. It is read back into pinned memory before the
// device's copy, ahead of need where the plan says so. Where the driver pins no more before the limit, what is pinned
// is the limit, and without a disk pageable memory takes its part: pinned memory is the ring through which slots pass.
//
//        take             send_far, or no room: write       bring, need: read
//   (none) --> near ------------------------------> far ----------------------> near
//
// What always holds: registered memory never exceeds the limit. A slot's memory is given away only behind the copies
// and the transfers that use it. The disk's bytes of a slot are those of its last write, until filled() says otherwise.
//
// Thread rule: one thread at a time, in which the device's context is current; take(), need() and the destructor may
// wait for the disk and for copies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/pinned_pool.h"
#include "cuda/points.h"
#include "gpu/disk_thread.h"

namespace vedette {

using HostSlot = Index<struct HostSlotTag>;

class HostSlots {
 public:
  enum class WaitsFor : std::uint8_t { room, bytes };  // of the disk
  // The calling thread begins to wait, or has waited. Calls do not nest.
  using Waiting = std::function<void(WaitsFor, bool begins)>;
  using PinsNoMore = std::function<void(Bytes limit, bool there_is_a_disk)>;  // called once
  struct Options {
    Bytes most_pinned;                           // 0: without limit
    std::unique_ptr<DiskThread> disk = nullptr;  // nullptr: there is none
    Waiting waiting = {};
    PinsNoMore pins_no_more = {};
  };
  struct Counters {
    Bytes pinned;              // registered; it never shrinks
    Bytes taken, most_pinned;  // of it, by slots; and its limit, 0: none
    Bytes pageable;            // behind it, where the driver pinned no more
    Bytes to_disk, from_disk;  // moved so far
  };

  // `points` outlives it.
  HostSlots(std::shared_ptr<const cuda::Device> device, cuda::Points& points, Options options);
  ~HostSlots();

  bool has_disk() const noexcept { return disk_ != nullptr; }

  // Registers memory for slots of these sizes, all at once, so that take() does not. It uses half of the limit at most:
  // slots that are larger than a piece need pieces of their own. From then on take() waits for copies of dead slots
  // before it registers more: a host that runs ahead of the device takes no more memory with each step.
  void prepare(std::vector<Bytes> slots);
  // A near slot, contents undefined. Errors: out_of_memory where all other slots together leave no room; of the disk.
  Result<HostSlot> take(Bytes bytes);
  void give_back(HostSlot slot);  // its memory serves others when the copies that use it have ended

  std::byte* memory(HostSlot slot) const;  // of a near one; nullptr: it is not near
  cuda::StreamPoint filled_at(HostSlot slot) const { return slots_[slot.value].filled; }
  cuda::StreamPoint read_at(HostSlot slot) const { return slots_[slot.value].last_read; }
  void will_fill(HostSlot slot) { slots_[slot.value].needed = true; }       // it goes nowhere before filled()
  void filled(HostSlot slot, cuda::StreamPoint copied);                     // the copy that fills it is queued
  void is_read(HostSlot slot, cuda::StreamPoint copied);                    // a copy that reads it is queued
  bool was_far(HostSlot slot) const { return slots_[slot.value].was_far; }  // since it was filled

  void bring(HostSlot slot);    // begins to read it, where room is there at once; it stays near until is_read()
  bool is_near(HostSlot slot);  // and its bytes are there
  // Near when it returns; `to_change`: and no transfer to the disk reads it.
  Result<void> need(HostSlot slot, bool to_change = false);
  void forget_wish(HostSlot slot);  // of bring() and need()
  void send_far(HostSlot slot);     // by the plan: as soon as it is filled
  void advance();                   // whatever can go on without waiting

  Counters counters() const;

 private:
  enum class State : std::uint8_t { unused, near, writing, far, reading };
  struct Slot {
    State state = State::unused;
    Bytes bytes;
    std::byte* memory = nullptr;
    cuda::StreamPoint filled, last_read;
    std::vector<SlotIndex> pieces;  // of the disk
    DiskThread::JobNumber job = 0;
    std::uint64_t age = 0;  // grows with each filled()
    bool disk_has_it = false, dead = false, leaves = false, was_far = false;
    bool wanted = false;  // ahead of need: it gives its memory back where nothing else can
    bool needed = false;  // a caller has it in hand
  };

  std::uint64_t room_of(Bytes bytes) const noexcept;  // in whole pieces
  Result<std::byte*> memory_for(Bytes bytes, bool may_wait);
  std::byte* memory_of_the_dead(Bytes bytes);  // waits for their copies; nullptr: they leave no such hole
  bool end_jobs();                             // of those that have ended; false: none had
  void end_job(Slot& slot, int error);
  bool let_go(Slot& slot);         // a dead one: false while copies or transfers use it
  bool bury_the_dead();            // false: none could go
  bool make_room_of_what_ended();  // false: nothing has
  bool has_passed(cuda::StreamPoint use);
  Result<void> wait_for(cuda::StreamPoint use);
  int wait_for_job(const Slot& slot, WaitsFor what);
  bool start_write(Slot& slot, bool may_wait);
  Result<void> start_read(HostSlot slot, bool may_wait);
  std::optional<HostSlot> coldest() const;
  bool give_up_a_wish();                 // false: there is none
  bool wait_for_something(Bytes bytes);  // false: nothing that could make room
  Result<void> make_pieces(Slot& slot);
  void drop_memory(Slot& slot);
  bool goes_on_pageable();  // the driver has just refused; false: it has not, or nothing is pinned

  const std::shared_ptr<const cuda::Device> device_;
  cuda::Points& points_;
  Bytes limit_;
  std::unique_ptr<DiskThread> disk_;
  bool is_pageable_ = false;  // the disk
  const Waiting waiting_;
  const PinsNoMore pins_no_more_;
  cuda::PinnedPool pool_;
  std::vector<Slot> slots_;
  std::vector<HostSlot> unused_, dead_;
  std::vector<SlotIndex> free_pieces_;
  std::uint32_t pieces_ = 0;
  bool prepared_ = false;
  std::uint64_t ages_ = 0;
  std::optional<Error> failed_;  // of the latest transfer that failed
  Bytes to_disk_, from_disk_;
};

}  // namespace vedette
