// Tensors come and go in the engine's chunks, and hold some of them in fast memory.
//
// Thread rule: any thread. Functions take the lock themselves. One that waits lets it go meanwhile, as a condition
// variable does.
#pragma once
#include <mutex>
#include <optional>

#include "engine/common.h"
#include "engine/migrator.h"

namespace vedette::engine {

class Tensors : PartOfEngine {
 public:
  Tensors(Common& engine, const Below& below, Migrator& migrator)
      : PartOfEngine(engine),
        slow_(below.slow),
        frames_(below.frames),
        op_(below.op),
        demand_(below.demand),
        in_place_(below.in_place),
        maker_(below.maker),
        migrator_(migrator) {}

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

  SlowTier& slow_;
  Frames& frames_;
  RunningOp& op_;
  Demand& demand_;
  OperandsInPlace& in_place_;
  Maker& maker_;
  Migrator& migrator_;
};

}  // namespace vedette::engine
