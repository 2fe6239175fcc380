// Tensors that are dropped, and made again: see recomputer.h.
#include "session/recomputer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/assert.h"

namespace vedette::detail {
namespace {

bool meet(ChunkRange a, ChunkRange b) { return a.first() < b.limit() && b.first() < a.limit(); }

bool has(std::span<const std::uint32_t> list, std::uint32_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

void sort_and_join(std::vector<std::uint32_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

// While it lives, work that the thread queues is no op's compute.
class AsideScope {
 public:
  AsideScope(Scratch& scratch, Scratch::Aside what) : scratch_(scratch) { scratch_.begin_aside(what); }
  ~AsideScope() { scratch_.end_aside(); }
  AsideScope(const AsideScope&) = delete;
  AsideScope& operator=(const AsideScope&) = delete;

 private:
  Scratch& scratch_;
};

}  // namespace

Recomputer::Recomputer(const Parts& parts)
    : session_(parts),
      scratch_(*parts.executor.scratch()),
      awaited_([this](ChunkIndex chunk) { make_awaited(chunk); }) {}

// --- which tensors lie where -----------------------------------------------------------------------------------------

ChunkRange Recomputer::chunks_of(std::uint32_t tensor) const {
  const LoggedTensor& t = session_.logger.log().tensors[tensor];
  return session_.arena.chunks_of(t.offset, t.bytes.value);
}

ChunkRange Recomputer::hull(const Tensors& tensors) const {
  ChunkRange all = chunks_of(tensors.front());
  for (const std::uint32_t t : tensors) {
    const ChunkRange one = chunks_of(t);
    all = ChunkRange(std::min(all.first(), one.first()), std::max(all.limit(), one.limit()));
  }
  return all;
}

std::optional<Recomputer::Tensors> Recomputer::tensors_in(ChunkRange chunks) const {
  const std::uint64_t chunk = session_.arena.chunk_bytes(), begin = chunks.first().value * chunk,
                      end = chunks.limit().value * chunk;
  const Arena::Tensors& all = session_.arena.tensors();
  auto at = all.upper_bound(begin);
  if (at != all.begin() && std::prev(at)->first + std::prev(at)->second.bytes.value > begin) --at;
  Tensors found;
  for (; at != all.end() && at->first < end; ++at) {
    const auto logged = session_.logger.logged(at->first);
    if (!logged) return std::nullopt;
    found.push_back(*logged);
  }
  return found;
}

// --- what is dropped -------------------------------------------------------------------------------------------------

bool Recomputer::fits(const Lineage::Way& way, const Tensors& together) const {
  std::uint64_t made = together.empty() ? 0 : hull(together).size(), largest = 0;
  for (const std::uint32_t t : way.made) made += has(together, t) ? 0 : chunks_of(t).size();
  for (const std::uint32_t op : way.ops) {
    std::uint64_t beside = 0;
    for (const std::uint32_t t : way.sources) beside += lineage_.touches(op, t) ? chunks_of(t).size() : 0;
    for (const std::uint32_t t : lineage_.results(op)) beside += has(way.made, t) ? 0 : chunks_of(t).size();
    largest = std::max(largest, beside);
  }
  return made + largest <= session_.frames / 2;
}

std::ranges::subrange<Recomputer::AllDropped::const_iterator> Recomputer::lying_in(ChunkRange chunks) const {
  auto from = dropped_.upper_bound(chunks.first().value);
  if (from != dropped_.begin() && meet(std::prev(from)->second.chunks, chunks)) --from;
  auto to = from;
  while (to != dropped_.end() && meet(to->second.chunks, chunks)) ++to;
  return {from, to};
}

// A way that needs `chunks` directly or by way of other dropped ones could never be run: neither first.
bool Recomputer::needs(const Lineage::Way& way, ChunkRange chunks, std::set<std::uint32_t>& seen) const {
  for (const std::uint32_t source : way.sources) {
    const ChunkRange lies = chunks_of(source);
    if (meet(lies, chunks)) return true;
    for (const auto& [first, other] : lying_in(lies))
      if (seen.insert(first).second && needs(other.way, chunks, seen)) return true;
  }
  return false;
}

std::optional<Lineage::Way> Recomputer::way_of(const Tensors& tensors, ChunkRange chunks) const {
  auto way = lineage_.way(tensors);
  std::set<std::uint32_t> seen;
  if (!way || !fits(*way, tensors) || needs(*way, chunks, seen)) return std::nullopt;
  return way;
}

std::optional<Recomputer::Dropped> Recomputer::dropped_of(ChunkRange chunks) const {
  auto tensors = tensors_in(chunks);
  if (!tensors || tensors->empty()) return std::nullopt;
  auto way = way_of(*tensors, chunks);
  if (!way) return std::nullopt;
  return Dropped{.chunks = chunks, .tensors = *std::move(tensors), .way = *std::move(way)};
}

void Recomputer::count_sources(const Lineage::Way& way, int change) {
  for (const std::uint32_t source : way.sources) {
    const auto counted = sources_.try_emplace(source, 0).first;
    counted->second += static_cast<std::uint32_t>(change);
    if (counted->second == 0) sources_.erase(counted);
  }
}

void Recomputer::add(Dropped dropped) {
  count_sources(dropped.way, 1);
  dropped_.insert_or_assign(dropped.chunks.first().value, std::move(dropped));
}

void Recomputer::remove(std::uint32_t first) {
  const auto found = dropped_.find(first);
  if (found == dropped_.end()) return;  // its tensors have died meanwhile
  count_sources(found->second.way, -1);
  dropped_.erase(found);
}

bool Recomputer::in_the_way(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) const {
  if (dropped_.empty()) return false;
  return std::any_of(operands.begin(), operands.end(), [&](ChunkRange c) { return !lying_in(c).empty(); }) ||
         std::any_of(writes.begin(), writes.end(), [&](std::uint32_t t) { return sources_.contains(t); });
}

Recomputer::Firsts Recomputer::concerned(std::span<const ChunkRange> operands,
                                         std::span<const std::uint32_t> writes) const {
  Firsts found;
  for (const ChunkRange c : operands)
    for (const auto& [first, dropped] : lying_in(c)) found.push_back(first);
  for (const std::uint32_t t : writes) {
    if (!sources_.contains(t)) continue;
    for (const auto& [first, dropped] : dropped_)
      if (has(dropped.way.sources, t)) found.push_back(first);
  }
  sort_and_join(found);
  return found;
}

// Tensors of which it is a source are made from its own sources from now on, and those dropped with it without it.
bool Recomputer::let_die(std::uint32_t tensor) {
  lineage_.died(tensor);
  if (!sources_.contains(tensor) && lying_in(chunks_of(tensor)).empty()) return true;
  std::vector<Dropped> changed;
  for (const auto& [first, dropped] : dropped_) {
    if (!has(dropped.way.sources, tensor) && !has(dropped.tensors, tensor)) continue;
    Dropped without{.chunks = dropped.chunks, .tensors = dropped.tensors};
    std::erase(without.tensors, tensor);
    auto way = way_of(without.tensors, dropped.chunks);
    if (dropped.being_made || !way) {
      lineage_.lives(tensor);
      return false;
    }
    without.way = *std::move(way);
    changed.push_back(std::move(without));
  }
  for (Dropped& without : changed) {
    remove(without.chunks.first().value);
    if (!without.tensors.empty()) add(std::move(without));
  }
  return true;
}

// Where tensors share chunks the lock is held for the choice and the drop: a birth between them would be dropped, too.
void Recomputer::drop(ChunkRange chunks) {
  const std::lock_guard making(making_);
  if (!scratch_.queues_recipes() && !awaited_.start()) return;
  std::unique_lock lock(session_.mutex);
  auto dropped = lying_in(chunks).empty() ? dropped_of(chunks) : std::nullopt;
  if (!dropped) return;
  add(*std::move(dropped));
  if (scratch_.queues_recipes()) lock.unlock();
  if (scratch_.drop(chunks)) return;
  if (!lock.owns_lock()) lock.lock();
  remove(chunks.first().value);
}

// --- making ----------------------------------------------------------------------------------------------------------

template <class Wanted>
void Recomputer::make_while(Wanted wanted) {
  while (true) {
    Firsts firsts;
    {
      const std::lock_guard lock(session_.mutex);
      firsts = wanted();
    }
    if (firsts.empty()) return;
    const AsideScope aside(scratch_, Scratch::Aside::recomputation);
    if (scratch_.queues_recipes() && make_together(firsts)) continue;
    for (const std::uint32_t first : firsts) make_one(first);
  }
}

void Recomputer::make(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) {
  const std::lock_guard making(making_);
  make_while([&] { return concerned(operands, writes); });
}

void Recomputer::make_before_death(std::uint32_t tensor) {
  const std::lock_guard making(making_);
  make_while([&] {
    Firsts found;
    for (const auto& [first, dropped] : dropped_)
      if (has(dropped.way.sources, tensor) || has(dropped.tensors, tensor)) found.push_back(first);
    return found;
  });
}

void Recomputer::make_all() {
  const std::lock_guard making(making_);
  make_while([&] {
    const auto all = std::views::keys(dropped_);
    return Firsts(all.begin(), all.end());
  });
}

// They, and their dropped sources, and those of these in turn.
Recomputer::Firsts Recomputer::with_dropped_sources(Firsts wanted) const {
  for (std::size_t i = 0; i < wanted.size(); ++i)
    for (const std::uint32_t source : dropped_.at(wanted[i]).way.sources)
      for (const auto& [first, other] : lying_in(chunks_of(source)))
        if (!has(wanted, first)) wanted.push_back(first);
  sort_and_join(wanted);
  return wanted;
}

bool Recomputer::make_together(const Firsts& asked) {
  Firsts wanted;
  std::optional<Lineage::Way> way;
  {
    const std::lock_guard lock(session_.mutex);
    wanted = with_dropped_sources(asked);
    Tensors tensors;
    for (const std::uint32_t first : wanted)
      tensors.insert(tensors.end(), dropped_.at(first).tensors.begin(), dropped_.at(first).tensors.end());
    way = lineage_.way(tensors);
    if (!way || !fits(*way)) return false;
    for (const std::uint32_t source : way->sources)
      if (!lying_in(chunks_of(source)).empty()) return false;
    for (const std::uint32_t first : wanted) dropped_.at(first).being_made = true;
  }
  return run_and_adopt(*way, wanted) == RecipeRuns::Outcome::made;
}

// The sources of its recipes come first.
void Recomputer::make_one(std::uint32_t first) {
  while (true) {
    std::optional<std::uint32_t> before;
    Lineage::Way way;
    {
      const std::lock_guard lock(session_.mutex);
      const auto found = dropped_.find(first);
      if (found == dropped_.end()) return;
      way = found->second.way;
      for (const std::uint32_t source : way.sources)
        for (const auto& [other, dropped] : lying_in(chunks_of(source))) before = other;
      found->second.being_made = !before;
    }
    if (before) {
      make_one(*before);
      continue;
    }
    const RecipeRuns::Outcome outcome = run_and_adopt(way, {first});
    if (outcome == RecipeRuns::Outcome::made) return;
    die(outcome == RecipeRuns::Outcome::no_room
            ? "no room in fast memory to make a dropped tensor again; use a larger budget"
            : "an op that was tried before cannot run again, and the tensor it made was dropped");
  }
}

RecipeRuns::Made Recomputer::piece_for(const Tensors& tensors) const {
  std::uint64_t begin = ~std::uint64_t{0}, end = 0;
  for (const std::uint32_t t : tensors) {
    const LoggedTensor& logged = session_.logger.log().tensors[t];
    begin = std::min(begin, logged.offset);
    end = std::max(end, logged.offset + logged.bytes.value);
  }
  const Scratch::Piece piece{.like = hull(tensors), .bytes = {end - begin}, .was = session_.arena.base() + begin};
  return {.piece = piece, .tensors = tensors};
}

// A piece for what is dropped together, and one for each other tensor.
void Recomputer::prepare(RecipeRuns& work, const Lineage::Way& way, const Firsts& wanted) const {
  std::vector<RecipeRuns::Made> made;
  for (const std::uint32_t first : wanted) {
    const Dropped& dropped = dropped_.at(first);
    made.push_back(piece_for(dropped.tensors));
    made.back().wanted = dropped.chunks;
    made.back().stays = true;
  }
  for (const std::uint32_t t : way.made) {
    const auto has_it = [&](const RecipeRuns::Made& each) { return has(each.tensors, t); };
    if (std::none_of(made.begin(), made.end(), has_it)) made.push_back(piece_for({t}));
  }
  std::sort(made.begin(), made.end(),
            [](const auto& a, const auto& b) { return a.tensors.front() < b.tensors.front(); });
  work.make(std::move(made));
  for (const std::uint32_t op : way.ops) {
    RecipeRuns::Run run{.recipe = lineage_.recipe(op)};
    for (std::size_t k = 0; k < work.made().size(); ++k) {
      for (const std::uint32_t t : work.made()[k].tensors) {
        const LoggedTensor& logged = session_.logger.log().tensors[t];
        if (lineage_.touches(op, t))
          run.operands.push_back({.made = k, .was = session_.arena.base() + logged.offset, .bytes = logged.bytes});
      }
      if (!run.operands.empty() && run.operands.back().made == k) run.made.push_back(k);
    }
    for (const std::uint32_t t : way.sources)
      if (lineage_.touches(op, t)) run.sources.push_back(chunks_of(t));
    work.add(std::move(run));
  }
}

RecipeRuns::Outcome Recomputer::run_and_adopt(const Lineage::Way& way, const Firsts& wanted) {
  const Nanoseconds began = session_.executor.program().now();
  const std::uint64_t stalled = session_.executor.counters().stall_ns;
  RecipeRuns work = recipe_runs();
  {
    const std::lock_guard lock(session_.mutex);
    prepare(work, way, wanted);
  }
  const RecipeRuns::Outcome outcome = work.run(RecipeRuns::Before::nothing);
  const bool made = outcome == RecipeRuns::Outcome::made;
  for (const RecipeRuns::Made& each : work.made())
    if (made && each.wanted) scratch_.adopt_piece(each.piece, *each.wanted);
  work.give_back();
  {
    const std::lock_guard lock(session_.mutex);
    for (const std::uint32_t first : wanted) {
      dropped_.at(first).being_made = false;
      if (made) remove(first);
    }
  }
  if (made) report(work, began, stalled);
  return outcome;
}

// A record for what was dropped together; the first one has the ops.
void Recomputer::report(RecipeRuns& work, Nanoseconds began, std::uint64_t stalled) {
  const Nanoseconds ended = session_.executor.program().now();
  const auto waited = static_cast<std::int64_t>(session_.executor.counters().stall_ns - stalled);
  const bool whole_tensors = session_.executor.traits().whole_tensors;
  std::vector<RecomputeRecord> records;
  {
    const std::lock_guard lock(session_.mutex);
    figures_.ops_recomputed += work.size();
    figures_.recompute_ns += static_cast<std::uint64_t>(std::max<std::int64_t>(0, (ended - began).value - waited));
    for (const RecipeRuns::Made& each : work.made()) {
      if (!each.wanted) continue;
      figures_.bytes_recomputed +=
          whole_tensors ? each.piece.bytes.value : each.wanted->size() * session_.arena.chunk_bytes();
      records.push_back({.step = session_.logger.step(),
                         .op = {std::max(session_.logger.next_op(), 1U) - 1},
                         .chunk = each.wanted->first().value,
                         .chunks = each.wanted->size(),
                         .ops = records.empty() ? static_cast<std::uint32_t>(work.size()) : 0,
                         .began = began,
                         .ended = ended});
    }
  }
  if (session_.observer == nullptr) return;
  for (const RecomputeRecord& record : records) session_.observer->recomputed(record);
}

// Where its tensors have died and others were born there since it was dropped, these need room, and no bytes.
void Recomputer::make_awaited(ChunkIndex chunk) {
  const ChunkRange one = ChunkRange::one(chunk);
  make({&one, 1}, {});
  const std::lock_guard making(making_);
  {
    const std::lock_guard lock(session_.mutex);
    if (!lying_in(one).empty()) return;
  }
  if (!scratch_.is_dropped(chunk)) return;
  const std::uint64_t bytes = session_.arena.chunk_bytes();
  const Scratch::Piece piece{.like = one, .bytes = {bytes}, .was = session_.arena.base() + chunk.value * bytes};
  RecipeRuns room = recipe_runs();
  room.make({{.piece = piece}});
  if (room.run(RecipeRuns::Before::nothing) != RecipeRuns::Outcome::made)
    die("no room in fast memory for a new tensor; use a larger budget");
  scratch_.adopt_piece(room.made().front().piece, one);
}

// --- a recipe is tried -----------------------------------------------------------------------------------------------

bool Recomputer::try_again(std::uint32_t op, bool trust) {
  const std::lock_guard making(making_);
  Tensors results;
  std::optional<Lineage::Way> way;
  std::uint64_t signature = 0;
  {
    const std::lock_guard lock(session_.mutex);
    const Recipe* const recipe = lineage_.recipe(op);
    if (recipe == nullptr) return false;
    for (const std::uint32_t t : lineage_.results(op)) {
      const LoggedTensor& logged = session_.logger.log().tensors[t];
      if (session_.logger.logged(logged.offset) == t && !logged.small) results.push_back(t);
    }
    if (!results.empty()) way = lineage_.way(results);
    if (way && !fits(*way)) way.reset();
    signature = recipe->signature();
  }
  const auto known = trust ? tried_.find(signature) : tried_.end();
  const bool right = way && (known != tried_.end() ? known->second : gives(*way, results));
  if (way && known == tried_.end() && tried_.size() >= most_tried) tried_.clear();
  if (way) tried_[signature] = right;
  if (right) return true;
  const std::lock_guard lock(session_.mutex);
  lineage_.drop_recipe(op);
  return false;
}

bool Recomputer::gives(const Lineage::Way& way, const Tensors& results) {
  const AsideScope aside(scratch_, Scratch::Aside::trial);
  RecipeRuns work = recipe_runs();
  {
    const std::lock_guard lock(session_.mutex);
    prepare(work, way, {});
  }
  for (RecipeRuns::Made& each : work.made()) each.stays = has(results, each.tensors.front());
  if (work.run(RecipeRuns::Before::other_bytes) != RecipeRuns::Outcome::made) return false;
  const auto made = work.made();
  return std::all_of(made.begin(), made.end(),
                     [&](const RecipeRuns::Made& each) { return !each.stays || scratch_.same_bytes(each.piece); });
}

}  // namespace vedette::detail
