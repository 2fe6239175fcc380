// Recipes to run, in order, with their results in pieces of scratch.
//
// A piece is taken before the first recipe that uses it where recipes' work is queued, and given back behind the last
// one; else all are taken before. What always holds: a piece that is taken is given back, at the latest in the end.
//
// Locks: `making_` of recomputer.h is held from the first run on; the session's lock is taken for addresses alone.
#pragma once
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "moves/scratch.h"
#include "session/arena.h"
#include "vedette/session.h"

namespace vedette::detail {

class RecipeRuns {
 public:
  struct Made {
    Scratch::Piece piece;
    std::vector<std::uint32_t> tensors;     // of the step's log, which lie there
    std::optional<ChunkRange> wanted = {};  // the dropped chunks that get it
    bool stays = false;                     // after the last run
    std::size_t last = 0;                   // run that uses it
    bool taken = false;
  };
  struct Operand {  // a tensor that is made
    std::size_t made = 0;
    std::byte* was = nullptr;
    Bytes bytes;
  };
  struct Run {
    Recipe* recipe = nullptr;
    std::vector<std::size_t> made;  // that it uses
    std::vector<Operand> operands;  // there
    std::vector<ChunkRange> sources;
  };

  RecipeRuns(std::mutex& session, Arena& arena, Scratch& scratch)
      : session_(session), arena_(arena), scratch_(scratch) {}
  ~RecipeRuns() { give_back(); }
  RecipeRuns(const RecipeRuns&) = delete;
  RecipeRuns& operator=(const RecipeRuns&) = delete;

  void make(std::vector<Made> made) { made_ = std::move(made); }
  void add(Run run);
  std::span<Made> made() noexcept { return made_; }
  std::size_t size() const noexcept { return runs_.size(); }

  enum class Before : bool { nothing, other_bytes };  // in a piece, when it is taken
  enum class Outcome : std::uint8_t { made, no_room, refused };
  Outcome run(Before before);
  void give_back();
  static bool run_here() noexcept;  // a recipe runs on this thread, which holds making_

 private:
  bool take(Made& made, Before before);
  void give_back(Made& made);
  Outcome run(std::size_t number, Before before);

  std::mutex& session_;
  Arena& arena_;
  Scratch& scratch_;
  std::vector<Made> made_;
  std::vector<Run> runs_;
};

}  // namespace vedette::detail
