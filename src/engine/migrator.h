// The migrator: one thread that starts and completes every move between fast memory and the store. Urgent chunks go
// first, then the plan's evictions, then room for threads that wait, then the plan's fetches.
//
// Where the engine is driven by hand there is no thread, and a call that waits takes the migrator's turns.
//
// Thread rule: as common.h's, but for join(), which is called without the lock, and run_once(), which takes it itself,
// as the thread does. No function unlocks a lock that its caller holds, but two kinds that take it and say so in their
// names. With `await` it waits for an arrival, as a condition variable does. With `_unlocking` it is the migrator's own
// turn, which calls the store and the memory without the lock.
#pragma once
#include <cstdint>
#include <mutex>
#include <thread>

#include "engine/part_above.h"

namespace vedette::engine {

class Migrator : PartAbove {
 public:
  Migrator(Common& engine, const Below& below) : PartAbove(engine, below), queues_(below.demand.queues()) {}

  void start(bool register_frames);  // the thread, which measures the slow tiers first
  void join();                       // when the engine ends
  void run_once() noexcept;          // by hand: starts moves, then takes completions

  template <class Done>
  void await(std::unique_lock<std::mutex>& lock, Done done);  // something arrives until then
  void await_all_moves(std::unique_lock<std::mutex>& lock);   // that threads wait for; the plan's are forgotten

 private:
  void run(bool register_all) noexcept;
  void register_frames();  // the store's thread rule
  void turn_unlocking(std::unique_lock<std::mutex>& lock) noexcept;
  bool start_moves_unlocking(std::unique_lock<std::mutex>& lock) noexcept;     // true: more may have to start
  void take_completed_unlocking(std::unique_lock<std::mutex>& lock) noexcept;  // waits for some, or for a wake-up

  void pump();  // starts moves: requests gather in slow_
  void start_urgent();
  void start_planned_evictions();
  void start_planned_fetches();
  void make_room();
  bool start_eviction(ChunkIndex chunk, MoveCause cause, TierIndex target = {});
  void start_fetch(ChunkIndex chunk, FrameIndex frame, MoveCause cause);
  bool try_writes_again();  // false: no write has failed

  void complete(const StoreCompletion& completion);
  void complete_read(ChunkIndex chunk, int error);
  void complete_write(ChunkIndex chunk, int error);

  MoveQueues& queues_;
  std::thread thread_;
};

template <class Done>
void Migrator::await(std::unique_lock<std::mutex>& lock, Done done) {
  if (!by_hand_) return arrived_.wait(lock, done);
  while (!done())
    if (!start_moves_unlocking(lock) && !done()) take_completed_unlocking(lock);
}

}  // namespace vedette::engine
