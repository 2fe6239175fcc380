// DTR: Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock, "Dynamic Tensor Rematerialization", ICLR'21, after the paper and the
// prototype's simulator (uwsampl/dtr-prototype).
//
// Kept: nothing moves, everything is made again. Where an op lacks room, the tensor with the least h = cost / (bytes x staleness) is dropped;
//   cost is what making it takes, with all that was dropped around it (ancestors that would have to be made first). What is dropped is
//   made when an op wants it, parents first. Constants, parameters and the op's own operands are never dropped. Tensors below a hundredth
//   of the average size are left alone, and of the rest a sample of sqrt(N) is looked at, as in the prototype.
// Changed: parents that were dropped are made at their first need and stay until their own use; what the program has freed is made as a
//   means only. A step is played once from its begin: it repeats, since nothing that is dropped outlives it. The neighbourhood does not
//   count descendants. Where small or unsampled tensors are what is left, they are taken, too.
// Where the machine cannot recompute, the same score chooses what moves, and cost is what its transfers take.
//
// Cost of prepare: O(drops * sqrt(gaps) * producers), a dozen times that where there is no plan.
#include <algorithm>
#include <cmath>

#include "policy/makers.h"
#include "policy/recompute.h"

namespace vedette {
namespace {

using namespace planning;

class Player {
 public:
  Player(Ledger& ledger, std::uint64_t seed) : ledger_(ledger), again_(ledger), clock_(ledger.trace()), random_(seed), opens_(ledger.ops()) {
    std::uint64_t bytes = 0;
    for (const Tensor& tensor : ledger.trace().tensors) bytes += tensor.bytes.value;
    small_ = bytes / std::max<std::size_t>(ledger.trace().tensors.size(), 1) / 100;
    for (std::uint32_t g = 0; g < ledger.gaps().size(); ++g) {
      const Gap& gap = ledger.gaps()[g];
      if (gap.after + 1 < ledger.ops()) opens_[gap.after + 1].push_back(g);
      if (gap.before > ledger.ops() && !again_.possible()) opens_[0].push_back(g);
    }
  }

  bool play() {
    for (std::uint32_t i = 0; i < ledger_.ops(); ++i) {
      open_.insert(open_.end(), opens_[i].begin(), opens_[i].end());
      std::erase_if(open_, [&](std::uint32_t g) { return !covers(g, i); });
      while (ledger_.load(i) > ledger_.capacity()) {
        if (drop_one(i)) continue;
        if (again_.possible()) return false;
        break;  // a move that was played late in the gap can still be made earlier, which is settled in the end
      }
    }
    return true;
  }
  Plan write() const { return again_.write(); }

 private:
  // The gap's own count of op i, if the tensor is idle then.
  std::uint32_t counted(std::uint32_t g, std::uint32_t i) const { return i > ledger_.gaps()[g].after ? i : i + ledger_.ops(); }
  bool covers(std::uint32_t g, std::uint32_t i) const {
    return !ledger_.absence(g) && !again_.pinned(g) && counted(g, i) < ledger_.gaps()[g].before;
  }

  double score(std::uint32_t g, std::uint32_t i, std::int64_t cost) const {
    const Gap& gap = ledger_.gaps()[g];
    const std::int64_t stale = clock_.at(counted(g, i)) - clock_.at(gap.after + 1) + 1;
    return static_cast<double>(cost) / (static_cast<double>(ledger_.size(gap.tensor)) * static_cast<double>(stale) + 1);
  }

  bool drop_one(std::uint32_t i) {
    for (std::size_t k = 0; k < open_.size(); ++k) {
      if (!ledger_.gaps()[open_[k]].dead) continue;
      Absence away{.leave = counted(open_[k], i) - 1, .gone = counted(open_[k], i), .back = ledger_.gaps()[open_[k]].before, .how = Return::never};
      ledger_.leave(open_[k], away);
      forget(k);
      return true;
    }
    for (const bool everyone : {false, true}) {
      if (const auto found = best(i, everyone)) return take(*found, i);
    }
    return false;
  }

  // The place in open_ of the least score: among a sample, or everyone. nullopt: nobody can be dropped.
  std::optional<std::size_t> best(std::uint32_t i, bool everyone) {
    const auto sample = static_cast<std::size_t>(std::sqrt(static_cast<double>(open_.size()))) + 1;
    const std::size_t tries = everyone ? open_.size() : std::min(sample, open_.size());
    std::optional<std::size_t> found;
    double least = 0;
    for (std::size_t k = 0; k < tries; ++k) {
      const std::size_t place = everyone ? k : below(open_.size());
      const std::uint32_t g = open_[place];
      if (!everyone && ledger_.bytes(ledger_.gaps()[g].tensor).value < small_) continue;
      const auto cost = cost_of(g, i);
      if (!cost) continue;
      const double value = score(g, i, *cost);
      if (!found || value < least) found = place, least = value;
    }
    return found;
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

  bool take(std::size_t place, std::uint32_t i) {
    const std::uint32_t g = open_[place];
    if (again_.possible()) {
      again_.drop(g, *again_.chain(g));
      Absence away = *ledger_.absence(g);
      away.leave = i - 1;
      away.gone = i;
      ledger_.leave(g, away);
    } else {
      const std::uint32_t at = counted(g, i);
      ledger_.leave(g, {.leave = at - 1, .gone = at, .back = ledger_.gaps()[g].before, .tier = *ledger_.tier_for(g, at - 1)});
    }
    forget(place);
    return true;
  }

  void forget(std::size_t place) {
    open_[place] = open_.back();
    open_.pop_back();
  }

  std::size_t below(std::size_t end) {  // SplitMix64
    random_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = random_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return static_cast<std::size_t>((z ^ (z >> 31)) % end);
  }

  Ledger& ledger_;
  Recompute again_;
  Clock clock_;
  std::uint64_t random_, small_ = 0;
  std::vector<std::vector<std::uint32_t>> opens_;
  std::vector<std::uint32_t> open_;  // gaps of tensors that are near and idle
};

class Dtr final : public Policy {
 public:
  explicit Dtr(std::uint64_t seed) : seed_(seed) {}
  std::string_view name() const noexcept override { return "dtr"; }

  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    const Ledger everything(trace, machine);
    if (auto error = refusal(name(), everything)) return *error;
    if (everything.fits()) return everything.write();
    if (auto found = plan(trace, machine)) return *std::move(found);
    const Bytes least = smallest_size(machine, everything.peak(), [&](const Machine& other) { return plan(trace, other).has_value(); });
    return too_small(name(), everything, least, "what cannot be made again does not fit beside the largest op");
  }

 private:
  std::optional<Plan> plan(const Trace& trace, const Machine& machine) const {
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
