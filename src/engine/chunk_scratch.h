// Scratch of whole chunks, whose frames dropped chunks get.
#pragma once
#include <vector>

#include "moves/scratch.h"

namespace vedette {

class Engine;

class ChunkScratch final : public detail::Scratch {
 public:
  explicit ChunkScratch(Engine& engine) : engine_(engine) {}

  bool queues_recipes() const noexcept override { return false; }
  bool drop(ChunkRange chunks) noexcept override;
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
  Engine& engine_;
  std::vector<ChunkRange> sources_;  // that are held for a recipe
};

}  // namespace vedette
