// Chunks whose bytes are forgotten, and scratch of whole chunks, in which they are recomputed: dropped chunks get its
// frames.
//
// Thread rule: as Scratch's; drop_chunks(), is_dropped() and adopt() from any thread. They take the lock themselves.
#pragma once
#include <vector>

#include "engine/common.h"
#include "engine/demand.h"
#include "engine/frames.h"
#include "engine/running_op.h"
#include "engine/tensors.h"
#include "moves/scratch.h"

namespace vedette::engine {

class ChunkScratch final : public detail::Scratch, PartOfEngine {
 public:
  ChunkScratch(Common& engine, Frames& frames, RunningOp& op, Demand& demand, Tensors& tensors)
      : PartOfEngine(engine), frames_(frames), op_(op), demand_(demand), tensors_(tensors) {}

  // Between ops: forgets the bytes of those chunks that may leave now, and returns them. A thread that needs one before
  // it is recomputed waits, and the engine's owner is told.
  std::vector<ChunkIndex> drop_chunks(ChunkRange range) noexcept;
  // The frame of `from`, which is held, is shown at `to` from now on, and `from` has none. False: its pages are pinned
  // for the moment. Nothing, where `to` is not dropped.
  [[nodiscard]] bool adopt(ChunkIndex from, ChunkIndex to) noexcept;

  bool queues_recipes() const noexcept override { return false; }
  bool drop(ChunkRange chunks) noexcept override { return !drop_chunks(chunks).empty(); }
  bool is_dropped(ChunkIndex chunk) const noexcept override;
  bool take_piece(Piece& piece) override;
  void give_back_piece(const Piece& piece) noexcept override;
  void adopt_piece(const Piece& from, ChunkRange to) noexcept override;
  void come(const detail::Executor::Part&) override {}
  bool begin_recipe(std::span<const ChunkRange> sources, std::span<const ChunkRange> pieces) override;
  void end_recipe(std::span<const ChunkRange> sources, std::span<const ChunkRange> pieces) noexcept override;
  void begin_aside(Aside) noexcept override {}
  void end_aside() noexcept override {}
  bool spoil(const Piece& piece) override;
  bool same_bytes(const Piece& piece) override;

 private:
  Frames& frames_;
  RunningOp& op_;
  Demand& demand_;
  Tensors& tensors_;
  std::vector<ChunkRange> sources_;  // that are held for a recipe
};

}  // namespace vedette::engine
