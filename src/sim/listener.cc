// The view is made anew for each event; the extents are kept up to date by Traffic.
#include "sim/listener.h"

namespace vedette::sim {

void Listener::prepare() {
  if (!listens()) return;
  extents_.resize(traffic_.pieces().size());
  for (std::uint32_t p = 0; p < extents_.size(); ++p) {
    const Piece& piece = traffic_.piece(p);
    extents_[p] = {
        .state = piece.place == Piece::Place::nowhere ? PlacedExtent::State::absent : PlacedExtent::State::resident,
        .tensor = {piece.tensor},
        .bytes = {{piece.bytes.begin}, {piece.bytes.end}},
        .tier = {piece.tier}};
  }
  traffic_.extents = &extents_;
  where_.resize(in_.trace.tensors.size());
  room_.resize(in_.machine.tiers.size());
}

Reaction Listener::tell(const Event& event) {
  if (!listens()) return {};
  for (std::uint32_t t = 0; t < where_.size(); ++t) {
    const Span<std::uint32_t> range = traffic_.of_tensor(t);
    if (range.begin < range.end) where_[t] = {traffic_.piece(range.begin).tier};
  }
  for (std::uint32_t k = 0; k < room_.size(); ++k) room_[k] = {traffic_.free_room(k)};
  return in_.policy->react(
      event, {.trace = in_.trace, .machine = in_.machine, .where = where_, .room = room_, .extents = extents_});
}

void Listener::obey(const Reaction& reaction) {
  for (const Move& move : reaction.moves) {
    if (move.extent.tensor.value >= in_.trace.tensors.size() || move.target.value >= in_.machine.tiers.size()) continue;
    traffic_.queue(move, none);
    ++moves_;
  }
}

}  // namespace vedette::sim
