// The driver that pages, as G10's artifact simulates it. Worked out by hand: one byte travels in a nanosecond, and
// blocks of 10 bytes arrive with the tick that begins every 10 ns, the first at once.
#include <gtest/gtest.h>

#include "sim/made.h"
#include "support/traces.h"
#include "vedette/replay.h"

namespace vedette::pager_test {
namespace {

using testing::op;
using testing::tensor;
using testing::trace;

constexpr TierIndex fast{0}, host{1};

Machine machine(std::uint64_t fast_bytes) { return testing::two_tiers({fast_bytes}, {1}); }

Plan paging(std::vector<TierIndex> home, std::uint32_t window = 0) {
  return {.home = std::move(home), .block = {10}, .paging = Paging{.window = window}};
}

std::uint64_t moved(const Replayed& replayed, std::uint32_t tensor, TierIndex target) {
  std::uint64_t bytes = 0;
  for (const Bar& bar : replayed.timeline)
    bytes += bar.kind == Bar::Kind::move && bar.tensor.value == tensor && bar.target == target ? bar.bytes.value : 0;
  return bytes;
}

// Gives one hint when op 0 begins.
class Hinting final : public Policy {
 public:
  Hinting(Plan plan, Move hint) : plan_(std::move(plan)), hint_(hint) {}
  std::string_view name() const noexcept override { return "hinting"; }
  Result<Plan> prepare(const Trace&, const Machine&) override { return plan_; }
  Reaction react(const Event& event, const View&) override {
    Reaction reaction;
    if (event.kind == Event::Kind::op_begins && event.op.value == 0) reaction.moves.push_back(hint_);
    return reaction;
  }

