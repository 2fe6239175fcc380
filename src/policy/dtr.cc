// DTR: Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock, "Dynamic Tensor Rematerialization", ICLR'21,
// after the paper and the prototype's simulator (uwsampl/dtr-prototype).
//
// Kept: nothing moves, everything is recomputed. Where an op lacks room, the tensor with the least h = cost / (bytes x
//   staleness) is dropped; cost is the time to make it, with all that was dropped around it (ancestors that would have
//   to be made first). A dropped tensor is made when an op wants it, parents first. Constants, parameters and the op's
//   own operands are never dropped. Tensors below a hundredth of the average size are left alone, and of the rest a
//   sample of sqrt(N) is looked at, as in the prototype.
// Changed: parents that were dropped are made at their first need and stay until their own use; freed tensors are made
//   as means only. A step is played once from its begin: it repeats, since dropped tensors do not outlive it. The
//   neighbourhood does not count descendants. Where only small or unsampled tensors are left, they are taken, too.
// Where the machine cannot recompute, the same score chooses moves, and cost is the time of the transfers.
//
// Cost of prepare: O(drops * (producers + log gaps)), a dozen times that where there is no plan. A sample is no more
// than 64, which is the square root of 4,096 gaps open at once; the given steps' plans do not change by that. Where
// none of a sample can be dropped, all droppable tensors are looked at, as the paper does at each drop: O(gaps *
// producers) then. After `most_looks` of those looks the first of them is taken; Plan::reasons says from which op on.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "base/arithmetic.h"
#include "policy/canvas/ledger_policy.h"
#include "policy/canvas/recompute.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

// Gaps in a row: found by their place in it, removed so that the rest keeps its order, or so that the last one takes
// the place. Every call O(log n). Places in the row are counted over cells that have no later use (a Fenwick tree of
// those in use).
class Row {
 public:
  Row(std::size_t gaps, std::size_t cells) : cell_(gaps, none), sums_(cells + 1) {}

  std::size_t size() const { return size_; }
  std::uint32_t at(std::size_t place) const { return gap_[select(place)]; }
  bool holds(std::uint32_t gap) const { return cell_[gap] != none; }
  void append(std::uint32_t gap) {
    cell_[gap] = gap_.size();
    gap_.push_back(gap);
    count(cell_[gap], 1);
  }
  void remove(std::uint32_t gap) {
    count(cell_[gap], -1);
    cell_[gap] = none;
  }
  void replace_by_last(std::uint32_t gap) {
    const std::size_t cell = cell_[gap];
    const std::uint32_t last = at(size_ - 1);
    remove(last);
    if (last == gap) return;
    cell_[gap] = none;
    cell_[last] = cell;
    gap_[cell] = last;
  }
  std::size_t cell(std::uint32_t gap) const { return cell_[gap]; }
  std::uint32_t in_cell(std::size_t cell) const { return gap_[cell]; }

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  void count(std::size_t cell, std::int32_t change) {
    size_ += static_cast<std::size_t>(static_cast<std::int64_t>(change));
    for (std::size_t at = cell + 1; at < sums_.size(); at += at & (~at + 1)) sums_[at] += change;
  }
  std::size_t select(std::size_t place) const {
    auto left = static_cast<std::int64_t>(place);
    std::size_t at = 0, step = 1;
    while (2 * step < sums_.size()) step *= 2;
    for (; step > 0; step /= 2) {
      if (at + step >= sums_.size() || sums_[at + step] > left) continue;
      at += step;
      left -= sums_[at];
    }
    return at;
  }

  std::vector<std::size_t> cell_;   // [gap]
  std::vector<std::uint32_t> gap_;  // [cell]
  std::vector<std::int32_t> sums_;
  std::size_t size_ = 0;
};

