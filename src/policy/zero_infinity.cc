// ZeRO-Infinity: Rajbhandari, Ruwase, Rasley, Smith, He, "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale
// Deep Learning", SC'21, and DeepSpeed's documented knobs.
//
// Kept: the partition rule. Parameters and optimizer states live in slow memory, the furthest tier first; they are
//   gathered for the module that uses them and released after it when their next use is further away than
//   max_reuse_distance. A prefetcher that recorded the order of modules fetches the next ones, up to
//   prefetch_bucket_size, while the current one runs. Parameters below param_persistence_threshold stay. Activations
//   are not its affair.
// Changed: one GPU, so nothing is gathered from other ranks. The knobs count bytes, as shares of what activations leave
//   free at most: max_live_parameters is all of it, max_reuse_distance half, the prefetch bucket a quarter; a
//   persistent parameter has at most 256 KiB. Gradients are what the trace says they are: where they are not
//   persistent, they stay with activations.
// Partial: activation checkpointing and tiling of large ops, which change the program.
//
// Cost of prepare: O(steps * (accesses + evictions * resident tensors)), a dozen times that where there is no plan.
#include <limits>

#include "policy/canvas/ledger_policy.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

class Partitioned final : public OnlineRules {
 public:
  Partitioned(const Ledger& ledger, std::uint64_t live)
      : reuse_(live / 2), bucket_(live / 4), passed_(ledger.ops() + 1) {
    const auto persistent = [&](std::uint32_t t) { return ledger.trace().tensors[t].persistent; };
    for (std::uint32_t i = 0; i < ledger.ops(); ++i) {
      passed_[i + 1] = passed_[i];
      for (const std::uint32_t t : ledger.uses().operands[i]) passed_[i + 1] += persistent(t) ? ledger.size(t) : 0;
    }
  }

  double worth(const Residence& residence, std::uint32_t, std::uint32_t tensor) override {
    if (!residence.ledger().trace().tensors[tensor].persistent) return std::numeric_limits<double>::infinity();
    return -static_cast<double>(residence.next_use(tensor));
  }

  void ready(Residence& residence, std::uint32_t now) override {
    const Ledger& ledger = residence.ledger();
    std::uint64_t fetched = 0;
    for (std::uint32_t i = now + 1; i < now + ledger.ops() && fetched < bucket_; ++i) {
      for (const std::uint32_t t : ledger.uses().operands[i % ledger.ops()]) {
        if (!ledger.trace().tensors[t].persistent) continue;
        fetched += ledger.size(t);
        if (!residence.near(t) &&
            !residence.make_room(static_cast<std::int64_t>(ledger.size(t)), -static_cast<double>(i)))
          return;
        residence.fetch(t);
      }
    }
  }

  void ended(Residence& residence, std::uint32_t now) override {
    const Ledger& ledger = residence.ledger();
    for (const std::uint32_t t : ledger.uses().operands[now % ledger.ops()]) {
      if (!ledger.trace().tensors[t].persistent || ledger.bytes(t) <= persistence_threshold) continue;
      const std::uint32_t next = residence.next_use(t);
      if (next > now + 1 && passed(next, ledger.ops()) - passed(now + 1, ledger.ops()) > reuse_) residence.leave(t);
    }
  }

 private:
  static constexpr Bytes persistence_threshold = 256_KiB;
  std::uint64_t passed(std::uint32_t op, std::uint32_t ops) const {
    return op / ops * passed_.back() + passed_[op % ops];
  }

  std::uint64_t reuse_, bucket_;
  std::vector<std::uint64_t> passed_;  // [op]: bytes of parameters that ops before it used
};

class ZeroInfinity final : public LedgerPolicy {
 public:
  ZeroInfinity() : LedgerPolicy("zero-infinity") {}

 private:
  Result<Plan> decide(Ledger& ledger) override {
    const auto activation = [&](std::uint32_t t) { return !ledger.trace().tensors[t].persistent; };
    const Bytes room = ledger.machine().tiers[0].capacity;
    const Bytes least = least_capacity(ledger, activation);
    if (least > room) return too_small(ledger, least, "activations stay in fast memory");
    Partitioned rules(ledger, room.value - activations(ledger).value);
    const bool played = Residence(ledger, rules).play(3, Ledger::From::furthest);
    if (!played || !ledger.settle([&](const Gap& gap) { return gap.dead || !activation(gap.tensor); }))
      return no_room(ledger);
    return ledger.write();
  }

  // The most that activations and workspace take at once.
  static Bytes activations(const Ledger& ledger) {
    std::vector<std::int64_t> change(ledger.ops() + 1);
    for (std::uint32_t t = 0; t < ledger.trace().tensors.size(); ++t) {
      const TensorUses& tensor = ledger.uses().tensors[t];
      if (tensor.persistent || tensor.uses.empty()) continue;
      change[tensor.birth] += static_cast<std::int64_t>(ledger.size(t));
      change[tensor.death + 1] -= static_cast<std::int64_t>(ledger.size(t));
    }
    std::int64_t sum = 0, most = 0;
    for (std::uint32_t i = 0; i < ledger.ops(); ++i) {
      sum += change[i];
      most = std::max(most, sum + static_cast<std::int64_t>(ledger.trace().ops[i].workspace.value));
    }
    return {static_cast<std::uint64_t>(most)};
  }
};

}  // namespace

std::unique_ptr<Policy> make_zero_infinity(std::uint64_t) { return std::make_unique<ZeroInfinity>(); }

}  // namespace vedette
