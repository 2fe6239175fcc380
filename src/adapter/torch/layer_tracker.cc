// Layers from operators: see layer_tracker.h.
#include "adapter/torch/layer_tracker.h"

#include <algorithm>

namespace vedette::adapter {

LayerIndex LayerTracker::number_of(std::string_view name) {
  const auto [place, fresh] = index_.try_emplace(std::string(name));
  if (!fresh) return place->second;
  if (unused_.empty()) {
    place->second = LayerIndex{static_cast<std::uint32_t>(names_.size())};
    names_.push_back(nullptr);
    kept_.push_back(false);
  } else {
    place->second = unused_.back();
    unused_.pop_back();
  }
  // The names live in the map's nodes, which never move; names_ is the way from number to name.
  names_[place->second.value] = &place->first;
  ++passing_;
  return place->second;
}

LayerIndex LayerTracker::intern(std::string_view name) {
  const LayerIndex layer = number_of(name);
  if (!kept_[layer.value]) --passing_;
  kept_[layer.value] = true;
  return layer;
}

void LayerTracker::begin_step() {
  if (passing_ > most_passing && named_.empty()) {  // names with a counter in them
    for (std::uint32_t i = 0; i < names_.size(); ++i) {
      if (kept_[i] || names_[i] == nullptr) continue;
      index_.erase(index_.find(*names_[i]));
      names_[i] = nullptr;
      unused_.push_back({i});
    }
    passing_ = 0;
  }
  made_.clear();
  nodes_.clear();
  layer_.reset();
  phase_ = Phase::forward;
  backward_seen_ = false;
}

std::optional<LayerIndex> LayerTracker::made_by(std::int64_t sequence) const {
  // An op may make several nodes, numbered from the one it was seen with: the last op at or below is the maker.
  const auto after = std::upper_bound(made_.begin(), made_.end(), sequence,
                                      [](std::int64_t wanted, const auto& entry) { return wanted < entry.first; });
  if (sequence < 0 || after == made_.begin()) return std::nullopt;
  return std::prev(after)->second;
}

std::optional<LayerTracker::Mark> LayerTracker::begin_op(const OpSeen& op) {
  std::optional<LayerIndex> layer = layer_;
  Phase phase = phase_;
  if (!nodes_.empty()) {
    phase = Phase::backward;
    if (const auto maker = made_by(nodes_.back())) layer = maker;
  } else if (backward_seen_ && !op.gradients_on) {
    phase = Phase::optimizer;
    layer = intern("optimizer");
  } else if (op.parameter) {
    phase = Phase::forward;
    layer = op.parameter;
  }
  if (!named_.empty()) layer = named_.back();
  if (op.sequence >= 0 && layer) {
    // Ops that make no node leave the number to the next op.
    if (!made_.empty() && made_.back().first == op.sequence) made_.pop_back();
    if (made_.empty() || made_.back().first < op.sequence) made_.emplace_back(op.sequence, *layer);
  }
  if (layer == layer_ && phase == phase_) return std::nullopt;
  layer_ = layer;
  phase_ = phase;
  // Inside the user's own layer it is the user's scope that tells the session.
  if (!layer || !named_.empty()) return std::nullopt;
  return Mark{*names_[layer->value], phase};
}

void LayerTracker::begin_backward(std::int64_t sequence) {
  // An accumulation of gradients belongs to whatever ran before it.
  nodes_.push_back(sequence < 0 && !nodes_.empty() ? nodes_.back() : sequence);
  backward_seen_ = true;
}

void LayerTracker::end_backward() {
  if (!nodes_.empty()) nodes_.pop_back();
}

void LayerTracker::begin_named(std::string_view name) { named_.push_back(number_of(name)); }

void LayerTracker::end_named() {
  if (!named_.empty()) named_.pop_back();
  layer_.reset();  // the next layer is marked anew
}

}  // namespace vedette::adapter
