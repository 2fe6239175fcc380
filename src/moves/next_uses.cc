// Room for the most ops a transfer: see next_uses.h.
#include "moves/next_uses.h"

namespace vedette::moves {

void NextUses::expect(const Use& use) {
  Known& known = at(use.block);
  known.next_use = use.tick;
  known.dead_at = use.dead_at;
  known.told = true;
}

NextUses::Ticks NextUses::of(BlockIndex block) const {
  const Known here = known(block);
  return from_now(here.told ? here.next_use : here.last_use);
}

NextUses::Ticks NextUses::until(BlockIndex block) const {
  const Known here = known(block);
  return here.told ? std::min(of(block), from_now(here.dead_at)) : of(block);
}

std::uint64_t NextUses::room(BlockIndex block, bool unchanged) const {
  constexpr std::uint64_t far = std::uint64_t{1} << 40;
  const Known here = known(block);
  if (is_newborn(block)) return 0;
  const Ticks use = of(block), end = until(block);
  // Ticks between two steps are no ops.
  const Ticks ops = end >= calendar_.next_begins
                        ? calendar_.ends - std::min(calendar_.ends, calendar_.now) + (end - calendar_.next_begins)
                        : end - std::min(end, calendar_.now);
  const bool returns = !here.told || use < here.dead_at || here.dead_at == never;
  return std::min(far, ops) * (!unchanged && returns ? 1 : !unchanged || returns ? 2 : 4);
}

}  // namespace vedette::moves
