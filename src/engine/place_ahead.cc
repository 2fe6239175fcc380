// Ops without a plan, as an earlier step lets expect them: which block leaves for room, and which come ahead of their
// ops: see place_executor.h.
#include <algorithm>
#include <utility>

#include "engine/place_executor.h"

namespace vedette {

using moves::NextUses;

void PlaceExecutor::forget_fetches() {
  for (const Expected::Fetch& each : ahead_.fetches)
    if (const auto& slot = blocks_[each.block.value].slot) host_.forget_wish(*slot);
  ahead_.fetches.clear();
}

void PlaceExecutor::expect(const Expected& expected) {
  const std::lock_guard lock(guard_);
  ahead_.known = true;
  ahead_.makes_room = expected.makes_room;
  ahead_.until = expected.until;
  ahead_.births = expected.births;
  ahead_.schedule = expected.schedule;
  ahead_.uses.begin_op(expected.calendar);
  if (expected.anew) forget_fetches();
  for (const NextUses::Use& use : expected.uses) ahead_.uses.expect(use);
  for (const Expected::Fetch& fetch : expected.fetches)
    if (!arena_.in_place(fetch.block)) ahead_.fetches.push_back(fetch);
}

void PlaceExecutor::expect_nothing() {
  const std::lock_guard lock(guard_);
  ahead_.known = false;
  forget_fetches();
}

// It was told of before it left: it comes again.
void PlaceExecutor::leaves_too_soon(BlockIndex index) {
  if (ahead_.known && ahead_.uses.until(index) < ahead_.until)
    ahead_.fetches.push_back({.block = index, .unchanged = blocks_[index.value].unchanged});
}

// The block whose room is free longest leaves first.
std::uint64_t PlaceExecutor::rank(BlockIndex index) const {
  return ~ahead_.uses.room(index, blocks_[index.value].unchanged);
}

// For `bytes` in one piece.
std::optional<std::vector<PlaceExecutor::BlockIndex>> PlaceExecutor::victims(Bytes bytes) const {
  if (!ahead_.known) return arena_.victims(bytes);
  return arena_.victims(bytes, [this](BlockIndex index) { return rank(index); });
}

// With what leaves for it, where both share a bus.
double PlaceExecutor::ns_of_fetch(Bytes bytes) const {
  const LinkSpeed& link = options_.link;
  const double ns_a_byte = 1 / double(link.read_alone()) + (link.one_bus() ? 1 / double(link.write_alone()) : 0);
  return double(bytes.value) * 1e9 * ns_a_byte;
}

bool PlaceExecutor::has_room_for(Bytes all, Bytes in_one_piece) const {
  return arena_.bytes().value - arena_.in_use().value >= rounded(all) && arena_.hole(in_one_piece);
}

// Of blocks that are known, and not used before tick `unused_until`. False: there is no such room.
Result<bool> PlaceExecutor::make_room_ahead(Bytes bytes, std::uint64_t unused_until) {
  const auto leaving = arena_.victims(bytes, [&](BlockIndex index) -> std::optional<std::uint64_t> {
    if (ahead_.uses.is_newborn(index) || ahead_.uses.until(index) < unused_until) return std::nullopt;
    return rank(index);
  });
  Result<void> left;
  if (!leaving || !clear(*leaving, MoveCause::planned, left)) return false;
  if (!left) return left.error();
  return true;
}

// A block that comes earlier than it must takes its room from one that is used sooner, which then moves, too. So a
// fetch is due where its copy and those before it take the time until its op, or where a later one is. Where the times
// of ops are not known, each fetch is due.
std::uint64_t PlaceExecutor::due() const {
  if (!ahead_.schedule.is_known() || options_.link.read == 0) return NextUses::never;
  double moving = 0;
  const std::uint64_t now = ahead_.uses.now();
  std::uint64_t due = now + 2;  // of the next op: always
  for (const Expected::Fetch& each : ahead_.fetches) {
    const std::uint64_t use = ahead_.uses.of(each.block);
    moving += ns_of_fetch(blocks_[each.block.value].bytes);
    if (moving >= ahead_.schedule.ns_until(use - now)) due = std::max(due, use + 1);
  }
  return due;
}

// Until this tick the link has more to fetch than it can. A block that is used before then and leaves for another one's
// fetch has to be fetched, too: that gains nothing. It is counted once an op, or where there are many blocks once in
// some ops.
std::uint64_t PlaceExecutor::busy_until() {
  constexpr std::uint64_t blocks_an_op = 256;
  const std::uint64_t now = ahead_.uses.now();
  if (now - ahead_.counted <= blocks_.size() / blocks_an_op && now >= ahead_.counted) return ahead_.busy;
  ahead_.counted = now;
  ahead_.busy = 0;
  if (!ahead_.schedule.is_known() || options_.link.read == 0) return 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> away;  // next use, bytes
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (!block.alive || block.dropped || arena_.in_place({i}) || !ahead_.uses.is_told({i})) continue;
    away.emplace_back(ahead_.uses.of({i}), block.bytes.value);
  }
  std::sort(away.begin(), away.end());
  double moving = 0;
  for (const auto& [use, bytes] : away) {
    if (!ahead_.schedule.has(use - now)) break;
    moving += ns_of_fetch({bytes});
    if (moving >= ahead_.schedule.ns_until(use - now)) ahead_.busy = use + 1;
  }
  return ahead_.busy;
}

