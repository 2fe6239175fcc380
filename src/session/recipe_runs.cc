// Pieces are taken, and recipes fill them: see recipe_runs.h.
#include "session/recipe_runs.h"

#include <utility>

namespace vedette::detail {
namespace {
thread_local int running_here = 0;  // recipes
}

void RecipeRuns::add(Run run) {
  for (const std::size_t k : run.made) made_[k].last = runs_.size();
  runs_.push_back(std::move(run));
}

bool RecipeRuns::take(Made& made, Before before) {
  if (made.taken) return true;
  Scratch::Piece& piece = made.piece;
  const std::uint64_t chunk = arena_.chunk_bytes(), whole = piece.like.size() * chunk;
  std::optional<std::uint64_t> offset;
  {
    const std::lock_guard lock(session_);
    offset = arena_.reserve_zone(whole);
    if (!offset) return false;
  }
  piece.chunks = arena_.chunks_of(*offset, whole);
  piece.now = arena_.base() + *offset + (arena_.offset_of(piece.was) - piece.like.first().value * chunk);
  made.taken = scratch_.take_piece(piece);
  if (made.taken) return before == Before::nothing || scratch_.spoil(piece);
  const std::lock_guard lock(session_);
  arena_.release_zone(*offset, whole);
  return false;
}

void RecipeRuns::give_back(Made& made) {
  if (!std::exchange(made.taken, false)) return;
  scratch_.give_back_piece(made.piece);
  const std::uint64_t chunk = arena_.chunk_bytes();
  const std::lock_guard lock(session_);
  arena_.release_zone(made.piece.chunks.first().value * chunk, made.piece.like.size() * chunk);
}

void RecipeRuns::give_back() {
  for (Made& each : made_) give_back(each);
}

RecipeRuns::Outcome RecipeRuns::run(std::size_t number, Before before) {
  const Run& run = runs_[number];
  std::vector<ChunkRange> pieces;
  for (const std::size_t k : run.made) {
    if (!take(made_[k], before)) return Outcome::no_room;
    pieces.push_back(made_[k].piece.chunks);
  }
  std::vector<Recipe::Place> places;
  for (const Operand& each : run.operands) {
    const Scratch::Piece& piece = made_[each.made].piece;
    places.push_back({.was = each.was, .bytes = each.bytes, .now = piece.now + (each.was - piece.was)});
  }
  if (!scratch_.begin_recipe(run.sources, pieces)) return Outcome::no_room;
  ++running_here;
  const bool made = run.recipe->run(places);
  --running_here;
  scratch_.end_recipe(run.sources, pieces);
  for (const std::size_t k : run.made)
    if (scratch_.queues_recipes() && !made_[k].stays && made_[k].last == number) give_back(made_[k]);
  return made ? Outcome::made : Outcome::refused;
}

bool RecipeRuns::run_here() noexcept { return running_here > 0; }

RecipeRuns::Outcome RecipeRuns::run(Before before) {
  Outcome outcome = Outcome::made;
  for (Made& each : made_)
    if (!scratch_.queues_recipes() && outcome == Outcome::made && !take(each, before)) outcome = Outcome::no_room;
  for (std::size_t number = 0; outcome == Outcome::made && number < runs_.size(); ++number)
    outcome = run(number, before);
  if (outcome != Outcome::made) give_back();
  return outcome;
}

}  // namespace vedette::detail
