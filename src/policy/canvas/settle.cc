// Ledger::settle: makes every op fit, by later fetches, earlier evictions and more absences.
#include <algorithm>
#include <set>
#include <tuple>

#include "policy/canvas/ledger.h"

namespace vedette::planning {

namespace {

// Walks the ops of a step and keeps the moves under way and the gaps that could be spent away at the one at hand.
class Settler {
 public:
  Settler(Ledger& ledger, const std::function<bool(const Gap&)>& may, bool furthest_first)
      : ledger_(ledger),
        may_(may),
        furthest_first_(furthest_first),
        n_(ledger.ops()),
        opens_(n_),
        closes_(n_ + 1),
        keys_(ledger.gaps().size()) {}

  bool settle() {
    for (std::uint32_t g = 0; g < ledger_.gaps().size(); ++g) {
      if (ledger_.absence(g)) {
        watch(g, ledger_.gaps()[g].after + 1, ledger_.absence(g)->gone);
        if (ledger_.absence(g)->how == Return::fetched) watch(g, ledger_.absence(g)->back, ledger_.gaps()[g].before);
      } else if (!may_ || may_(ledger_.gaps()[g])) {
        watch(g, ledger_.gaps()[g].after + 1, ledger_.gaps()[g].before);
      }
    }
    for (std::uint32_t i = 0; i < n_; ++i) {
      for (const std::uint32_t g : opens_[i]) open_.insert({keys_[g] = key(g, i), g});
      while (!open_.empty() && kind(open_.begin()) == Kind::dead &&
             ledger_.load(i) + waiting_bytes_ > ledger_.capacity())
        free_at(taken(open_), i);
      let_come(i);
      while (ledger_.load(i) > ledger_.capacity()) {
        if (open_.empty()) return false;
        free_at(taken(open_), i);
      }
      for (const std::uint32_t g : closes_[i + 1]) {
        open_.erase({keys_[g], g});
        if (waiting_.erase({keys_[g], g}) > 0) waiting_bytes_ -= bytes(g);
      }
    }
    return true;
  }

 private:
  // Smallest first: dead bytes; fetches that can wait, the least urgent first; evictions; then residents, by the rule.
  enum class Kind : std::uint8_t { dead, coming, leaving, resident };
  using Key = std::tuple<Kind, std::int64_t, std::int64_t>;
  using Order = std::set<std::pair<Key, std::uint32_t>>;
  static Kind kind(Order::const_iterator at) { return std::get<0>(at->first); }
  static std::uint32_t taken(Order& from) {
    const std::uint32_t g = from.begin()->second;
    from.erase(from.begin());
    return g;
  }
  std::int64_t bytes(std::uint32_t g) const {
    return static_cast<std::int64_t>(ledger_.size(ledger_.gaps()[g].tensor));
  }

  // Of all fetches that could have come by this op, those that are needed soonest come, as many as there is room for.
  // The others wait: they are away until their uses, as far as the ledger knows, so that an op costs its changes and
  // not its waits.
  void let_come(std::uint32_t op) {
    const auto comes_first = [&] { return !open_.empty() && kind(open_.begin()) == Kind::coming; };
    const auto all_wait_till_it_fits = [&] {
      while (comes_first() && ledger_.load(op) > ledger_.capacity()) wait(taken(open_), op);
    };
    all_wait_till_it_fits();
    while (!waiting_.empty()) {
      const auto soonest = std::prev(waiting_.end());
      const bool before_another = comes_first() && *open_.begin() < *soonest;
      if (!before_another && ledger_.load(op) + bytes(soonest->second) > ledger_.capacity()) return;
      const std::uint32_t g = soonest->second;
      come(g, op);
      open_.insert(waiting_.extract(soonest));
      waiting_bytes_ -= bytes(g);
      all_wait_till_it_fits();
    }
  }

  void come(std::uint32_t g, std::uint32_t op) {
    Absence changed = *ledger_.absence(g);
    const Gap& gap = ledger_.gaps()[g];
    changed.back = gap.after > op ? op + n_ : op;
    ledger_.leave(g, changed);
  }

