// An op that begins and ends without the engine's lock, because nothing has to be done for it: every chunk in which a
// tensor lives is resident, nothing moves and nothing waits. One word says so, and whether such an op runs.
//
//             settle()               begin()
//   disturbed --------> calm <-----------------------> running
//        ^               |             end()             |
//        +---------------+-------------------------------+
//              disturb(), which hands over the running op
//
// Why no thread can take an operand away behind the op's back: every function that hides a chunk calls disturb() first,
// with the engine's lock, and begin() and disturb() change the same word atomically. Either begin() comes first: then
// disturb() gets the op and makes it one that the books know, with its operands pinned, before anything is hidden. Or
// disturb() comes first: then begin() fails, and the op begins with the lock, as others do. An op that was handed over
// cannot end() here, so it ends with the lock, behind the thread that reads its operands.
//
// What always holds: what_ is written by the op thread while no quick op runs, and read by disturb() alone. The word is
// never calm while a chunk in which a tensor lives is not resident.
//
// Thread rule: begin() and end() from the op thread, disturb() and settle() with the engine's lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "os/chunk_index.h"
#include "vedette/model.h"

namespace vedette {

class QuickOp {
 public:
  struct What {
    std::uint64_t tick = 0;
    OpIndex op;
    std::string name;
    std::span<const ChunkRange> operands;  // live until the op ends, as do frames_to_come
    std::span<const std::uint32_t> frames_to_come;
  };

  // False: the engine has something to do, so the op begins with its lock.
  bool begin(std::uint64_t tick, OpIndex op, std::string_view name, std::span<const ChunkRange> operands,
             std::span<const std::uint32_t> frames_to_come) {
    if (state_.load(std::memory_order_relaxed) != State::calm) return false;  // a hint
    what_.tick = tick;
    what_.op = op;
    what_.name.assign(name);
    what_.operands = operands;
    what_.frames_to_come = frames_to_come;
    State calm = State::calm;
    // release: what_ is there for disturb(). acquire: changes of memory before settle() are seen
    if (!state_.compare_exchange_strong(calm, State::running, std::memory_order_acq_rel, std::memory_order_relaxed))
      return false;
    ops_.store(ops_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return true;
  }
  // False: no quick op runs, or none any more.
  bool end() noexcept {
    State running = State::running;
    return state_.load(std::memory_order_relaxed) == State::running &&
           // release: the op's stores come before disturb()'s changes of memory
           state_.compare_exchange_strong(running, State::calm, std::memory_order_release, std::memory_order_relaxed);
  }

  // The quick op that runs, which is the caller's from now on.
  const What* disturb() noexcept {
    if (state_.load(std::memory_order_relaxed) == State::disturbed) return nullptr;  // settle() needs the lock, too
    // pairs with begin() and end()
    return state_.exchange(State::disturbed, std::memory_order_acq_rel) == State::running ? &what_ : nullptr;
  }
  // The same, where nothing moves next: no disturbance unless an op runs.
  const What* hand_over() noexcept {
    return state_.load(std::memory_order_relaxed) == State::running ? disturb() : nullptr;
  }
  void settle() noexcept { state_.store(State::calm, std::memory_order_release); }  // pairs with begin()
  bool calm() const noexcept { return state_.load(std::memory_order_relaxed) != State::disturbed; }

  std::uint64_t ops() const noexcept { return ops_.load(std::memory_order_relaxed); }  // so far; for figures

 private:
  enum class State : std::uint8_t { disturbed, calm, running };

  std::atomic<State> state_{State::disturbed};
  What what_;
  std::atomic<std::uint64_t> ops_{0};  // the op thread's; relaxed: a figure
};

}  // namespace vedette
