// With what an engine is made.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "os/chunk_index.h"
#include "os/program.h"
#include "tier/link_habits.h"
#include "tier/store.h"
#include "vedette/observer.h"
#include "vedette/units.h"

namespace vedette {

struct EngineOptions {
  std::uint32_t chunks = 0, frames = 0;
  std::uint32_t most_frames = 0;  // after resize(), as far as the memory allows; 0: `frames`
  Bytes chunk_bytes;
  std::unique_ptr<Store> store;
  Observer* observer = nullptr;      // borrowed
  Program* program = nullptr;        // borrowed; nullptr: host_program()
  std::optional<LinkHabits> habits;  // of each slow tier, instead of start()'s measurement
  // Bytes a second: an op that uses bytes in place waits for so long beside. 0: not at all, their memory is slow
  // itself.
  std::uint64_t read_in_place = 0, write_in_place = 0;
  // No thread: a call that waits takes the migrator's turns, and run_once() takes one; frames are made when they are
  // needed. For deterministic tests.
  bool by_hand = false;
  // Called with the engine's lock held: it takes a note and returns. The session delivers notes where no lock is held.
  std::function<void(std::string_view)> on_message;
  // where a chunk lies and whose it is; for last words, so with any lock held
  std::function<std::string(ChunkIndex chunk)> describe;
  // A thread waits for a dropped chunk. Called with the engine's lock held, maybe more than once.
  std::function<void(ChunkIndex chunk)> on_dropped_wanted;
  Bytes kept_by_closed;  // fast memory that tensors of closed sessions may keep in any budget, for sentences
};

}  // namespace vedette
