// The published policies' own habits, on steps that can be worked out by hand; what every planner must keep is in
// policy/properties.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "policy/canvas/holes.h"
#include "policy/canvas/residence.h"
#include "support/generate_trace.h"
#include "support/traces.h"
#include "vedette/check.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::published_test {
namespace {

constexpr std::uint64_t kilo = 4096;

// Forward x0 -> x1 -> ... -> xn, backward reads them in reverse: one tensor a layer, all of one size, 1 ms an op.
Trace chain(std::uint32_t layers, std::int64_t ns = 1'000'000) {
  Trace made;
  for (std::uint32_t l = 0; l < layers; ++l)
    made.tensors.push_back({.name = "x", .bytes = {kilo}, .kind = TensorKind::activation});
  const auto add = [&](Phase phase, std::uint32_t layer, std::vector<TensorIndex> reads,
                       std::vector<TensorIndex> writes) {
    made.layers.push_back({.name = "layer", .phase = phase});
    made.ops.push_back({.name = "conv",
                        .layer = LayerIndex{layer},
                        .phase = phase,
                        .time = {ns},
                        .workspace = {},
                        .reads = std::move(reads),
                        .writes = std::move(writes),
                        .frees = {}});
  };
  for (std::uint32_t l = 0; l < layers; ++l)
    add(Phase::forward, l, l == 0 ? std::vector<TensorIndex>{} : std::vector<TensorIndex>{{l - 1}}, {{l}});
  for (std::uint32_t l = layers; l-- > 0;) add(Phase::backward, 2 * layers - 1 - l, {{l}}, {});
  return made;
}

Plan plan(std::string_view policy, const Trace& trace, const Machine& machine) {
  Plan found = make_policy(policy, 1)->prepare(trace, machine).value();
  const auto broken = check(trace, machine, found);
  EXPECT_FALSE(broken.has_value()) << policy << ": " << broken->message;
  return found;
}

std::vector<Move> of_verb(const Plan& plan, Verb verb) {
  std::vector<Move> found;
  std::copy_if(plan.moves.begin(), plan.moves.end(), std::back_inserter(found),
               [&](const Move& move) { return move.verb == verb; });
  return found;
}

TEST(FlashNeuron, OffloadsFromTheFirstActivationOnUntilTheRestFits) {
  const Trace trace = chain(8);
  const Plan found = plan("flashneuron", trace, testing::two_tiers({6 * kilo}));
  std::vector<std::uint32_t> out;
  for (const Move& move : of_verb(found, Verb::evict)) out.push_back(move.extent.tensor.value);
  ASSERT_FALSE(out.empty());
  for (std::uint32_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i);
}

TEST(FlashNeuron, RefusesWhereWeightsDoNotFit) {
  Trace trace = chain(4);
  for (std::uint32_t t = 0; t < 4; ++t) {
    trace.tensors.push_back({.name = "w", .bytes = {4 * kilo}, .kind = TensorKind::weight, .persistent = true});
    trace.ops[t].reads.push_back({4 + t});
  }
  const auto found = make_policy("flashneuron", 1)->prepare(trace, testing::two_tiers({8 * kilo}));
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().cause, Cause::infeasible);
}

TEST(FlashNeuronOfG10, HoldsBackwardUntilAllOffloadsHaveEnded) {
  const Plan found = plan("flashneuron+", chain(8), testing::two_tiers({7 * kilo}));
  ASSERT_EQ(found.barriers.size(), 1U);
  for (const Move& move : of_verb(found, Verb::evict)) EXPECT_LE(move.due, found.barriers[0]);
  for (const Move& move : of_verb(found, Verb::fetch)) EXPECT_GE(move.issue, found.barriers[0]);
}