  // From this op on, until let_come() ends that or its use or the step does.
  void wait(std::uint32_t g, std::uint32_t op) {
    Absence changed = *ledger_.absence(g);
    const Gap& gap = ledger_.gaps()[g];
    changed.back = gap.after > op ? gap.before : std::min(gap.before, n_);
    ledger_.leave(g, changed);
    waiting_.insert({keys_[g], g});
    waiting_bytes_ += bytes(g);
  }

  Key key(std::uint32_t g, std::uint32_t op) const {
    const Gap& gap = ledger_.gaps()[g];
    const std::int64_t before = static_cast<std::int64_t>(gap.before) - (gap.after > op ? n_ : 0),
                       after = static_cast<std::int64_t>(gap.after) - (gap.after > op ? n_ : 0);
    const auto size = static_cast<std::int64_t>(ledger_.size(gap.tensor));
    if (const auto& absence = ledger_.absence(g)) {
      const bool coming = absence->how == Return::fetched && in(op, absence->back, gap.before);
      return coming ? Key{Kind::coming, -before, -size} : Key{Kind::leaving, after, -size};
    }
    if (gap.dead) return {Kind::dead, 0, -size};
    return furthest_first_ ? Key{Kind::resident, -before, -size} : Key{Kind::resident, after, -size};
  }

  bool in(std::uint32_t op, std::uint32_t begin, std::uint32_t end) const {
    return (op >= begin && op < end) || (op + n_ >= begin && op + n_ < end);
  }

  void watch(std::uint32_t g, std::uint32_t begin, std::uint32_t end) {
    if (begin >= end) return;
    if (begin < n_) {
      opens_[begin].push_back(g);
      closes_[std::min(end, n_)].push_back(g);
    }
    if (end > n_) {
      opens_[begin < n_ ? 0 : begin - n_].push_back(g);
      closes_[end - n_].push_back(g);
    }
  }

  void free_at(std::uint32_t g, std::uint32_t op) {
    const Gap& gap = ledger_.gaps()[g];
    if (ledger_.absence(g)) {
      Absence changed = *ledger_.absence(g);
      const std::uint32_t gone_now = in_this_lap(op, gap.after + 1, changed.gone);
      if (gone_now != none && hurry(g, changed, gone_now)) ledger_.leave(g, changed);
      return;
    }
    Absence made = ledger_.shortest(g);
    if (gap.dead) {
      made.how = Return::never;
      made.tier = {static_cast<std::uint32_t>(ledger_.machine().tiers.size() - 1)};
    } else if (const auto tier = ledger_.tier_for(g, made.leave)) {
      made.tier = *tier;
    } else {
      return;  // no slower tier has room for it
    }
    ledger_.leave(g, made);
  }

  // Out before op `gone`. An earlier eviction occupies the slower tier for longer, so it may have to be another one.
  // False: none has room.
  bool hurry(std::uint32_t g, Absence& changed, std::uint32_t gone) {
    changed.gone = gone;
    if (gone > changed.leave) return true;
    changed.leave = gone - 1;
    if (changed.how != Return::fetched) return true;
    const Absence before = *ledger_.absence(g);
    ledger_.stay(g);
    const auto tier = ledger_.tier_for(g, changed.leave);
    if (tier) changed.tier = *tier;
    if (!tier) ledger_.leave(g, before);
    return tier.has_value();
  }

  // `op` as counted by the absence, if [begin, end) holds it.
  static constexpr std::uint32_t none = ~0U;
  std::uint32_t in_this_lap(std::uint32_t op, std::uint32_t begin, std::uint32_t end) const {
    if (op >= begin && op < end) return op;
    return op + n_ >= begin && op + n_ < end ? op + n_ : none;
  }

  Ledger& ledger_;
  const std::function<bool(const Gap&)>& may_;
  bool furthest_first_;
  std::uint32_t n_;
  std::vector<std::vector<std::uint32_t>> opens_, closes_;
  std::vector<Key> keys_;  // of each gap, when it was put into open_
  Order open_, waiting_;   // tensors that could be freed; fetches that were
  std::int64_t waiting_bytes_ = 0;
};

}  // namespace

bool Ledger::settle(const std::function<bool(const Gap&)>& may, bool furthest_first) {
  return Settler(*this, may, furthest_first).settle();
}

}  // namespace vedette::planning
