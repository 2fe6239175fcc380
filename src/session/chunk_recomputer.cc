// Groups of chunks that are dropped and recomputed: see chunk_recomputer.h.
#include "session/chunk_recomputer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>

#include "base/assert.h"
#include "base/quiet_thread.h"

namespace vedette::detail {
namespace {

bool meet(ChunkRange a, ChunkRange b) { return a.first() < b.limit() && b.first() < a.limit(); }

bool has(std::span<const std::uint32_t> list, std::uint32_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

// --- which tensors lie where -----------------------------------------------------------------------------------------

std::optional<std::vector<std::uint32_t>> ChunkRecomputer::tensors_in(ChunkRange chunks) const {
  const std::uint64_t chunk = session_.arena.chunk_bytes(), begin = chunks.first().value * chunk,
                      end = chunks.limit().value * chunk;
  const Arena::Tensors& all = session_.arena.tensors();
  auto at = all.upper_bound(begin);
  if (at != all.begin() && std::prev(at)->first + std::prev(at)->second.bytes.value > begin) --at;
  std::vector<std::uint32_t> found;
  for (; at != all.end() && at->first < end; ++at) {
    const auto logged = session_.logger.logged(at->first);
    if (!logged) return std::nullopt;
    found.push_back(*logged);
  }
  return found;
}

ChunkRange ChunkRecomputer::hull(std::span<const std::uint32_t> tensors) const {
  ChunkRange all = chunks_of(tensors.front());
  for (const std::uint32_t t : tensors) {
    const ChunkRange one = chunks_of(t);
    all = ChunkRange(std::min(all.first(), one.first()), std::max(all.limit(), one.limit()));
  }
  return all;
}

// --- groups ----------------------------------------------------------------------------------------------------------

// Those of one zone take what lies between them, too.
bool ChunkRecomputer::fits_together(const Lineage::Way& way, std::span<const std::uint32_t> together) const {
  std::uint64_t made = together.empty() ? 0 : hull(together).size();
  for (const std::uint32_t t : way.made) made += has(together, t) ? 0 : chunks_of(t).size();
  return fits_beside(way, made);
}

// A group that needs it directly or by way of other groups could never be made: neither first.
bool ChunkRecomputer::needs(const Group& group, ChunkRange chunks, std::set<std::uint32_t>& seen) const {
  for (const std::uint32_t source : group.way.sources) {
    const ChunkRange lies = chunks_of(source);
    if (meet(lies, chunks)) return true;
    for (const auto& [first, other] : groups_)
      if (meet(lies, other.chunks) && seen.insert(first).second && needs(other, chunks, seen)) return true;
  }
  return false;
}

std::optional<ChunkRecomputer::Group> ChunkRecomputer::group_of(ChunkRange chunks) const {
  auto tensors = tensors_in(chunks);
  if (!tensors || tensors->empty()) return std::nullopt;
  auto way = lineage_.way(*tensors);
  if (!way) return std::nullopt;
  Group group{.chunks = chunks, .tensors = std::move(*tensors), .way = std::move(*way)};
  std::set<std::uint32_t> seen;
  if (!fits_together(group.way, group.tensors) || needs(group, chunks, seen)) return std::nullopt;
  return group;
}

bool ChunkRecomputer::can_be_made(ChunkRange chunks) const { return group_of(chunks).has_value(); }

bool ChunkRecomputer::concerns(const Group& group, std::span<const ChunkRange> operands,
                               std::span<const std::uint32_t> writes) const {
  return std::any_of(operands.begin(), operands.end(), [&](ChunkRange c) { return meet(c, group.chunks); }) ||
         std::any_of(writes.begin(), writes.end(), [&](std::uint32_t t) { return has(group.way.sources, t); });
}

bool ChunkRecomputer::in_the_way(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const auto& each) { return concerns(each.second, operands, writes); });
}

bool ChunkRecomputer::let_die(std::uint32_t tensor) {
  lineage_.died(tensor);
  std::vector<std::pair<Group*, Group>> changed;
  for (auto& [first, group] : groups_) {
    if (!has(group.way.sources, tensor) && !has(group.tensors, tensor)) continue;
    Group without = group;
    std::erase(without.tensors, tensor);
    auto way = lineage_.way(without.tensors);
    if (way) without.way = std::move(*way);
    std::set<std::uint32_t> seen;
    if (group.being_made || !way || !fits_together(without.way, without.tensors) ||
        needs(without, group.chunks, seen)) {
      lineage_.lives(tensor);
      return false;
    }
    changed.emplace_back(&group, std::move(without));
  }
  for (auto& [group, without] : changed) *group = std::move(without);
  std::erase_if(groups_, [](const auto& each) { return each.second.tensors.empty(); });
  return true;
}

// --- dropping --------------------------------------------------------------------------------------------------------

void ChunkRecomputer::drop(ChunkRange chunks) {
  const std::lock_guard making(making_);
  {
    const std::lock_guard lock(session_.mutex);
    auto group = group_of(chunks);
    if (!group) return;
    for (const auto& [first, other] : groups_)
      if (meet(other.chunks, chunks)) return;
    groups_.emplace(chunks.first().value, std::move(*group));
  }
  try {
    if (!thread_.joinable()) thread_ = start_quiet_thread([this]() noexcept { serve(); });
  } catch (const std::system_error&) {  // no thread, no drops
    const std::lock_guard lock(session_.mutex);
    groups_.erase(chunks.first().value);
    return;
  }
  if (!session_.executor.drop(chunks).empty()) return;
  const std::lock_guard lock(session_.mutex);
  groups_.erase(chunks.first().value);
}

// --- making ----------------------------------------------------------------------------------------------------------

template <class Condition>
void ChunkRecomputer::make_where(Condition condition) {
  while (true) {
    std::uint32_t first = 0;
    {
      const std::lock_guard lock(session_.mutex);
      const auto found =
          std::find_if(groups_.begin(), groups_.end(), [&](const auto& each) { return condition(each.second); });
      if (found == groups_.end()) return;
      first = found->first;
    }
    make_group(first);
  }
}

void ChunkRecomputer::make(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) {
  const std::lock_guard making(making_);
  make_where([&](const Group& group) { return concerns(group, operands, writes); });
}

void ChunkRecomputer::make_before_death(std::uint32_t tensor) {
  const std::lock_guard making(making_);
  make_where([&](const Group& group) { return has(group.way.sources, tensor) || has(group.tensors, tensor); });
}

void ChunkRecomputer::make_all() {
  const std::lock_guard making(making_);
  make_where([](const Group&) { return true; });
}

void ChunkRecomputer::make_group(std::uint32_t first) {
  while (true) {  // sources of its recipes come first
    std::optional<std::uint32_t> before;
    {
      const std::lock_guard lock(session_.mutex);
      const auto found = groups_.find(first);
      if (found == groups_.end()) return;
      for (const std::uint32_t source : found->second.way.sources)
        for (const auto& [other, group] : groups_)
          if (meet(chunks_of(source), group.chunks)) before = other;
      found->second.being_made = !before;
    }
    if (!before) break;
    make_group(*before);
  }
  const Nanoseconds began = session_.executor.program().now();
  const std::uint64_t stalled = session_.executor.counters().stall_ns;
  Group group;
  {
    const std::lock_guard lock(session_.mutex);
    group = groups_.at(first);
  }
  auto work = prepare(group.way, group.tensors);
  if (!work) die("no room in fast memory to make a dropped tensor again; use a larger budget");
  if (!run(*work)) die("an op that was tried before cannot run again, and the tensor it made was dropped");
  adopt(work->zones.front(), group.chunks);
  give_back(*work);
  const Nanoseconds ended = session_.executor.program().now();
  const auto waited = static_cast<std::int64_t>(session_.executor.counters().stall_ns - stalled);
  const Nanoseconds took{std::max<std::int64_t>(0, (ended - began).value - waited)};
  std::unique_lock lock(session_.mutex);
  groups_.erase(first);
  figures_.bytes_recomputed += group.chunks.size() * session_.arena.chunk_bytes();
  figures_.ops_recomputed += work->runs.size();
  figures_.recompute_ns += static_cast<std::uint64_t>(took.value);
  const RecomputeRecord record{.step = session_.logger.step(),
                               .op = {std::max(session_.logger.next_op(), 1U) - 1},
                               .chunk = group.chunks.first().value,
                               .chunks = static_cast<std::uint32_t>(group.chunks.size()),
                               .ops = static_cast<std::uint32_t>(work->runs.size()),
                               .began = began,
                               .ended = ended};
  lock.unlock();
  if (session_.observer != nullptr) session_.observer->recomputed(record);
}

std::byte* ChunkRecomputer::in_zone(const Zone& zone, std::uint32_t tensor) const {
  const std::uint64_t like = zone.like.first().value * session_.arena.chunk_bytes();
  return session_.arena.base() + zone.offset + (session_.logger.log().tensors[tensor].offset - like);
}

std::optional<ChunkRecomputer::Work> ChunkRecomputer::prepare(const Lineage::Way& way,
                                                              std::span<const std::uint32_t> together) {
  std::vector<ChunkRange> like;
  std::vector<std::uint32_t> alone;
  {
    const std::lock_guard lock(session_.mutex);
    if (!together.empty()) like.push_back(hull(together));
    for (const std::uint32_t t : way.made)
      if (!has(together, t)) alone.push_back(t), like.push_back(chunks_of(t));
  }
  Work work;
  for (const ChunkRange range : like) {
    const auto zone = take_zone(range);
    if (zone) work.zones.push_back(*zone);
    if (zone) continue;
    give_back(work);
    return std::nullopt;
  }
  const std::lock_guard lock(session_.mutex);
  std::vector<std::pair<std::uint32_t, std::byte*>> lies;
  for (const std::uint32_t t : together) lies.emplace_back(t, in_zone(work.zones.front(), t));
  for (std::size_t k = 0; k < alone.size(); ++k)
    lies.emplace_back(alone[k], in_zone(work.zones[k + (together.empty() ? 0 : 1)], alone[k]));
  for (const std::uint32_t op : way.ops) {
    Work::Run run{.recipe = lineage_.recipe(op)};
    for (const auto& [t, now] : lies) {
      const LoggedTensor& logged = session_.logger.log().tensors[t];
      if (lineage_.touches(op, t))
        run.places.push_back({.was = session_.arena.base() + logged.offset, .bytes = logged.bytes, .now = now});
    }
    for (const std::uint32_t t : way.sources)
      if (lineage_.touches(op, t)) run.sources.push_back(chunks_of(t));
    work.runs.push_back(std::move(run));
  }
  return work;
}

std::optional<ChunkRecomputer::Zone> ChunkRecomputer::take_zone(ChunkRange like) {
  const std::uint64_t chunk = session_.arena.chunk_bytes();
  Zone zone{.like = like, .offset = 0, .held = true};
  {
    const std::lock_guard lock(session_.mutex);
    const auto offset = session_.arena.reserve_zone(like.size() * chunk);
    if (!offset) return std::nullopt;
    zone.offset = *offset;
    zone.chunks = session_.arena.chunks_of(*offset, like.size() * chunk);
  }
  for (const ChunkIndex c : zone.chunks) {
    const ChunkRange one = ChunkRange::one(c);
    if (!session_.executor.born(one, {chunk})) {
      zone.chunks = ChunkRange(zone.chunks.first(), c);
      give_back(zone);
      return std::nullopt;
    }
    if (zone.held && session_.executor.hold(one)) continue;
    // More than can be held at once: it may leave until it is needed.
    if (zone.held) session_.executor.release_hold(ChunkRange(zone.chunks.first(), c));
    zone.held = false;
  }
  return zone;
}

void ChunkRecomputer::give_back(const Zone& zone) {
  if (zone.held) session_.executor.release_hold(zone.chunks);
  session_.executor.died(zone.chunks);
  const std::lock_guard lock(session_.mutex);
  session_.arena.release_zone(zone.offset, zone.like.size() * session_.arena.chunk_bytes());
}

void ChunkRecomputer::give_back(const Work& work) {
  for (const Zone& zone : work.zones) give_back(zone);
}

bool ChunkRecomputer::run(const Work& work) {
  return std::all_of(work.runs.begin(), work.runs.end(), [&](const Work::Run& run) {
    std::vector<ChunkRange> held;
    for (const ChunkRange source : run.sources)  // where there is no room, its pages come by faults
      if (session_.executor.hold(source)) held.push_back(source);
    const bool made = run.recipe->run(run.places);
    for (const ChunkRange source : held) session_.executor.release_hold(source);
    return made;
  });
}

void ChunkRecomputer::adopt(const Zone& zone, ChunkRange chunks) {
  for (const ChunkIndex to : chunks) {
    const ChunkIndex from{zone.chunks.first().value + (to.value - zone.like.first().value)};
    if (!zone.held && !session_.executor.hold(ChunkRange::one(from)))
      die("no room in fast memory for a tensor that was recomputed; use a larger budget");
    while (!session_.executor.adopt(from, to)) std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (!zone.held) session_.executor.release_hold(ChunkRange::one(from));
  }
}

// --- a recipe is tried -----------------------------------------------------------------------------------------------

bool ChunkRecomputer::gives(const Lineage::Way& way, std::span<const Result> results) {
  constexpr int other_bytes = 0xa5;  // unwritten bytes show
  const auto work = prepare(way, {});
  if (!work) return false;
  for (const Work::Run& run : work->runs)
    for (const Recipe::Place& place : run.places) std::memset(place.now, other_bytes, place.bytes.value);
  const std::vector<Recipe::Place>& places = work->runs.back().places;
  const bool equal = run(*work) && std::all_of(places.begin(), places.end(), [&](const Recipe::Place& place) {
                       const bool result = std::any_of(results.begin(), results.end(),
                                                       [&](const Result& each) { return each.at == place.was; });
                       return !result || std::memcmp(place.was, place.now, place.bytes.value) == 0;
                     });
  give_back(*work);
  return equal;
}

// --- the thread ------------------------------------------------------------------------------------------------------

void ChunkRecomputer::note(ChunkIndex wanted) noexcept {
  const std::lock_guard lock(notes_);
  wanted_.push_back(wanted);
  noted_.notify_one();
}

// Its tensors have died and others were born there since it was dropped: these need room, and no bytes.
void ChunkRecomputer::give_frame(ChunkIndex chunk) {
  const ChunkRange one = ChunkRange::one(chunk);
  const std::lock_guard making(making_);
  {
    const std::lock_guard lock(session_.mutex);
    for (const auto& [first, group] : groups_)
      if (meet(group.chunks, one)) return;
  }
  if (!session_.executor.is_dropped(chunk)) return;
  const auto zone = take_zone(one);
  if (!zone) die("no room in fast memory for a new tensor; use a larger budget");
  adopt(*zone, one);
  give_back(*zone);
}

void ChunkRecomputer::serve() noexcept {
  std::unique_lock lock(notes_);
  while (true) {
    noted_.wait(lock, [&] { return stop_ || !wanted_.empty(); });
    if (wanted_.empty()) return;
    const ChunkRange wanted = ChunkRange::one(wanted_.front());
    wanted_.pop_front();
    lock.unlock();
    make({&wanted, 1}, {});
    give_frame(wanted.first());
    lock.lock();
  }
}

void ChunkRecomputer::stop() noexcept {
  {
    const std::lock_guard lock(notes_);
    stop_ = true;
    noted_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace vedette::detail
