// Another budget while the program runs: more frames at once, or fewer as chunks leave. The migrator evicts by the
// usual order, and the maker gives the memory of free frames back to the system.
//
// Thread rule: any thread. Functions take the lock themselves. One that waits lets it go meanwhile.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>

#include "engine/migrator.h"
#include "moves/executor.h"

namespace vedette::engine {

class Budget : PartAbove {
 public:
  // `most_frames`: at any time.
  Budget(Common& engine, const Below& below, Migrator& migrator, std::uint32_t most_frames)
      : PartAbove(engine, below), migrator_(migrator), most_frames_(most_frames) {}

  void start();  // once there is a memory; with the lock
  Bytes now() const noexcept;
  // As Executor's.
  Result<detail::Executor::Resized> resize(Bytes budget, detail::Executor::Caller caller);
  std::uint32_t wind_down(std::uint32_t most) noexcept;
  std::uint32_t may_keep() const noexcept;

 private:
  void await_shrunk(std::unique_lock<std::mutex>& lock, bool for_op_to_end);
  void await_unregistered(std::unique_lock<std::mutex>& lock);  // of frames for I/O; waits
  std::string what_holds_more_than(std::uint32_t frames) const;

  Migrator& migrator_;
  std::uint32_t most_frames_;
};

}  // namespace vedette::engine
