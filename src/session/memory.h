// The memory of a session's tensors: births, deaths, holds and names, and the size of the fast memory that they have.
// Addresses are the arena's, bytes are the executor's, and the running step hears of both (steps.h).
//
// What always holds: a tensor's chunks are dead before its address can be given out again. The executor is not called
// with the session's lock held where it may wait, but for a chunk of the slab: no other thread may get a neighbour
// before the chunk is there.
//
// Thread rule: any thread. Functions take the session's lock themselves.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "session/common.h"
#include "session/plans.h"
#include "session/pressure.h"
#include "session/steps.h"

namespace vedette::detail {

class Memory : PartOfSession {
 public:
  Memory(const Common& session, Plans& plans, Steps& steps) : PartOfSession(session), plans_(plans), steps_(steps) {}

  Result<std::byte*> allocate(const AllocateOptions& allocation);
  void release(std::byte* memory) noexcept;

  void label(const void* memory, std::string_view name, TensorKind kind);
  Result<void> place(std::string_view names, std::string_view tier, Session::Placement as);
  void shape(const void* memory, std::span<const std::int64_t> sizes);
  bool may_be_dropped(const void* memory) const noexcept;
  void others_write(const void* memory);
  // No chunks: memory that is always resident. Errors: no room within `patience`.
  Result<std::optional<ChunkRange>> hold(const void* memory, std::chrono::milliseconds patience);
  void release_hold(ChunkRange chunks) noexcept;
  std::string describe(ChunkIndex chunk) const;  // its addresses, and its tensors where no lock is held

  // --- fast memory of another size (memory_size.cc) ------------------------------------------------------------------
  Bytes budget() const noexcept;
  Bytes smallest_budget() const noexcept;
  // `waits_for_turn`: on the thread of steps, between two; before the next one the size is again what it needs.
  Result<FastMemory> set_fast_memory(Bytes asked, bool waits_for_turn = false);
  void follow_pressure();
  void leave_pressure() { follower_.reset(); }
  // Of a closed session: no more than `most` stays, where tensors can leave. Returns the most that may be there at
  // once. Waits.
  Bytes wind_down(Bytes most) noexcept;
  Bytes may_keep() const noexcept;  // then, whatever the budget was

 private:
  Result<Arena::Place> take_place(const AllocateOptions& allocation, std::uint64_t bytes);
  Result<void> ready(const Arena::Place& place);
  bool log_birth(const Arena::Place& place, const AllocateOptions& allocation);  // whether its pages are watched
  void undo_birth(const Arena::Place& place);
  std::optional<std::uint32_t> release_or_keep(std::uint64_t offset) noexcept;
  void expect_writes(const Arena::Place& place) noexcept;
  Result<FastMemory> resize(Bytes asked, bool waits_for_turn);

  Plans& plans_;
  Steps& steps_;
  std::unique_ptr<PressureFollower> follower_;
};

}  // namespace vedette::detail