TEST(Holes, AreThoseThatAWalkFinds) {
  constexpr std::uint64_t room = 4000;
  planning::Holes holes;
  holes.give({0, room});
  std::map<std::uint64_t, std::uint64_t> taken;  // begin to end, the naive way
  std::mt19937 random(7);
  for (int i = 0; i < 4000; ++i) {
    const bool high = random() % 2 == 0;
    const std::uint64_t bytes = 1 + random() % 120;
    std::optional<planning::Holes::Hole> found;
    std::uint64_t largest = 0, begin = 0;
    const auto look = [&](std::uint64_t end) {
      largest = std::max(largest, end - begin);
      if (end - begin >= bytes && (high || !found)) found = {begin, end};
    };
    for (const auto& [at, end] : taken) look(at), begin = end;
    look(room);
    ASSERT_EQ(holes.largest(), largest);
    const auto got = high ? holes.highest(bytes) : holes.lowest(bytes);
    ASSERT_EQ(got.has_value(), found.has_value());
    if (got && random() % 8 != 0) {
      ASSERT_EQ(got->begin, found->begin);
      ASSERT_EQ(got->end, found->end);
      holes.take(*got);
      holes.give({got->begin + bytes, got->end});
      taken[got->begin] = got->begin + bytes;
    } else if (!taken.empty()) {
      const auto gone = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      holes.give({gone->first, gone->second});
      taken.erase(gone);
    }
  }
}

TEST(G10, MovesThePeriodOfMostBytesAndTimeFirst) {
  const Trace trace = chain(8);  // x0 is idle for the longest time over the line
  const Plan found = plan("g10", trace, testing::two_tiers({7 * kilo}));
  const std::vector<Move> out = of_verb(found, Verb::evict);
  ASSERT_FALSE(out.empty());
  EXPECT_EQ(out.front().extent.tensor, TensorIndex{0});
}

TEST(G10, PlansNoFetchThatItsLinkCannotCarry) {
  // 100 times slower ops than transfers: everything is fetched in time, so nothing waits.
  const Trace trace = chain(8);
  const Machine machine = testing::two_tiers({7 * kilo});
  EXPECT_EQ(replay(trace, machine, plan("g10", trace, machine)).value().measured.stall, Nanoseconds{0});
}

TEST(DeepUm, LearnsWhatFollowsAndFetchesItAhead) {
  const Trace trace = chain(12);
  const Plan found = plan("deepum", trace, testing::two_tiers({6 * kilo}));
  const std::vector<Move> in = of_verb(found, Verb::fetch);
  const auto ahead = std::count_if(in.begin(), in.end(), [](const Move& move) { return move.issue != move.due; });
  EXPECT_GT(2 * ahead, static_cast<std::ptrdiff_t>(in.size()));
}

TEST(Vdnn, ConvMovesNoMoreThanAll) {
  Trace trace = chain(8);
  for (std::size_t i = 0; i < trace.ops.size(); i += 2) trace.ops[i].name = "relu";
  const Machine machine = testing::two_tiers({6 * kilo});
  EXPECT_LE(plan("vdnn-conv", trace, machine).moves.size(), plan("vdnn-all", trace, machine).moves.size());
}

TEST(Vdnn, FetchesOneLayerAhead) {
  for (const Move& move : of_verb(plan("vdnn-all", chain(8), testing::two_tiers({6 * kilo})), Verb::fetch))
    EXPECT_LE(move.due.value - move.issue.value, 1U);
}