// False: not yet, and nothing that is used later comes before it.
Result<bool> PlaceExecutor::comes_ahead(const Expected::Fetch& next) {
  const HostSlot slot = *blocks_[next.block.value].slot;
  const Bytes bytes = blocks_[next.block.value].bytes;
  host_.bring(slot);
  if (!host_.is_near(slot)) return true;  // it is read from the disk
  while (!has_room_for(bytes + ahead_.births, bytes)) {
    if (!ahead_.makes_room) return false;
    const std::uint64_t stays = std::max({ahead_.until, busy_until(), ahead_.uses.of(next.block) + 1});
    const auto made = make_room_ahead(bytes, stays);
    if (!made || !*made) return made;
  }
  static_cast<void>(take_coming(next.block));  // a plan that was left had it read, too
  const Coming now{.block = next.block, .place = {}, .unchanged = next.unchanged};
  if (auto fetched = fetch(now, MoveCause::planned); !fetched) return fetched.error();
  return true;
}

bool PlaceExecutor::has_come(const Expected::Fetch& fetch) const {
  const Block& block = blocks_[fetch.block.value];
  return !block.alive || block.dropped || !block.slot || arena_.in_place(fetch.block);
}

Result<void> PlaceExecutor::look_ahead() {
  const std::lock_guard lock(guard_);
  while (ahead_.births.value > 0 && !has_room_for(ahead_.births, ahead_.births)) {
    const auto made = make_room_ahead(ahead_.births, ahead_.until);
    if (!made) return made.error();
    if (!*made) break;
  }
  std::vector<Expected::Fetch>& fetches = ahead_.fetches;
  std::erase_if(fetches, [&](const Expected::Fetch& each) { return has_come(each); });
  if (fetches.empty()) return {};
  std::stable_sort(fetches.begin(), fetches.end(), [&](const Expected::Fetch& a, const Expected::Fetch& b) {
    return ahead_.uses.of(a.block) < ahead_.uses.of(b.block);
  });
  const std::uint64_t until = due();
  for (std::size_t i = 0; i < fetches.size() && ahead_.uses.of(fetches[i].block) < until; ++i) {
    const Expected::Fetch next = fetches[i];
    if (has_come(next)) continue;  // it was told of twice
    const auto comes = comes_ahead(next);
    if (!comes) return comes.error();
    if (!*comes) break;
  }
  return {};
}

}  // namespace vedette
