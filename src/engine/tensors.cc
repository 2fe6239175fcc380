#include "engine/tensors.h"

#include <algorithm>

#include "base/readable.h"

namespace vedette::engine {

void Tensors::count_birth(ChunkRange range) {
  op_.counts_birth(range.size());
  for (const ChunkIndex c : range) {
    books_.birth(c);
    if (books_.in_op()) frames_.pin(c);
  }
  if (books_.in_op()) op_.go_paged_unless_it_fits();
}

Result<void> Tensors::born(ChunkRange range) {
  std::unique_lock lock(mutex_);
  while (!slow_.has_slots_for(range.size())) {
    lock.unlock();
    if (auto grown = slow_.grow(range.size()); !grown) return grown;
    lock.lock();
  }
  op_.disturb();
  count_birth(range);
  const Nanoseconds began = program_.now();
  bool waited = false;
  for (const ChunkIndex c : range) {
    while (books_[c].state != ChunkState::resident) {
      if (books_[c].state == ChunkState::unbacked && books_.available() > 0) {
        if (frames_.back(c, /*in_use=*/books_[c].live > 1)) continue;  // else this birth's alone
        lock.unlock();
        const bool made = maker_.make(range.limit().value - c.value);
        lock.lock();
        if (!made) maker_.await_frame(lock);
        continue;
      }
      if (parked(books_[c].state)) {
        frames_.make_resident(c);
        continue;
      }
      if (demand_.may_be_unbacked()) break;                                           // a fault will bring it
      if (books_[c].state == ChunkState::in_place && !in_place_.take_back(c)) break;  // another tensor there is in use
      waited = true;
      if (const auto refused = await_room(lock, c, range.limit())) {
        op_.add_stall(began, true);
        let_die(range);
        return *refused;
      }
    }
  }
  maker_.note_use();
  if (waited) op_.add_stall(began, true);
  return {};
}

// Returns when `c` is resident or may be tried again. `limit`: the end of the range that is being born.
std::optional<Error> Tensors::await_room(std::unique_lock<std::mutex>& lock, ChunkIndex c, ChunkIndex limit) {
  if (books_[c].state != ChunkState::unbacked) demand_.request(c);
  std::uint32_t lacking = 0;
  for (const ChunkIndex rest : ChunkRange(c, limit)) lacking += books_[rest].state == ChunkState::unbacked ? 1u : 0u;
  demand_.begin_wait(lacking);
  slow_.kick();
  const auto ready = [&] {
    const ChunkState state = books_[c].state;
    return state == ChunkState::resident || parked(state) || (state == ChunkState::unbacked && books_.available() > 0);
  };
  books_.begin_wait(c);  // else the room for the rest of the range may be made of it, again and again
  migrator_.await(lock, [&] { return ready() || demand_.may_be_unbacked() || demand_.room_impossible(); });
  books_.end_wait(c);
  demand_.end_wait(lacking);
  demand_.start_soon();  // others may wait for the room that it can make from now on
  if (ready() || demand_.may_be_unbacked()) return std::nullopt;
  if (!books_.in_op() || books_.paged()) return no_room();
  op_.go_paged();
  return std::nullopt;
}

Error Tensors::no_room() {
  if (!failed_writes_.last())
    return {.cause = Cause::out_of_memory,
            .message = "no room in fast memory: everything resident is held; use a larger budget"};
  if (failed_writes_.forgive()) books_.forgive_writes();  // the next to ask has them tried again
  return *failed_writes_.last();
}

void Tensors::died(ChunkRange range) noexcept {
  const std::lock_guard lock(mutex_);
  let_die(range);
}

void Tensors::let_die(ChunkRange range) {
  op_.hand_over();
  op_.counts_death();
  bool freed = false;
  for (const ChunkIndex c : range) {
    if (books_[c].state == ChunkState::in_place && books_[c].live == 1) in_place_.take_back_dead(c);
    freed = books_.death(c) || freed;
  }
  if (!freed) return;
  maker_.give_all_back();
  if (demand_.births_wait()) arrived_.notify_all();
  demand_.start_soon();
}

Result<void> Tensors::hold(ChunkRange range) {
  std::unique_lock lock(mutex_);
  op_.hand_over();
  const auto all_held = [&] {
    for (const ChunkIndex c : range)
      if (!books_.present(c)) return false;
    return true;
  };
  for (const ChunkIndex c : range) {
    in_place_.take_back(c);
    books_.hold(c);
  }
  const bool fits = books_.held() + Demand::least_unheld <= books_.frames();
  if (fits) {
    for (const ChunkIndex c : range)
      if (!books_.present(c)) demand_.request(c);
    slow_.kick();
    migrator_.await(lock, [&] { return all_held() || demand_.room_impossible(); });
  }
  if (!fits || !all_held()) {
    Error refused = fits ? no_room() : too_much_held(range.size());
    drop_hold(range);
    return refused;
  }
  for (const ChunkIndex c : range) frames_.tell_hold(c);
  return {};
}

Error Tensors::too_much_held(std::uint32_t more) const {
  const auto size = [&](std::uint64_t chunks) { return readable({chunks * chunk_bytes_.value}); };
  return {.cause = Cause::out_of_memory,
          .message = "memory of " + size(more) + " cannot be kept in fast memory, which is " + size(books_.frames()) +
                     " with " + size(books_.held() - more) + " held already; use a larger budget"};
}

void Tensors::release_hold(ChunkRange range) noexcept {
  const std::lock_guard lock(mutex_);
  drop_hold(range);
}

void Tensors::drop_hold(ChunkRange range) {
  op_.hand_over();
  for (const ChunkIndex c : range) {
    if (books_.release(c)) frames_.tell_hold(c);
  }
  slow_.kick();
}

}  // namespace vedette::engine
