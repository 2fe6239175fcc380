// Ops without a plan: predictions say which block leaves for room, and which blocks are fetched ahead of their ops: see
// place_executor.h.
#include <algorithm>
#include <utility>

#include "gpu/place_executor.h"

namespace vedette {

namespace {

const auto block_of = [](const auto& fetch) { return fetch.block; };

}  // namespace

void PlaceExecutor::forget_fetches() {
  for (const Expected::Fetch& each : fetches_) {
    const Block& block = blocks_[each.block.value];
    if (block.slot && block.in_slot == 0) host_.forget_wish(*block.slot);
  }
  fetches_.clear();
}

void PlaceExecutor::expect(const Expected& expected) {
  ahead_.begin(expected.outlook);
  uses_.begin_op(expected.now);
  if (expected.outlook.anew) forget_fetches();
  for (const auto& use : expected.uses) uses_.expect(use);
  for (const Expected::Fetch& fetch : expected.fetches)
    if (!arena_.in_place(fetch.block)) fetches_.push_back(fetch);
}

void PlaceExecutor::expect_nothing() {
  ahead_.end();
  forget_fetches();
}

// It was told of before it left: it comes again.
void PlaceExecutor::leaves_too_soon(BlockIndex index) {
  if (ahead_.known() && uses_.until(index) < ahead_.outlook().until)
    fetches_.push_back({.block = index, .unchanged = blocks_[index.value].unchanged});
}

// The block whose room is free longest leaves first.
std::uint64_t PlaceExecutor::rank(BlockIndex index) const {
  return ~uses_.room(index, blocks_[index.value].unchanged, ahead_.outlook().calendar);
}

// For `bytes` in one piece.
std::optional<std::vector<PlaceExecutor::BlockIndex>> PlaceExecutor::victims(Bytes bytes) const {
  if (!ahead_.known()) return arena_.victims(bytes);
  return arena_.victims(bytes, [this](BlockIndex index) { return rank(index); });
}

// With what leaves for it, where both share a bus. For links that were measured.
double PlaceExecutor::ns_of_fetch(Bytes bytes) const {
  const LinkSpeed& link = options_.link;
  const double ns_a_byte = 1 / double(link.read_alone()) + (link.one_bus() ? 1 / double(link.write_alone()) : 0);
  return double(bytes.value) * 1e9 * ns_a_byte;
}

bool PlaceExecutor::has_room_for(Bytes all, Bytes in_one_piece) const {
  return arena_.bytes().value - arena_.in_use().value >= rounded(all) && arena_.hole(in_one_piece);
}

// Of blocks that are known, and not used before tick `unused_until`. False: there is no such room.
Result<bool> PlaceExecutor::make_room_ahead(Bytes bytes, Ticks unused_until) {
  const auto leaving = arena_.victims(bytes, [&](BlockIndex index) -> std::optional<std::uint64_t> {
    if (uses_.is_newborn(index) || uses_.until(index) < unused_until) return std::nullopt;
    return rank(index);
  });
  Result<void> left;
  if (!leaving || !clear(*leaving, MoveCause::planned, left)) return false;
  if (!left) return left.error();
  return true;
}

Ticks PlaceExecutor::busy_until() {
  if (options_.link.read == 0) return 0;
  return ahead_.busy_until(uses_.now(), blocks_.size(), [&] {
    std::vector<std::pair<Ticks, double>> transfers;
    for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
      const Block& block = blocks_[i];
      if (!block.alive || block.dropped || arena_.in_place({i}) || !uses_.is_told({i})) continue;
      transfers.emplace_back(uses_.of({i}), ns_of_fetch(block.bytes));
    }
    return transfers;
  });
}

// False: not yet, and nothing that is used later comes before it.
Result<bool> PlaceExecutor::comes_ahead(const Expected::Fetch& next) {
  const HostSlot slot = *blocks_[next.block.value].slot;
  const Bytes bytes = blocks_[next.block.value].bytes;
  host_.bring(slot);
  if (!host_.is_near(slot)) return true;  // it is read from the disk
  const Bytes next_births{ahead_.outlook().next_births};
  while (!has_room_for(bytes + next_births, bytes)) {
    if (!ahead_.outlook().makes_room) return false;
    const Ticks stays = std::max({ahead_.outlook().until, busy_until(), uses_.of(next.block) + 1});
    const auto made = make_room_ahead(bytes, stays);
    if (!made || !*made) return made;
  }
  static_cast<void>(take_coming(next.block));  // a plan that was left had it read, too
  const Coming now{.block = next.block, .unchanged = next.unchanged};
  if (auto fetched = fetch_in_order(now, MoveCause::planned); !fetched) return fetched.error();
  return true;
}

bool PlaceExecutor::has_come(const Expected::Fetch& fetch) const {
  const Block& block = blocks_[fetch.block.value];
  return !block.alive || block.dropped || !block.slot || arena_.in_place(fetch.block);
}

Result<void> PlaceExecutor::look_ahead() {
  const Bytes births{ahead_.outlook().next_births};
  while (births.value > 0 && !has_room_for(births, births)) {
    const auto made = make_room_ahead(births, ahead_.outlook().until);
    if (!made) return made.error();
    if (!*made) break;
  }
  std::erase_if(fetches_, [&](const Expected::Fetch& each) { return has_come(each); });
  if (fetches_.empty()) return {};
  ahead_.sort(fetches_, uses_, block_of);
  const auto ns_of = [&](BlockIndex index) { return ns_of_fetch(blocks_[index.value].bytes); };
  const Ticks until = options_.link.read == 0 ? never : ahead_.due(fetches_, uses_, block_of, ns_of);
  Result<bool> comes = true;
  for (std::size_t i = 0; i < fetches_.size() && comes && *comes && uses_.of(fetches_[i].block) < until; ++i) {
    const Expected::Fetch next = fetches_[i];
    if (!has_come(next)) comes = comes_ahead(next);  // else it was told of twice
  }
  auto ended = end_fetches();
  return comes ? ended : comes.error();
}

}  // namespace vedette