 private:
  Plan plan_;
  Move hint_;
};

Move to(TierIndex target, std::uint32_t tensor) {
  return {.issue = {},
          .due = {},
          .extent = {{tensor}, {}},
          .source = target == fast ? host : fast,
          .target = target,
          .verb = target == fast ? Verb::fetch : Verb::evict};
}

TEST(Paging, AFaultAddsItsBytesToTheOpAndSoDoesABirth) {
  const Trace read = trace({tensor(100)}, {op(50, {{0}})}), written = trace({tensor(100, false)}, {op(50, {}, {{0}})});
  EXPECT_EQ(replay(read, machine(100), paging({host}), {.steps = 1}).value().measured.stall, Nanoseconds{100});
  EXPECT_EQ(replay(written, machine(100), paging({fast}), {.steps = 1}).value().measured.stall, Nanoseconds{100});
}

TEST(Paging, AnOpRunsWhileWhatWasAskedForIsOnItsWay) {
  // the last block comes 80 ns after the second op began
  for (const auto& [time, stall] : {std::pair{500, 0}, {50, 30}}) {
    const Trace one = trace({tensor(100)}, {op(10, {}), op(time, {{0}})});
    Hinting policy(paging({host}), to(fast, 0));
    EXPECT_EQ(replay(one, machine(100), policy, {.steps = 1}).value().measured.stall, Nanoseconds{stall});
  }
  const Trace born = trace({tensor(100, false)}, {op(10, {}), op(50, {}, {{0}})});
  Hinting policy(paging({fast}), to(fast, 0));
  EXPECT_EQ(replay(born, machine(100), policy, {.steps = 1}).value().measured.stall, Nanoseconds{0});
}

TEST(Paging, WhoArrivedFirstLeavesAlthoughItWasUsedLast) {
  const Trace one = trace({tensor(100), tensor(100), tensor(100)}, {op(10, {{1}}), op(10, {{0}}), op(10, {{2}})});
  const Replayed got = replay(one, machine(200), paging({fast, fast, host}), {.steps = 1, .timeline = true}).value();
  EXPECT_EQ(moved(got, 0, host), 100U);
  EXPECT_EQ(moved(got, 1, host), 0U);
}

TEST(Paging, AnOperandThatLeavesForAnotherComesBack) {
  const Trace one = trace({tensor(100), tensor(100), tensor(100)}, {op(10, {{1}, {2}}), op(10, {{0}, {2}})});
  const Replayed got = replay(one, machine(200), paging({host, fast, fast}), {.steps = 1, .timeline = true}).value();
  EXPECT_EQ(moved(got, 1, host), 100U);
  EXPECT_EQ(moved(got, 0, fast), 100U);
  const Replayed swapped =
      replay(one, machine(200), paging({host, fast, fast}), {.steps = 2, .timeline = true}).value();
  // in the second step op 0 wants tensor 1, and tensor 2, its other operand, came first
  EXPECT_GT(moved(swapped, 2, fast), 0U);
}

TEST(Paging, WhatIsToldToLeaveLeavesBeforeItComesBack) {
  const Trace one = trace({tensor(100)}, {op(10, {{0}}), op(10, {{0}})});
  Hinting policy(paging({fast}), to(host, 0));
  const Replayed got = replay(one, machine(100), policy, {.steps = 1}).value();
  EXPECT_EQ(got.bytes_out, Bytes{100});
  EXPECT_EQ(got.bytes_in, Bytes{100});
  EXPECT_GT(got.measured.stall, Nanoseconds{0});
}

TEST(Paging, WhatIsAskedForAheadDisplacesNothingOfTheWindow) {
  const Trace one = trace({tensor(100), tensor(100), tensor(100)}, {op(1000, {{0}}), op(1000, {{1}}), op(1000, {{2}})});
  for (const std::uint32_t window : {0U, 2U}) {
    Hinting policy(paging({fast, fast, host}, window), to(fast, 2));
    const Replayed got = replay(one, machine(200), policy, {.steps = 1, .timeline = true}).value();
    std::int64_t first = 3000;
    for (const Bar& bar : got.timeline)
      first = bar.kind == Bar::Kind::move ? std::min(first, bar.time.begin.value) : first;
    EXPECT_EQ(first, window == 0 ? 0 : 1010);  // the first tick of op 1: until then tensor 0 is of the window
  }
}

TEST(Paging, TheDeadLeaveWithoutATransferInTheirTurn) {
  const Trace one = trace({tensor(100, false), tensor(100, false)},
                          {op(10, {}, {{0}}), op(10, {{0}}), op(10, {}, {{1}}), op(10, {{1}})});
  Plan plan = paging({fast, fast}, 1);
  for (const auto& [after_life, out] :
       {std::pair{AfterLife::kept, 200U}, {AfterLife::dropped, 0U}, {AfterLife::freed, 0U}}) {
    plan.after_life = after_life;
    EXPECT_EQ(replay(one, machine(100), plan).value().bytes_out, Bytes{out});
  }
}

// A fetch waits until an op of eleven days has ended: its ticks pass at once.
TEST(Paging, TakesAsLongAsBlocksMoveHoweverLongAnOpIs) {
  constexpr std::int64_t days = 1'000'000'000'000'000;
  const Trace one = trace({tensor(100), tensor(100), tensor(100)}, {op(days, {{0}}), op(1000, {{1}}), op(1000, {{2}})});
  Hinting policy(paging({fast, fast, host}, 2), to(fast, 2));
  const Replayed got = replay(one, machine(200), policy, {.steps = 1, .timeline = true}).value();
  std::int64_t first = 2 * days;
  for (const Bar& bar : got.timeline)
    first = bar.kind == Bar::Kind::move ? std::min(first, bar.time.begin.value) : first;
  EXPECT_EQ(first, days + 10);
  EXPECT_EQ(got.measured.time, Nanoseconds{days + 2000});
}

// Each of a thousand blocks that leave takes a million ticks: a link carries a byte a tick at least.
TEST(Paging, TakesAsLongAsBlocksMoveHoweverSlowALinkIs) {
  Machine slow = machine(1'000'000'000);
  for (Link& link : slow.links)
    if (link.source == fast) link.bytes_per_s = 1;
  const Trace one = trace({tensor(1'000'000'000), tensor(1'000'000'000)}, {op(10, {{0}}), op(10, {{1}})});
  Plan plan = paging({fast, host});
  plan.block = {1'000'000};
  constexpr std::int64_t tick = 1'000'000, of_a_block = 1'000'000 * tick;
  EXPECT_EQ(replay(one, slow, plan, {.steps = 1}).value().measured.stall,
            Nanoseconds{999 * of_a_block + tick - 10 - 10});
}

TEST(Paging, RefusesAnOpThatIsTooLargeAndAPlanThatSaysMore) {
  const Trace one = trace({tensor(100)}, {op(10, {{0}})});
  EXPECT_EQ(replay(one, machine(90), paging({host})).error().cause, Cause::infeasible);
  Plan plan = paging({host});
  plan.moves = {to(fast, 0)};
  EXPECT_EQ(replay(one, machine(100), plan).error().cause, Cause::unsupported);
  EXPECT_EQ(replay(one, machine(100), paging({{2}})).error().cause, Cause::malformed_input);
  plan = paging({host});
  plan.block = {0};
  EXPECT_EQ(replay(one, machine(100), plan).error().cause, Cause::malformed_input);
}

}  // namespace
}  // namespace vedette::pager_test
