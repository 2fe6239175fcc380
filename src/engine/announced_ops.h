// Ops as the program announces them: an op's operands are in fast memory from its begin to its end, or to the end of
// its section.
//
// Threads that show and hide: a move in the page tables interrupts all threads that compute. It takes 16 to 24 us
// instead of 2 beside two of them, and an interrupted thread stops the other at their barrier. Between two ops they
// rest. So the thread that begins and ends ops shows arrived chunks and hides those that the plan evicts; the migrator
// does both for threads that wait.
//
// Thread rule: the op thread. Functions take the lock themselves.
#pragma once
#include <functional>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "engine/migrator.h"
#include "engine/planned_moves.h"
#include "moves/executor.h"

namespace vedette::engine {

class AnnouncedOps : PartAbove {
 public:
  using Part = detail::Executor::Part;
  using Departures = std::span<const detail::OpMoves::Departure>;

  AnnouncedOps(Common& engine, const Below& below, PlannedMoves& planned, Migrator& migrator)
      : PartAbove(engine, below), planned_(planned), migrator_(migrator) {}

  void begin(OpIndex op, std::string_view name, const Part& part);
  // The end of one op and the beginning of another with the same name and number. The section needs its operands and
  // whatever was born in the op and lives. `between` is called without the lock.
  void go_on(Departures departures, const Part& part, const std::function<void()>& between);
  void end(Departures departures) noexcept;

  void observe(std::span<const ChunkRange> operands) noexcept;
  bool was_touched(ChunkRange operand) const noexcept;

 private:
  void enter_and_await(std::unique_lock<std::mutex>& lock, const Part& part);
  void leave(Departures departures);
  bool is_steady() const noexcept;  // nothing is away, moves or waits

  PlannedMoves& planned_;
  Migrator& migrator_;
  std::vector<ChunkIndex> covered_;  // that observe() hid
};

}  // namespace vedette::engine
