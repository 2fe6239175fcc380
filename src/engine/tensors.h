// Tensors come and go in the engine's chunks, and hold some of them in fast memory.
//
// Thread rule: any thread. Functions take the lock themselves. One that waits lets it go meanwhile, as a condition
// variable does.
#pragma once
#include <mutex>
#include <optional>

#include "engine/migrator.h"

namespace vedette::engine {

class Tensors : PartAbove {
 public:
  Tensors(Common& engine, const Below& below, Migrator& migrator) : PartAbove(engine, below), migrator_(migrator) {}

  // As Executor's functions of these names.
  Result<void> born(ChunkRange chunks);
  void died(ChunkRange chunks) noexcept;
  Result<void> hold(ChunkRange chunks);
  void release_hold(ChunkRange chunks) noexcept;

 private:
  void count_birth(ChunkRange range);
  std::optional<Error> await_room(std::unique_lock<std::mutex>& lock, ChunkIndex chunk, ChunkIndex limit);
  void let_die(ChunkRange range);
  void drop_hold(ChunkRange range);
  Error no_room();  // why
  Error too_much_held(std::uint32_t more) const;

  Migrator& migrator_;
};

}  // namespace vedette::engine