class Player {
 public:
  Player(Ledger& ledger, std::uint64_t seed)
      : ledger_(ledger),
        again_(ledger),
        clock_(ledger.trace()),
        random_(seed),
        opens_(ledger.ops()),
        closes_(ledger.ops() + 1),
        open_(ledger.gaps().size(), 2 * ledger.gaps().size()) {
    std::uint64_t bytes = 0;
    for (const Tensor& tensor : ledger.trace().tensors) bytes += tensor.bytes.value;
    small_ = bytes / std::max<std::size_t>(ledger.trace().tensors.size(), 1) / 100;
    for (std::uint32_t g = 0; g < ledger.gaps().size(); ++g) {
      const Gap& gap = ledger.gaps()[g];
      able_.push_back(!gap.dead && (!again_.possible() || again_.producer(g)));
      if (gap.after + 1 < ledger.ops()) opens_[gap.after + 1].push_back(g);
      if (gap.before <= ledger.ops()) closes_[gap.before].push_back(g);
      if (gap.before <= ledger.ops() || again_.possible()) continue;
      opens_[0].push_back(g);
      closes_[gap.before - ledger.ops()].push_back(g);
    }
  }

  bool play() {
    for (std::uint32_t i = 0; i < ledger_.ops(); ++i) {
      for (const std::uint32_t g : closes_[i]) close(g);
      for (const std::uint32_t g : opens_[i]) {
        if (!covers(g, i)) continue;
        open_.append(g);
        note(g);
      }
      while (ledger_.load(i) > ledger_.capacity()) {
        if (drop_one(i)) continue;
        if (again_.possible()) return false;
        break;  // a move that was played late in the gap can still be made earlier, which is settled in the end
      }
    }
    return true;
  }
  Plan write() const {
    Plan plan = again_.write();
    if (hurried_)
      plan.reasons.push_back("from op " + std::to_string(*hurried_) + " of " + std::to_string(ledger_.ops()) +
                             " on, where nobody of a sample can be dropped, the first that can be is, not the best: "
                             "the limit on work was reached there");
    return plan;
  }

 private:
  // The gap's own count of op i, if the tensor is idle then.
  std::uint32_t counted(std::uint32_t g, std::uint32_t i) const {
    return i > ledger_.gaps()[g].after ? i : i + ledger_.ops();
  }
  bool covers(std::uint32_t g, std::uint32_t i) const {
    return !ledger_.absence(g) && !again_.pinned(g) && counted(g, i) < ledger_.gaps()[g].before;
  }

  double score(std::uint32_t g, std::uint32_t i, std::int64_t cost) const {
    const Gap& gap = ledger_.gaps()[g];
    const std::int64_t stale = clock_.at(counted(g, i)) - clock_.at(gap.after + 1) + 1;
    return static_cast<double>(cost) / (static_cast<double>(ledger_.size(gap.tensor)) * static_cast<double>(stale) + 1);
  }

  bool drop_one(std::uint32_t i) {
    if (!dead_.empty()) {
      const std::uint32_t g = open_.in_cell(*dead_.begin());
      Absence away{
          .leave = counted(g, i) - 1, .gone = counted(g, i), .back = ledger_.gaps()[g].before, .how = Return::never};
      ledger_.leave(g, away);
      forget(g);
      return true;
    }
    Best best;
    look_at_some(best, i);
    if (!best.gap) look_at_all(best, i);
    return best.gap && take(*best.gap, i);
  }

  struct Best {
    std::optional<std::uint32_t> gap;  // nullopt: no tensor that was looked at can be dropped
    double score = 0;
  };

  void look_at(Best& best, std::uint32_t g, std::uint32_t i) const {
    const auto cost = cost_of(g, i);
    if (!cost) return;
    const double value = score(g, i, *cost);
    if (!best.gap || value < best.score) best = {g, value};
  }
  void look_at_some(Best& best, std::uint32_t i) {
    const std::size_t root = static_cast<std::size_t>(std::sqrt(static_cast<double>(open_.size()))) + 1;
    for (std::size_t k = std::min({root, most_sampled, open_.size()}); k > 0; --k) {
      const std::uint32_t g = open_.at(below(open_.size()));
      if (able_[g] && ledger_.bytes(ledger_.gaps()[g].tensor).value >= small_) look_at(best, g, i);
    }
  }
  // Beyond the limit from some place on, around, until one is found.
  void look_at_all(Best& best, std::uint32_t i) {
    const bool hurries = looks_ > most_looks;
    if (hurries && !hurried_) hurried_ = i;
    const auto first =
        hurries && !alive_.empty() ? alive_.lower_bound(open_.cell(open_.at(below(open_.size())))) : alive_.begin();
    const auto look = [&](auto from, auto to) {
      for (; from != to && !(hurries && best.gap); ++from, ++looks_) look_at(best, open_.in_cell(*from), i);
    };
    look(first, alive_.end());
    look(alive_.begin(), first);
  }

