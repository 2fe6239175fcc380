// The lower bound: exact where it can be worked out by hand, and never above what any plan reaches.
#include "vedette/bound.h"

#include <gtest/gtest.h>

#include "sim/bound.h"
#include "sim/made.h"
#include "support/generate_trace.h"
#include "support/traces.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::bound_test {
namespace {

Machine two(std::uint64_t fast, bool recompute = false) {
  Machine machine = testing::two_tiers({fast}, {1});  // 1 GB/s each way: a byte in a nanosecond
  machine.can_recompute = recompute;
  return machine;
}
using testing::on_one_bus;
using testing::op;

TEST(Bound, IsTheOpsTimeWhereEverythingFits) {
  const Trace trace{.tensors = {{.name = "w", .bytes = {100}, .persistent = true}}, .ops = {op(50, {{0}})}};
  EXPECT_EQ(lower_bound(trace, two(100)), Nanoseconds{50});
}

TEST(Bound, CountsWhatMustCrossTheLink) {
  // 200 bytes are read each step and 100 fit: at least 100 cross, in a step of 20 ns.
  const Trace trace{
      .tensors = {{.name = "v", .bytes = {100}, .persistent = true}, {.name = "w", .bytes = {100}, .persistent = true}},
      .ops = {op(10, {{0}}), op(10, {{1}})}};
  EXPECT_GE(lower_bound(trace, two(100)), Nanoseconds{100});
  EXPECT_LE(lower_bound(trace, two(100)), Nanoseconds{220});
}

TEST(Bound, CountsWhatMustHaveGoneBeforeALargeOpBegins) {
  // What the first op changes is in the way of the second one's workspace, however long that runs.
  Trace trace{.tensors = {{.name = "w", .bytes = {100}, .persistent = true}},
              .ops = {op(10, {{0}}, {{0}}), op(1000, {})}};
  trace.ops[1].workspace = {100};
  EXPECT_GE(lower_bound(trace, two(100)), Nanoseconds{1109});
  EXPECT_LE(lower_bound(trace, two(100)), Nanoseconds{1210});  // until its room is free, it cannot come back either
}

TEST(Bound, AddsWhatComesToWhatGoesWhereBothTakeTurnsOnABus) {
  // 200 bytes are changed each step and 100 fit: at least 100 come and 100 go, in a step of 20 ns.
  const Trace trace{
      .tensors = {{.name = "v", .bytes = {100}, .persistent = true}, {.name = "w", .bytes = {100}, .persistent = true}},
      .ops = {op(10, {{0}}, {{0}}), op(10, {{1}}, {{1}})}};
  EXPECT_LT(lower_bound(trace, two(100)), Nanoseconds{150});
  EXPECT_GE(lower_bound(trace, on_one_bus(two(100))), Nanoseconds{199});
  EXPECT_LE(lower_bound(trace, on_one_bus(two(100))), Nanoseconds{420});
}

Machine in_host_memory(Machine machine, std::uint64_t bytes_per_s, std::uint64_t processor = 0) {
  machine.host_memory = {.tier = {1}, .bytes_per_s = bytes_per_s, .processor_bytes_per_s = processor};
  return machine;
}

TEST(Bound, AddsWhatComesToWhatGoesInTheHostsMemory) {
  const Trace trace{
      .tensors = {{.name = "v", .bytes = {100}, .persistent = true}, {.name = "w", .bytes = {100}, .persistent = true}},
      .ops = {op(10, {{0}}, {{0}}), op(10, {{1}}, {{1}})}};
  const Nanoseconds free = lower_bound(trace, two(100));
  EXPECT_EQ(lower_bound(trace, in_host_memory(two(100), 2'000'000'000)), free);  // as much as both links have
  // as on a bus, in each of these: what links have together is what one has
  EXPECT_EQ(lower_bound(trace, in_host_memory(two(100), 1'000'000'000)), lower_bound(trace, on_one_bus(two(100))));
  EXPECT_EQ(lower_bound(trace, in_host_memory(two(100), 3'000'000'000, 2'000'000'000)),
            lower_bound(trace, on_one_bus(two(100))));
  // 200 bytes at three quarters of what two links have
  const Nanoseconds some = lower_bound(trace, in_host_memory(two(100), 1'500'000'000));
  EXPECT_GT(some, free);
  EXPECT_GE(some, Nanoseconds{133});
  // half of one link: the bytes that come take 200 ns, and as many go
  EXPECT_GE(lower_bound(trace, in_host_memory(two(100), 500'000'000)), Nanoseconds{399});
  Machine elsewhere = in_host_memory(two(100), 500'000'000);
  elsewhere.tiers.push_back({.name = "host", .capacity = {1000}});
  elsewhere.host_memory.tier = {2};  // no link touches it
  EXPECT_EQ(lower_bound(trace, elsewhere), free);
}

// Of 16 tensors that are changed in turn four fit, so that at least twelve come and go. One after the other at 1 GB/s
// one way and a half of it the other, that takes 2.36 ms; beside each other both have a half of the bus, and it takes
// 1.57.
TEST(Bound, LetsASlowLinkAndAFastOneHaveHalfOfTheirBusEach) {
  Trace trace;
  for (std::uint32_t t = 0; t < 16; ++t) {
    trace.tensors.push_back({.name = "t", .bytes = {64 << 10}, .persistent = true});
    trace.ops.push_back(op(1000, {{t}}, {{t}}));
  }
  Machine machine = on_one_bus(two(4 * (64 << 10)));
  machine.links[1].bytes_per_s /= 2;
  const auto got = replay(trace, machine, *make_policy("vedette", 1)).value();
  EXPECT_GE(got.measured.time, lower_bound(trace, machine));
  EXPECT_LT(got.measured.time, Nanoseconds{2'200'000});
}

TEST(Bound, AllowsMakingAgainWhatIsCheaperThanMoving) {
  const Trace trace{.tensors = {{.name = "a", .bytes = {1000}}, {.name = "b", .bytes = {1000}}},
                    .ops = {op(10, {}, {{0}}), op(10, {}, {{1}}), op(10, {{1}}), op(10, {{0}})}};
  EXPECT_GT(lower_bound(trace, two(1000)), Nanoseconds{500});
  EXPECT_LE(lower_bound(trace, two(1000, true)), Nanoseconds{50});
}

// 0 is made, 1 of it, and 0 dies; 2 fills memory; then 1 is read again.
Trace made_of_what_died(const char* first) {
  Trace trace{.tensors = {{.name = "source", .bytes = {1000}},
                          {.name = "kept", .bytes = {1000}},
                          {.name = "large", .bytes = {2000}}},
              .ops = {op(10, {}, {{0}}), op(10, {{0}}, {{1}}), op(10, {}, {{2}}), op(10, {{2}}), op(10, {{1}})}};
  trace.ops[0].name = first;
  return trace;
}

TEST(Bound, CountsWhatHasDiedAmongWhatMakingAgainTakes) {
  // The source cannot be recomputed: it, or what was made of it, goes out before 2 is made and comes back after 2 was
  // read.
  EXPECT_GE(lower_bound(made_of_what_died("dropout"), two(2000, true)), Nanoseconds{2000});
  // It can: then both producers run again, for 20 ns. Half of that is proven, where the last one alone would prove an
  // eighth.
  EXPECT_LE(lower_bound(made_of_what_died("relu"), two(2000, true)), Nanoseconds{70});
  EXPECT_GE(lower_bound(made_of_what_died("relu"), two(2000, true)), Nanoseconds{59});
}

TEST(Bound, SaysNothingOfADriverThatPages) {
  // Each op reads a tensor of 100 MiB, and there is room for one: 104.9 ms beside an op of 100. A driver that pages
  // lets the op run meanwhile.
  Trace trace{.tensors = {{.name = "v", .bytes = {100 << 20}, .persistent = true},
                          {.name = "w", .bytes = {100 << 20}, .persistent = true}},
              .ops = {op(100'000'000, {{0}}), op(100'000'000, {{1}})}};
  trace.name = "two";
  const Machine machine = two(100 << 20);
  const Nanoseconds bound = lower_bound(trace, machine);
  EXPECT_GT(bound, Nanoseconds{304'000'000});
  std::vector<std::string_view> paged;
  for (const PolicyEntry& entry : policies()) {
    const auto got = replay(trace, machine, *entry.make(1));
    if (!got) continue;
    if (got->paged) paged.push_back(entry.name);
    EXPECT_TRUE(got->paged || got->measured.time >= bound) << entry.name;
    EXPECT_TRUE(entry.name != "deepum+" || got->measured.time < bound) << "the mark has no reason";
  }
  EXPECT_EQ(paged, (std::vector<std::string_view>{"unified-memory", "g10+", "deepum+"}));
}

TEST(Bound, IsNeverAboveWhatAPolicyReaches) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Trace trace = testing::generate_trace(seed, testing::random_shape(seed));
    const std::uint64_t least = testing::smallest_fast_tier(trace, {4096}).value,
                        most = testing::ample_fast_tier(trace, {4096}).value;
    Machine recomputing = testing::two_tiers({least + (most - least) / 4});
    const Machine moving = recomputing;
    recomputing.can_recompute = true;
    Machine uneven = on_one_bus(moving);
    uneven.links[seed % 2].bytes_per_s /= 2;
    const std::uint64_t speed = moving.links[0].bytes_per_s;
    for (const Machine& machine :
         {moving, recomputing, on_one_bus(moving), on_one_bus(recomputing), uneven,
          in_host_memory(moving, speed * 3 / 2), in_host_memory(recomputing, speed * 3 / 2),
          in_host_memory(moving, speed * 2, speed * 3 / 2), in_host_memory(uneven, speed * 3 / 4)}) {
      const Nanoseconds bound = lower_bound(trace, machine);
      EXPECT_LE(sim::coarse_bound(trace, machine), bound);
      for (const char* name : {"vedette", "sentinel", "on-demand", "dtr", "capuchin", "superneurons"}) {
        const auto got = replay(trace, machine, *make_policy(name, 1));
        if (!got.ok()) continue;
        EXPECT_GE(got->measured.time, bound) << name << " beats the bound on generate_trace(seed " << seed << ")";
      }
    }
  }
}

// A little less of a tensor, and a little less memory: the bound moves as its prices say, and elsewhere no further than
// a largest of linear sums can.
TEST(Bound, ItsPricesAreItsDerivatives) {
  int priced = 0, as_told = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const Trace trace = testing::generate_trace(seed, testing::random_shape(seed));
    const std::uint64_t least = testing::smallest_fast_tier(trace, {1}).value,
                        most = testing::ample_fast_tier(trace, {1}).value;
    const Machine moving = testing::two_tiers({least + (most - least) / 4}, {1}, 50'000'000);
    for (const Machine& machine :
         {moving, on_one_bus(moving), in_host_memory(moving, moving.links[0].bytes_per_s * 5 / 4)}) {
      SCOPED_TRACE(seed);
      const MemoryPrices prices = memory_prices(trace, machine);
      const auto bound = [](const Trace& t, const Machine& m) { return static_cast<double>(lower_bound(t, m).value); };
      const double now = bound(trace, machine);
      Nanoseconds ops;
      for (const Op& each : trace.ops) ops += each.time;
      EXPECT_NEAR(prices.waiting_ns, now - static_cast<double>(ops.value), 2 + prices.waiting_ns * 1e-6);
      const auto look = [&](double change, double told) {  // both at least 0
        EXPECT_LE(change, told * (1 + 1e-6) + 3);
        if (told < 100) return;
        ++priced;
        as_told += std::abs(change - told) <= told * 0.01 + 3;
      };
      for (std::size_t t = 0; t < trace.tensors.size(); ++t) {
        Trace smaller = trace;
        const std::uint64_t less = trace.tensors[t].bytes.value / 64;
        smaller.tensors[t].bytes.value -= less;
        look(now - bound(smaller, machine),
             prices.tensor_ns[t] * static_cast<double>(less) / static_cast<double>(trace.tensors[t].bytes.value));
      }
      double of_budget = 0;
      for (const double each : prices.op_ns_per_byte) of_budget += each;
      Machine larger = machine;
      larger.tiers[0].capacity.value += least / 256;
      look(now - bound(trace, larger), of_budget * static_cast<double>(least / 256));
      larger.tiers[0].capacity.value -= least / 128;
      EXPECT_GE(bound(trace, larger) - now, of_budget * static_cast<double>(least / 256) * (1 - 1e-6) - 3);
    }
  }
  EXPECT_GT(priced, 100);
  EXPECT_GE(as_told, priced * 95 / 100) << "of " << priced;
}

TEST(Bound, HasNoPricesWhereNothingWaits) {
  const Trace trace{.tensors = {{.name = "w", .bytes = {100}, .persistent = true}}, .ops = {op(50, {{0}})}};
  const MemoryPrices prices = memory_prices(trace, two(100));
  EXPECT_EQ(prices.waiting_ns, 0);
  EXPECT_EQ(prices.tensor_ns, std::vector<double>{0});
  EXPECT_TRUE(prices.runs.empty());
}

}  // namespace
}  // namespace vedette::bound_test
