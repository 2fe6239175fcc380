// SwapAdvisor: Huang, Jin, Li, "SwapAdvisor: Pushing Deep Learning Beyond the GPU Memory Limit via Smart Swapping",
// ASPLOS'20. The text was not at hand: rules and constants are from memory.
//
// Kept: memory is carved into pools of size classes; the search is over the order of ops, the map from tensors to
//   classes and the number of slots of each. Swaps are derived: where a pool has no free slot, the tensor of that class
//   whose next use is furthest leaves (Belady over the known order); it is sent out when its last use before that ends,
//   and comes back as early as a slot is free; two passes and more make the step's end meet its begin. A genetic search
//   with a simulated step time as fitness: tournament selection, crossover gene by gene and of orders at a point, the
//   first ops of one and the rest as in the other; mutation whose rate grows while nothing improves.
// Changed: orders begin with the traced one and with schedules by lists (canvas/orders.h), and a mutation moves an op
//   with all that it depends on. Where the machine runs ops as traced (Machine::can_reorder), so does the plan. Slots
//   are a budget of bytes a class: a plan has no addresses, so rounding a tensor up to its class would lose bytes for
//   nothing. Where an op needs more of a class than its slots, it takes it. The limit is on work (op visits in
//   simulation), not on minutes: a policy sees no clock. Plan::reasons says where the search stopped.
//
// Cost of prepare: at most `most_visits` op visits (with orders `most_with_orders`), or two individuals where that is
// more, of O(operands * log) each.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "base/arithmetic.h"
#include "model/dependences.h"
#include "policy/canvas/ledger_policy.h"
#include "policy/canvas/op_times.h"
#include "policy/canvas/orders.h"
#include "policy/makers.h"
#include "vedette/replay.h"

namespace vedette {
namespace {

using namespace planning;

constexpr std::size_t population = 12, most_generations = 40, generations_with_orders = 200, tournament = 3;
// of an op by an individual; a second or two, and ten
constexpr std::uint64_t most_visits = 400'000, most_with_orders = 4'000'000;

struct Individual {
  std::vector<std::uint8_t> borders;  // [size group]: 1 where a new class begins
  std::vector<std::uint8_t> shares;   // [size group]: weight of its class in dividing memory, from 1
  Order order;                        // of the ops; empty where the machine runs them as traced
  std::int64_t time = 0;              // fitness: of a step
};

class Pools final : public OnlineRules {
 public:
  Pools(const Ledger& ledger, const std::vector<std::uint32_t>& group, const Individual& individual)
      : of_(ledger.trace().tensors.size()) {
    std::vector<std::uint32_t> class_of(individual.borders.size());
    for (std::size_t s = 1; s < class_of.size(); ++s) class_of[s] = class_of[s - 1] + individual.borders[s];
    std::vector<double> weight(class_of.empty() ? 1 : class_of.back() + 1U);
    for (std::uint32_t t = 0; t < of_.size(); ++t) {
      of_[t] = class_of[group[t]];
      weight[of_[t]] += static_cast<double>(ledger.size(t)) * individual.shares[group[t]];
    }
    double sum = 0;
    for (const double each : weight) sum += each;
    for (const double each : weight)
      budget_.push_back(static_cast<std::int64_t>(static_cast<double>(ledger.capacity()) * each / std::max(sum, 1.0)));
    near_.resize(weight.size());
    next_.resize(of_.size());
    for (std::uint32_t t = 0; t < of_.size(); ++t) size_.push_back(static_cast<std::int64_t>(ledger.size(t)));
    held_.resize(weight.size());
  }

  void placed(const Residence& residence, std::uint32_t tensor) override {
    next_[tensor] = residence.next_use(tensor);
    near_[of_[tensor]].insert({next_[tensor], tensor});
    held_[of_[tensor]] += size_[tensor];
  }
  void removed(std::uint32_t tensor) override {
    near_[of_[tensor]].erase({next_[tensor], tensor});
    held_[of_[tensor]] -= size_[tensor];
  }

  void begins(Residence& residence, std::uint32_t now) override {
    const Ledger& ledger = residence.ledger();
    std::vector<std::int64_t> held(held_);
    for (const std::uint32_t t : ledger.uses().operands[now % ledger.ops()]) {
      if (!residence.near(t)) held[of_[t]] += size_[t];
    }
    for (std::uint32_t c = 0; c < held.size(); ++c) {
      if (held[c] <= budget_[c]) continue;
      std::vector<std::uint32_t> victims;
      for (auto each = near_[c].rbegin(); each != near_[c].rend() && held[c] > budget_[c]; ++each) {
        if (residence.busy(each->second)) continue;
        victims.push_back(each->second);
        held[c] -= size_[each->second];
      }
      for (const std::uint32_t t : victims) residence.leave(t);
    }
  }
  double worth(const Residence& residence, std::uint32_t, std::uint32_t tensor) override {
    return -static_cast<double>(residence.next_use(tensor));
  }

