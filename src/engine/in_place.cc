#include "engine/in_place.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "os/uffd.h"

namespace vedette::engine {

OperandsInPlace::OperandsInPlace(Common& engine, SlowTier& slow, Frames& frames, RunningOp& op, Demand& demand,
                                 const EngineOptions& options)
    : PartOfEngine(engine),
      slow_(slow),
      frames_(frames),
      op_(op),
      demand_(demand),
      read_(options.read_in_place),
      write_(options.write_in_place) {}

void OperandsInPlace::use(std::span<const detail::OpMoves::InPlace> operands) {
  strayed_.clear();
  detail::InPlaceUse use{.op = op_.index()};
  for (const detail::OpMoves::InPlace& operand : operands)
    for (const ChunkIndex c : operand.chunks) {
      if (books_[c].live == 0) continue;
      if (books_[c].state != ChunkState::in_place && !lend(c)) {
        strayed_.push_back(c);
        continue;
      }
      books_.use_in_place(c);
      const Bytes used = operand.used.value == 0 ? chunk_bytes_ : std::min(operand.used, chunk_bytes_);
      figures_.used_in_place(used);
      if (operand.read) use.read += used;
      if (operand.written) use.written += used;
    }
  if (use.read.value + use.written.value == 0) return;
  time_ = transfer_time(use.read, read_);
  time_ += transfer_time(use.written, write_);
  figures_.used_in_place(use);
}

// As much as memory that is slower than this machine's would cost the op. It counts as a wait for operands.
void OperandsInPlace::slow_down_unlocking(std::unique_lock<std::mutex>& lock) {
  const Nanoseconds time = std::exchange(time_, {});
  if (time.value == 0 || by_hand_) return;
  constexpr Nanoseconds oversleeps{100'000};
  const Nanoseconds began = program_.now();
  lock.unlock();
  if (time > oversleeps) std::this_thread::sleep_for(std::chrono::nanoseconds((time - oversleeps).value));
  while (program_.now() - began < time) std::this_thread::yield();
  lock.lock();
  figures_.waited_in_place(op_.index(), program_.now() - began);
  op_.add_stall(began, false);
}

void OperandsInPlace::let_strayed_leave() {
  for (const ChunkIndex c : strayed_)
    if (books_.may_leave(c)) demand_.let_leave(c, tier);
  strayed_.clear();
}

bool OperandsInPlace::lend(ChunkIndex c) {
  if (!slow_.lends() || frames_.watched() || !books_.may_be_lent(c)) return false;
  const SlotIndex slot = *books_[c].slot;
  std::byte* const memory = slow_.lend(slot);
  if (memory == nullptr) return false;
  if (!memory_->lend(memory, c)) {
    slow_.end_loan(slot);
    return false;
  }
  books_.lent(c);
  slow_.may_change(slot);
  return true;
}

bool OperandsInPlace::take_back(ChunkIndex c) {
  if (books_[c].state != ChunkState::in_place) return false;
  op_.disturb();  // a quick op that has just begun uses its operands from here on
  if (!books_.may_be_taken_back(c)) return false;
  const SlotIndex slot = *books_[c].slot;
  if (!memory_->take_back(c, slow_.lent(slot))) return false;
  slow_.end_loan(slot);
  books_.taken_back(c);
  return true;
}

void OperandsInPlace::take_all_back() {
  if (!slow_.lends()) return;
  for (const ChunkIndex c : books_.used()) take_back(c);
}

// Its last tensor dies. A transfer of the program that still has pages pinned is waited for.
void OperandsInPlace::take_back_dead(ChunkIndex c) {
  const SlotIndex slot = *books_[c].slot;
  std::byte* const memory = slow_.lent(slot);
  for (Patience patience; !memory_->take_back(c, memory);) patience.pause();
  slow_.end_loan(slot);
  books_.taken_back(c);
}

}  // namespace vedette::engine