  std::optional<std::int64_t> cost_of(std::uint32_t g, std::uint32_t i) const {
    if (again_.possible()) {
      const auto chain = again_.chain(g);
      return chain ? std::optional(chain->time) : std::nullopt;
    }
    const auto tier = ledger_.tier_for(g, counted(g, i) - 1);
    if (!tier) return std::nullopt;
    const Bytes bytes = ledger_.bytes(ledger_.gaps()[g].tensor);
    return move_time(ledger_.machine(), {0}, *tier, bytes) + move_time(ledger_.machine(), *tier, {0}, bytes);
  }

  bool take(std::uint32_t g, std::uint32_t i) {
    if (again_.possible()) {
      const Chain chain = *again_.chain(g);
      again_.drop(g, chain);
      for (const std::uint32_t source : chain.pinned) close(source);
      Absence away = *ledger_.absence(g);
      away.leave = i - 1;
      away.gone = i;
      ledger_.leave(g, away);
    } else {
      const std::uint32_t at = counted(g, i);
      ledger_.leave(
          g, {.leave = at - 1, .gone = at, .back = ledger_.gaps()[g].before, .tier = *ledger_.tier_for(g, at - 1)});
    }
    forget(g);
    return true;
  }

  // Into the set that the gap's cell belongs to, and out of it.
  void note(std::uint32_t g) {
    if (ledger_.gaps()[g].dead) dead_.insert(open_.cell(g));
    if (able_[g]) alive_.insert(open_.cell(g));
  }
  void unnote(std::uint32_t g) {
    dead_.erase(open_.cell(g));
    alive_.erase(open_.cell(g));
  }
  void close(std::uint32_t g) {
    if (!open_.holds(g)) return;
    unnote(g);
    open_.remove(g);
  }
  void forget(std::uint32_t g) {
    const std::uint32_t last = open_.at(open_.size() - 1);
    unnote(g);
    unnote(last);
    open_.replace_by_last(g);
    if (last != g) note(last);
  }

  std::size_t below(std::size_t end) { return static_cast<std::size_t>(next_random(random_) % end); }

  static constexpr std::uint64_t most_looks = 2'000'000;
  static constexpr std::size_t most_sampled = 64;

  Ledger& ledger_;
  Recompute again_;
  Clock clock_;
  std::uint64_t random_, small_ = 0, looks_ = 0;            // where none of a sample could be dropped
  std::optional<std::uint32_t> hurried_;                    // the op at which looks were too many
  std::vector<bool> able_;                                  // [gap]: its tensor could ever be dropped or moved
  std::vector<std::vector<std::uint32_t>> opens_, closes_;  // [op]: gaps
  Row open_;                                                // gaps of tensors that are near and idle
  std::set<std::size_t> dead_, alive_;  // cells whose tensors have no next use, and those that are able
};

class Dtr final : public TrialPolicy {
 public:
  explicit Dtr(std::uint64_t seed)
      : TrialPolicy("dtr", "what cannot be recomputed does not fit beside the largest op"), seed_(seed) {}

 private:
  std::optional<Plan> plan(const Trace& trace, const Machine& machine) const override {
    Ledger ledger(trace, machine);
    Player player(ledger, seed_);
    if (!player.play()) return std::nullopt;
    // Played from its begin, a moved tensor of the step before may take room that was given away since.
    if (!machine.can_recompute && !ledger.settle({}, false)) return std::nullopt;
    return player.write();
  }

  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Policy> make_dtr(std::uint64_t seed) { return std::make_unique<Dtr>(seed); }

}  // namespace vedette