// Two tensors of the same size and age: one is cheap to recompute, the link is slow.
Trace recomputable() {
  Trace trace = chain(8, 10'000);
  for (Op& op : trace.ops) op.name = "relu";
  return trace;
}

TEST(Capuchin, RecomputesWhereSwapsWouldShow) {
  const Trace trace = recomputable();
  Machine machine = testing::two_tiers({6 * kilo}, {4096}, 1'000'000);  // 4 ms a tensor against 10 us an op
  machine.can_recompute = true;
  EXPECT_FALSE(plan("capuchin", trace, machine).recomputations.empty());
  machine.can_recompute = false;
  EXPECT_TRUE(plan("capuchin", trace, machine).recomputations.empty());
}

TEST(Capuchin, SwapsWhereTheLinkHidesIt) {
  Machine machine = testing::two_tiers({6 * kilo});
  machine.can_recompute = true;
  EXPECT_TRUE(plan("capuchin", chain(8), machine).recomputations.empty());
}

TEST(Capuchin, FetchesEarlierWhatWasLate) {
  const Trace trace = chain(8, 100'000);
  const Machine machine = testing::two_tiers({6 * kilo}, {4096}, 40'960'000);  // a move takes as long as an op
  const std::unique_ptr<Policy> policy = make_policy("capuchin", 1);
  Plan before = policy->prepare(trace, machine).value(), after = before;
  const std::vector<TierIndex> where(trace.tensors.size());
  const std::vector<Bytes> room(2);
  for (int round = 0; round < 30; ++round) {
    StepMeasured measured{};
    for (std::uint32_t m = 0; m < after.moves.size(); ++m) measured.late.push_back(m);
    if (!policy->react({.kind = Event::Kind::step_ended, .measured = &measured}, {trace, machine, where, room}).replan)
      break;
    after = policy->prepare(trace, machine).value();
    EXPECT_EQ(check(trace, machine, after), std::nullopt);
  }
  const auto lead = [](const Plan& of) {
    std::int64_t sum = 0;
    for (const Move& move : of_verb(of, Verb::fetch))
      sum += static_cast<std::int64_t>(move.due.value) - move.issue.value;
    return sum;
  };
  EXPECT_GE(lead(after), lead(before));
}

TEST(SuperNeurons, RecomputesWhatIsNoCheckpoint) {
  Trace trace = recomputable();
  trace.ops[0].name = trace.ops[4].name = "conv";
  Machine machine = testing::two_tiers({6 * kilo});
  machine.can_recompute = true;
  const Plan found = plan("superneurons", trace, machine);
  EXPECT_FALSE(found.recomputations.empty());
  for (const Recomputation& each : found.recomputations) EXPECT_NE(trace.ops[each.producer.value].name, "conv");
}

// batch_norm, then relu_, where both were tried: what remains of the two is recomputed as one.
TEST(Recomputing, SeesAChainInPlaceAsOneProducer) {
  Trace trace = recomputable();
  std::vector<Op> ops;
  for (const Op& op : trace.ops) {
    ops.push_back(op);
    ops.back().runs_again = true;
    if (op.writes.size() != 1 || op.phase != Phase::forward) continue;
    Op relu = ops.back();
    relu.name = "aten::relu_";
    relu.reads = relu.writes;
    relu.frees = {};
    ops.push_back(relu);
  }
  ASSERT_GT(ops.size(), trace.ops.size());
  trace.ops = std::move(ops);
  Machine machine = testing::two_tiers({6 * kilo}, {4096}, 1'000'000);
  machine.can_recompute = true;
  for (const char* const policy : {"superneurons", "capuchin", "dtr", "vedette"}) {
    const Plan found = plan(policy, trace, machine);
    EXPECT_FALSE(found.recomputations.empty()) << policy;
    for (const Recomputation& each : found.recomputations)
      EXPECT_EQ(trace.ops[each.producer.value].name, "aten::relu_") << policy;
  }
}

TEST(Dtr, MovesNothingWhereItCanRecompute) {
  const Trace trace = recomputable();
  Machine machine = testing::two_tiers({5 * kilo});
  machine.can_recompute = true;
  const Plan found = plan("dtr", trace, machine);
  EXPECT_FALSE(found.recomputations.empty());
  EXPECT_TRUE(of_verb(found, Verb::fetch).empty());
  EXPECT_TRUE(of_verb(found, Verb::evict).empty());
}

// The op with the workspace needs two drops. Where the first is of a tensor that is made from another one, that one has
// to stay, though it would be the next best.
TEST(Dtr, KeepsWhatADropOfTheSameOpNeeds) {
  Trace trace;
  for (int t = 0; t < 3; ++t) trace.tensors.push_back({.name = "x", .bytes = {kilo}, .kind = TensorKind::activation});
  const auto add = [&](std::int64_t ns, std::vector<TensorIndex> reads, std::vector<TensorIndex> writes) {
    trace.ops.push_back({.name = "op",
                         .time = {ns},
                         .workspace = {},
                         .reads = std::move(reads),
                         .writes = std::move(writes),
                         .frees = {}});
  };
  add(2'000, {}, {{0}});
  add(1'000, {{0}}, {{1}});
  add(100'000, {}, {{2}});
  add(10'000, {}, {});
  trace.ops.back().workspace = {2 * kilo};
  add(1'000, {{1}}, {});
  add(1'000, {{0}}, {});
  add(1'000, {{2}}, {});
  Machine machine = testing::two_tiers({3 * kilo});
  machine.can_recompute = true;
  for (std::uint64_t seed = 1; seed <= 32; ++seed) {
    const auto found = make_policy("dtr", seed)->prepare(trace, machine);
    ASSERT_TRUE(found.ok()) << seed << ": " << found.error().message;
    const auto replayed = replay(trace, machine, *found);
    ASSERT_TRUE(replayed.ok()) << seed << ": " << replayed.error().message;
    EXPECT_FALSE(check(trace, machine, *found).has_value()) << seed;
  }
}

TEST(Lms, FetchesNothingAhead) {
  for (const Move& move : of_verb(plan("lms", chain(8), testing::two_tiers({5 * kilo})), Verb::fetch))
    EXPECT_EQ(move.issue, move.due);
}

TEST(ZeroInfinity, MovesOnlyParametersAndStates) {
  const Trace trace = testing::generate_trace(3, {.layers = 6,
                                                  .short_lived = 1,
                                                  .largest_activation = {16 << 10},
                                                  .largest_weight = {512 << 10},
                                                  .moments = 2,
                                                  .plain_sizes = true});
  const Plan found =
      plan("zero-infinity", trace, testing::two_tiers({testing::ample_fast_tier(trace, {4096}).value / 2}));
  EXPECT_FALSE(found.moves.empty());
  for (const Move& move : found.moves) EXPECT_TRUE(trace.tensors[move.extent.tensor.value].persistent);
}

TEST(Dragon, UsesTheFurthestTier) {
  const Trace trace = chain(8);
  Machine machine = testing::two_tiers({5 * kilo});
  machine.tiers.insert(machine.tiers.begin() + 1, {.name = "host", .capacity = {1 << 30}});
  machine.links = {{.source = {0}, .target = {1}},
                   {.source = {1}, .target = {0}},
                   {.source = {0}, .target = {2}},
                   {.source = {2}, .target = {0}}};
  for (const Move& move : of_verb(plan("dragon", trace, machine), Verb::evict)) EXPECT_EQ(move.target, TierIndex{2});
}

TEST(SwapAdvisor, SaysHowFarItGot) {
  const Plan found = plan(
      "swapadvisor", testing::generate_trace(5, testing::random_shape(5)),
      testing::two_tiers(testing::smallest_fast_tier(testing::generate_trace(5, testing::random_shape(5)), {4096})));
  ASSERT_FALSE(found.reasons.empty());
  EXPECT_NE(found.reasons.front().find("generations"), std::string::npos);
}

// ---- Belady ----

class Rules : public planning::OnlineRules {
 public:
  explicit Rules(std::function<double(const planning::Residence&, std::uint32_t)> worth) : worth_(std::move(worth)) {}
  double worth(const planning::Residence& residence, std::uint32_t, std::uint32_t tensor) override {
    return worth_(residence, tensor);
  }

 private:
  std::function<double(const planning::Residence&, std::uint32_t)> worth_;
};

std::uint64_t misses(const Trace& trace, Bytes fast,
                     std::function<double(const planning::Residence&, std::uint32_t)> worth) {
  const Machine machine = testing::two_tiers(fast);
  planning::Ledger ledger(trace, machine);
  Rules rules(std::move(worth));
  planning::Residence residence(ledger, rules);
  EXPECT_TRUE(residence.play(4));
  return residence.misses();
}

TEST(Belady, MissesNoMoreThanAnyDemandPolicyForEqualSizes) {
  using planning::Residence;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    testing::TraceShape shape = testing::random_shape(seed);
    shape.plain_sizes = true;
    shape.largest_weight = shape.largest_activation = {kilo};
    const Trace trace = testing::generate_trace(seed, shape);
    const std::uint64_t least = testing::smallest_fast_tier(trace, {kilo}).value,
                        most = testing::ample_fast_tier(trace, {kilo}).value;
    for (const std::uint64_t fast :
         {least, least + kilo, least + (most - least) / 4 / kilo * kilo, least + (most - least) / 2 / kilo * kilo}) {
      const std::uint64_t best = misses(
          trace, {fast}, [](const Residence& r, std::uint32_t t) { return -static_cast<double>(r.next_use(t)); });
      EXPECT_LE(best, misses(trace, {fast}, [](const Residence& r, std::uint32_t t) { return r.last_use(t); }))
          << "LRU, seed " << seed;
      EXPECT_LE(best, misses(trace, {fast},
                             [](const Residence& r, std::uint32_t t) { return -static_cast<double>(r.last_use(t)); }))
          << "MRU, seed " << seed;
      EXPECT_LE(best, misses(trace, {fast}, [](const Residence& r, std::uint32_t t) { return r.arrived(t); }))
          << "FIFO, seed " << seed;
      EXPECT_LE(best, misses(trace, {fast}, [](const Residence&, std::uint32_t t) { return (t * 7919) % 101; }))
          << "arbitrary, seed " << seed;
    }
  }
}

}  // namespace
}  // namespace vedette::published_test
