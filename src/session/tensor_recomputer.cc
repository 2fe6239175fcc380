// Tensors that are dropped and recomputed: see tensor_recomputer.h.
#include "session/tensor_recomputer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/assert.h"

namespace vedette::detail {
namespace {

bool has(const std::vector<std::uint32_t>& list, std::uint32_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// While it lives, work that the thread queues is no op's compute.
class AsideScope {
 public:
  AsideScope(TensorDrops& drops, TensorDrops::Aside what) : drops_(drops) { drops_.begin_aside(what); }
  ~AsideScope() { drops_.end_aside(); }
  AsideScope(const AsideScope&) = delete;
  AsideScope& operator=(const AsideScope&) = delete;

 private:
  TensorDrops& drops_;
};

}  // namespace

// --- what is dropped -------------------------------------------------------------------------------------------------

// A tensor that needs it directly or by way of other dropped ones could never be made: neither first.
bool TensorRecomputer::needs(const Lineage::Way& way, std::uint32_t tensor, std::set<std::uint32_t>& seen) const {
  return std::any_of(way.sources.begin(), way.sources.end(), [&](std::uint32_t source) {
    if (source == tensor) return true;
    const auto other = dropped_.find(source);
    return other != dropped_.end() && seen.insert(source).second && needs(other->second.way, tensor, seen);
  });
}

std::optional<TensorRecomputer::Dropped> TensorRecomputer::dropped_of(ChunkRange chunks) const {
  const auto tensor = session_.logger.logged(chunks.first().value * session_.arena.chunk_bytes());
  if (!tensor) return std::nullopt;
  auto way = lineage_.way({&*tensor, 1});
  if (!way || !fits(*way)) return std::nullopt;
  std::set<std::uint32_t> seen;
  if (needs(*way, *tensor, seen)) return std::nullopt;
  return Dropped{.tensor = *tensor, .way = *std::move(way)};
}

void TensorRecomputer::count_sources(const Lineage::Way& way, int change) {
  for (const std::uint32_t source : way.sources) {
    const auto counted = sources_.try_emplace(source, 0).first;
    counted->second += static_cast<std::uint32_t>(change);
    if (counted->second == 0) sources_.erase(counted);
  }
}

void TensorRecomputer::add(Dropped dropped) {
  count_sources(dropped.way, 1);
  at_chunk_[chunks_of(dropped.tensor).first().value] = dropped.tensor;
  const std::uint32_t tensor = dropped.tensor;
  dropped_.insert_or_assign(tensor, std::move(dropped));
}

void TensorRecomputer::remove(std::uint32_t tensor) {
  const auto found = dropped_.find(tensor);
  count_sources(found->second.way, -1);
  at_chunk_.erase(chunks_of(tensor).first().value);
  dropped_.erase(found);
}

bool TensorRecomputer::in_the_way(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) const {
  if (dropped_.empty()) return false;
  return std::any_of(operands.begin(), operands.end(),
                     [&](ChunkRange c) { return at_chunk_.contains(c.first().value); }) ||
         std::any_of(writes.begin(), writes.end(), [&](std::uint32_t t) { return sources_.contains(t); });
}

// Tensors of which it is a source are made from its own sources.
bool TensorRecomputer::let_die(std::uint32_t tensor) {
  lineage_.died(tensor);
  const auto itself = dropped_.find(tensor);
  const auto stays = [&] {
    lineage_.lives(tensor);
    return false;
  };
  if (itself != dropped_.end() && itself->second.being_made) return stays();
  std::vector<Dropped> changed;
  if (sources_.contains(tensor)) {
    for (const auto& [number, dropped] : dropped_) {
      if (number == tensor || !has(dropped.way.sources, tensor)) continue;
      auto way = lineage_.way({&number, 1});
      std::set<std::uint32_t> seen;
      if (dropped.being_made || !way || !fits(*way) || needs(*way, number, seen)) return stays();
      changed.push_back({.tensor = number, .way = *std::move(way)});
    }
  }
  for (Dropped& each : changed) {
    count_sources(dropped_.at(each.tensor).way, -1);
    add(std::move(each));
  }
  if (itself != dropped_.end()) remove(tensor);
  return true;
}

void TensorRecomputer::drop(ChunkRange chunks) {
  const std::lock_guard making(making_);
  std::optional<Dropped> dropped;
  {
    const std::lock_guard lock(session_.mutex);
    if (at_chunk_.contains(chunks.first().value)) return;
    dropped = dropped_of(chunks);
    if (!dropped) return;
    add(*dropped);
  }
  if (drops_.drop_tensor(chunks)) return;
  const std::lock_guard lock(session_.mutex);
  remove(dropped->tensor);
}

// --- making ----------------------------------------------------------------------------------------------------------

void TensorRecomputer::make(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) {
  const std::lock_guard making(making_);
  Tensors wanted;
  {
    const std::lock_guard lock(session_.mutex);
    for (const ChunkRange c : operands)
      if (const auto found = at_chunk_.find(c.first().value); found != at_chunk_.end()) wanted.push_back(found->second);
    for (const std::uint32_t t : writes) {
      if (!sources_.contains(t)) continue;
      for (const auto& [number, dropped] : dropped_)
        if (has(dropped.way.sources, t)) wanted.push_back(number);
    }
  }
  make_those(wanted);
}

void TensorRecomputer::make_before_death(std::uint32_t tensor) {
  const std::lock_guard making(making_);
  Tensors wanted;
  {
    const std::lock_guard lock(session_.mutex);
    for (const auto& [number, dropped] : dropped_)
      if (number != tensor && has(dropped.way.sources, tensor)) wanted.push_back(number);
  }
  make_those(wanted);
}

void TensorRecomputer::make_all() {
  const std::lock_guard making(making_);
  Tensors wanted;
  {
    const std::lock_guard lock(session_.mutex);
    for (const auto& [number, dropped] : dropped_) wanted.push_back(number);
  }
  make_those(wanted);
}

void TensorRecomputer::make_those(const Tensors& wanted) {
  if (wanted.empty()) return;
  const AsideScope aside(drops_, TensorDrops::Aside::recomputation);
  if (make_together(wanted)) return;
  for (const std::uint32_t tensor : wanted) make_one(tensor);
}

// They, and their dropped sources, and those of these in turn.
TensorRecomputer::Tensors TensorRecomputer::with_dropped_sources(Tensors wanted) const {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto found = dropped_.find(wanted[i]);
    if (found == dropped_.end()) continue;
    for (const std::uint32_t source : found->second.way.sources)
      if (dropped_.contains(source) && !has(wanted, source)) wanted.push_back(source);
  }
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  return wanted;
}

bool TensorRecomputer::make_together(const Tensors& asked) {
  Tensors wanted;
  std::optional<Lineage::Way> way;
  {
    const std::lock_guard lock(session_.mutex);
    wanted = with_dropped_sources(asked);
    way = lineage_.way(wanted);
    if (!way || !fits(*way)) return false;
    const auto is_dropped = [&](std::uint32_t source) { return dropped_.contains(source); };
    if (std::any_of(way->sources.begin(), way->sources.end(), is_dropped)) return false;
  }
  return run_and_adopt(*way, wanted);
}

// The sources of its recipes come first.
void TensorRecomputer::make_one(std::uint32_t tensor) {
  while (true) {
    std::optional<std::uint32_t> before;
    Lineage::Way way;
    {
      const std::lock_guard lock(session_.mutex);
      const auto found = dropped_.find(tensor);
      if (found == dropped_.end()) return;
      way = found->second.way;
      for (const std::uint32_t source : way.sources)
        if (dropped_.contains(source)) before = source;
    }
    if (before) {
      make_one(*before);
      continue;
    }
    if (!run_and_adopt(way, {tensor}))
      die("no room in fast memory to make a dropped tensor again, or the op that made it cannot run again; use a "
          "larger "
          "budget");
    return;
  }
}

TensorRecomputer::Work TensorRecomputer::prepare(const Lineage::Way& way, const Tensors& wanted) const {
  Work work;
  for (const std::uint32_t t : way.made) {
    const LoggedTensor& logged = session_.logger.log().tensors[t];
    Scratch scratch;
    scratch.tensor = t;
    scratch.like = chunks_of(t);
    scratch.bytes = logged.bytes;
    scratch.was = session_.arena.base() + logged.offset;
    scratch.wanted = has(wanted, t);
    work.made.push_back(scratch);
  }
  for (const std::uint32_t op : way.ops) {
    Work::Run run{.recipe = lineage_.recipe(op)};
    for (std::size_t k = 0; k < work.made.size(); ++k)
      if (lineage_.touches(op, work.made[k].tensor)) run.scratch.push_back(k);
    for (const std::uint32_t t : way.sources)
      if (lineage_.touches(op, t)) run.sources.push_back(chunks_of(t));
    for (const std::size_t k : run.scratch) work.made[k].last = work.runs.size();
    work.runs.push_back(std::move(run));
  }
  return work;
}

bool TensorRecomputer::take(Scratch& scratch) {
  const std::uint64_t whole = scratch.like.size() * session_.arena.chunk_bytes();
  {
    const std::lock_guard lock(session_.mutex);
    const auto offset = session_.arena.reserve_zone(whole);
    if (!offset) return false;
    scratch.offset = *offset;
    scratch.chunks = session_.arena.chunks_of(*offset, whole);
    scratch.now = session_.arena.base() + *offset;
  }
  if (drops_.born_like(scratch.chunks, scratch.bytes, scratch.like)) return scratch.taken = true;
  const std::lock_guard lock(session_.mutex);
  session_.arena.release_zone(scratch.offset, whole);
  return false;
}

void TensorRecomputer::give_back(Scratch& scratch) {
  if (!std::exchange(scratch.taken, false)) return;
  session_.executor.died(scratch.chunks);
  const std::lock_guard lock(session_.mutex);
  session_.arena.release_zone(scratch.offset, scratch.like.size() * session_.arena.chunk_bytes());
}

bool TensorRecomputer::run_one(Work& work, std::size_t number, Results results) {
  const Work::Run& run = work.runs[number];
  std::vector<ChunkRange> operands = run.sources;
  std::vector<Recipe::Place> places;
  for (const std::size_t k : run.scratch) {
    Scratch& scratch = work.made[k];
    if (!scratch.taken) {
      if (!take(scratch)) return false;
      if (results == Results::compared && !drops_.spoil(scratch.chunks, scratch.bytes)) return false;
    }
    operands.push_back(scratch.chunks);
    places.push_back({.was = scratch.was, .bytes = scratch.bytes, .now = scratch.now});
  }
  if (!drops_.begin_again(operands)) return false;
  const bool made = run.recipe->run(places);
  drops_.end_again(operands);
  for (const std::size_t k : run.scratch)
    if (!work.made[k].wanted && work.made[k].last == number) give_back(work.made[k]);
  return made;
}

// False: nothing of it is left.
bool TensorRecomputer::run(Work& work, Results results) {
  for (std::size_t number = 0; number < work.runs.size(); ++number) {
    if (run_one(work, number, results)) continue;
    for (Scratch& scratch : work.made) give_back(scratch);
    return false;
  }
  return true;
}

bool TensorRecomputer::run_and_adopt(const Lineage::Way& way, const Tensors& wanted) {
  const Nanoseconds began = session_.executor.program().now();
  Work work;
  {
    const std::lock_guard lock(session_.mutex);
    work = prepare(way, wanted);
    for (const std::uint32_t t : wanted) dropped_.at(t).being_made = true;
  }
  const bool made = run(work, Results::adopted);
  if (made) {
    for (Scratch& scratch : work.made) {
      if (scratch.wanted) drops_.adopt_tensor(scratch.chunks, scratch.like);
      give_back(scratch);
    }
  }
  {
    const std::lock_guard lock(session_.mutex);
    for (const std::uint32_t t : wanted) {
      dropped_.at(t).being_made = false;
      if (made) remove(t);
    }
  }
  if (made) report(work, began);
  return made;
}

// A record for each tensor; the first one has the ops.
void TensorRecomputer::report(const Work& work, Nanoseconds began) {
  std::vector<RecomputeRecord> records;
  {
    const std::lock_guard lock(session_.mutex);
    figures_.ops_recomputed += work.runs.size();
    for (const Scratch& scratch : work.made) {
      if (!scratch.wanted) continue;
      figures_.bytes_recomputed += scratch.bytes.value;
      records.push_back({.step = session_.logger.step(),
                         .op = {std::max(session_.logger.next_op(), 1U) - 1},
                         .chunk = scratch.like.first().value,
                         .chunks = static_cast<std::uint32_t>(scratch.like.size()),
                         .ops = records.empty() ? static_cast<std::uint32_t>(work.runs.size()) : 0,
                         .began = began,
                         .ended = session_.executor.program().now()});
    }
  }
  if (session_.observer == nullptr) return;
  for (const RecomputeRecord& record : records) session_.observer->recomputed(record);
}

bool TensorRecomputer::gives(const Lineage::Way& way, std::span<const Result> results) {
  const AsideScope aside(drops_, TensorDrops::Aside::trial);
  Work work;
  {
    const std::lock_guard lock(session_.mutex);
    Tensors wanted;
    for (const Result& each : results) wanted.push_back(each.tensor);
    work = prepare(way, wanted);
  }
  if (!run(work, Results::compared)) return false;
  bool same = true;
  for (Scratch& scratch : work.made) {
    if (same && scratch.wanted) {
      const auto compared = drops_.same_bytes(scratch.chunks, scratch.like, scratch.bytes);
      same = compared && *compared;
    }
    give_back(scratch);
  }
  return same;
}

}  // namespace vedette::detail