  void ready(Residence& residence, std::uint32_t now) override {
    const Ledger& ledger = residence.ledger();
    for (std::uint32_t i = now + 1; i < now + ledger.ops() && i <= now + ahead; ++i) {
      std::int64_t births = static_cast<std::int64_t>(ledger.trace().ops[i % ledger.ops()].workspace.value);
      for (const std::uint32_t t : ledger.uses().operands[i % ledger.ops()]) {
        if (!residence.alive(t)) births += static_cast<std::int64_t>(ledger.size(t));
        if (residence.alive(t) && !residence.near(t) && !residence.fetch(t, births)) return;
      }
    }
  }

 private:
  static constexpr std::uint32_t ahead = 32;
  std::vector<std::uint32_t> of_;            // [tensor]: its class
  std::vector<std::int64_t> budget_, held_;  // [class]: bytes it may hold, and holds
  // [class]: (next use, tensor) of those in fast memory
  std::vector<std::set<std::pair<std::uint32_t, std::uint32_t>>> near_;
  std::vector<std::uint32_t> next_;  // [tensor]: by which it stands there
  std::vector<std::int64_t> size_;   // [tensor]
};

class Search {
 public:
  Search(const Trace& trace, const Machine& machine, std::uint64_t seed)
      : trace_(trace), machine_(machine), random_(seed) {
    const Ledger ledger(trace, machine);
    std::set<std::uint32_t> sizes;
    const auto octave = [&](std::uint32_t t) {
      return static_cast<std::uint32_t>(std::log2(static_cast<double>(ledger.size(t)) + 1));
    };
    for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) sizes.insert(octave(t));
    for (std::uint32_t t = 0; t < trace.tensors.size(); ++t)
      group_.push_back(static_cast<std::uint32_t>(std::distance(sizes.begin(), sizes.find(octave(t)))));
    groups_ = sizes.size();
  }

  // Classes alone first: the search over orders begins with the best of them, and has to be faster when replayed.
  std::optional<Plan> run() {
    Individual one{.borders = std::vector<std::uint8_t>(groups_, 0), .shares = std::vector<std::uint8_t>(groups_, 1)};
    const std::int64_t first = one.time = evaluate(one);
    std::vector<Individual> all{one};
    while (all.size() < population && visits_ < most_) {
      Individual made = one;
      mutate(made, 0.5);
      made.time = evaluate(made);
      all.push_back(made);
    }
    std::string said = evolve(all, most_generations);
    Individual found = best(all);
    if (machine_.can_reorder) {
      all = with_orders(found);
      said = evolve(all, generations_with_orders);
      if (replayed(best(all)) < replayed(found)) found = best(all);
    }
    std::optional<Plan> plan = derive(found, nullptr);
    if (plan) {
      plan->reasons = {"genetic search: " + said + "; the best step is " + std::to_string(found.time / 1000) +
                       " us where one pool gives " + std::to_string(first / 1000) +
                       " us; no search proves a plan best: " + above_ops(found.time)};
    }
    return plan;
  }

 private:
  // Says where it stopped.
  std::string evolve(std::vector<Individual>& all, std::size_t generations) {
    std::size_t generation = 0, idle = 0;
    while (generation < generations && visits_ < most_ && (groups_ > 1 || orders_)) {
      const std::int64_t before = best(all).time;
      breed(all, std::min(0.1 * static_cast<double>(1 + idle), 0.5));
      idle = best(all).time < before ? 0 : idle + 1;
      ++generation;
    }
    return std::to_string(generation) + " of " + std::to_string(generations) + " generations of " +
           std::to_string(all.size()) + ", " + (visits_ < most_ ? "all that it may" : "stopped by its limit on work");
  }

  // The individual in the traced order, and in those of schedules by lists.
  std::vector<Individual> with_orders(Individual one) {
    traced_ = one.order = orders_.emplace(trace_).traced();
    most_ = most_with_orders;
    while (std::size_t{1} << most_distance_ < trace_.ops.size()) ++most_distance_;
    std::vector<Individual> all{one};
    for (Order& order : orders_->listed(machine_.tiers[0].capacity)) {
      one.order = std::move(order);
      one.time = evaluate(one);
      all.push_back(one);
    }
    return all;
  }

  std::int64_t replayed(const Individual& one) {
    const std::optional<Plan> plan = derive(one, nullptr);
    if (!plan) return INT64_MAX;
    const auto got = replay(trace_, machine_, *plan);
    return got ? got->measured.time.value : INT64_MAX;
  }

  // How far from proven: nothing is faster than the ops.
  std::string above_ops(std::int64_t time) const {
    const std::int64_t ops = planning::time_of_ops(trace_).value;
    const std::int64_t tenths = ops == 0 ? 0 : (time - ops) * 1000 / ops;
    return "it is " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
           " % above the ops' own time, below which no plan is";
  }

  static const Individual& best(const std::vector<Individual>& all) {
    return *std::min_element(all.begin(), all.end(),
                             [](const Individual& a, const Individual& b) { return a.time < b.time; });
  }

  void breed(std::vector<Individual>& all, double rate) {
    std::vector<Individual> next = {best(all)};
    while (next.size() < all.size() && visits_ < most_) {
      const Individual &mother = pick(all), &father = pick(all);
      Individual child = mother;
      for (std::size_t s = 0; s < groups_; ++s) {
        if (below(2) == 0) child.borders[s] = father.borders[s];
        if (below(2) == 0) child.shares[s] = father.shares[s];
      }
      if (orders_ && below(2) == 0)
        child.order = orders_->joined(mother.order, below(mother.order.size()), father.order);
      mutate(child, rate);
      child.time = evaluate(child);
      next.push_back(std::move(child));
    }
    all = std::move(next);
  }

  const Individual& pick(const std::vector<Individual>& all) {
    const Individual* found = &all[below(all.size())];
    for (std::size_t i = 1; i < tournament; ++i) {
      const Individual& other = all[below(all.size())];
      if (other.time < found->time) found = &other;
    }
    return *found;
  }

  void mutate(Individual& one, double rate) {
    for (std::size_t s = 0; s < groups_; ++s) {
      if (chance(rate) && s > 0) one.borders[s] ^= 1;
      if (chance(rate)) one.shares[s] = static_cast<std::uint8_t>(1 + below(8));
    }
    if (!orders_) return;
    // near and far: the distance is drawn by its logarithm
    for (std::size_t moves = 1 + below(8); moves > 0; --moves) {
      const std::size_t from = below(one.order.size()), distance = below(std::size_t{1} << below(most_distance_)) + 1;
      const bool earlier = below(2) == 0;
      if (earlier ? distance <= from : from + distance < one.order.size())
        orders_->move(one.order, from, earlier ? from - distance : from + distance);
    }
  }

  std::int64_t evaluate(const Individual& one) {
    std::int64_t time = INT64_MAX;
    derive(one, &time);
    return time;
  }

  // The plan of the pools, and the time of its step. nullopt: it does not fit.
  std::optional<Plan> derive(const Individual& one, std::int64_t* time) {
    const Trace in_order = one.order.empty() ? Trace{} : reordered(trace_, one.order);
    Ledger ledger(one.order.empty() ? trace_ : in_order, machine_);
    Pools pools(ledger, group_, one);
    constexpr std::uint32_t passes = 3;
    visits_ += passes * ledger.ops();
    if (!Residence(ledger, pools).play(passes)) return std::nullopt;
    evict_at_last_use(ledger);
    queue_evictions(ledger);
    if (!ledger.settle()) return std::nullopt;
    if (time != nullptr) *time = predicted_time(ledger);
    Plan plan = ledger.write();
    if (one.order != traced_) plan.order = one.order;
    return plan;
  }

  std::size_t below(std::size_t end) { return static_cast<std::size_t>(next_random(random_) % end); }
  bool chance(double rate) { return static_cast<double>(next_random(random_) >> 11) * 0x1p-53 < rate; }

  const Trace& trace_;
  const Machine& machine_;
  std::uint64_t random_, visits_ = 0;
  std::vector<std::uint32_t> group_;  // [tensor]: its size, by powers of two, counted from the smallest there is
  std::size_t groups_ = 0;
  std::optional<Orders> orders_;
  Order traced_;
  std::uint64_t most_ = most_visits;
  std::uint64_t most_distance_ = 1;  // of a move within an order, as a power of two
};

class SwapAdvisor final : public LedgerPolicy {
 public:
  explicit SwapAdvisor(std::uint64_t seed) : LedgerPolicy("swapadvisor"), seed_(seed) {}

 private:
  Result<Plan> decide(Ledger& ledger) override {
    std::optional<Plan> found = Search(ledger.trace(), ledger.machine(), seed_).run();
    if (!found) return no_room(ledger);
    return *std::move(found);
  }

  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Policy> make_swapadvisor(std::uint64_t seed) { return std::make_unique<SwapAdvisor>(seed); }

}  // namespace vedette
