// Steps in a row that touch other chunks each, against examples worked out by hand. One byte travels in one nanosecond,
// each way on its own.
#include <gtest/gtest.h>

#include "sim/made.h"
#include "support/traces.h"
#include "vedette/replay.h"

namespace vedette::rows_test {
namespace {

using testing::op;
using testing::tensor;
using testing::trace;

Machine machine(std::uint64_t fast_bytes) { return testing::two_tiers({fast_bytes}, {1}); }

// Chunks of 10 bytes, 5 bytes held beside them.
Rows rows(std::uint32_t chunks, std::vector<std::vector<RowAccess>> steps) {
  return {.always_near = {0}, .held = {5}, .chunk = {10}, .chunks = chunks, .steps = std::move(steps)};
}

RowAccess touches(std::uint32_t op, std::vector<Span<std::uint32_t>> chunks) {
  return {.op = {op}, .chunks = std::move(chunks)};
}

// Plans nothing and remembers what it was shown.
struct Witness final : Policy {
  std::vector<Trace> planned;
  std::vector<Event::Kind> heard;
  std::vector<std::size_t> tensors_heard_of;
  std::string_view name() const noexcept override { return "witness"; }
  Result<Plan> prepare(const Trace& shown, const Machine&) override {
    planned.push_back(shown);
    Plan plan;
    plan.home.resize(shown.tensors.size());
    return plan;
  }
  Reaction react(const Event& event, const View& view) override {
    heard.push_back(event.kind);
    tensors_heard_of.push_back(view.trace.tensors.size());
    return {};
  }
};

std::vector<std::int64_t> times(const Replayed& replayed) {
  std::vector<std::int64_t> found;
  for (const Nanoseconds each : replayed.step_times) found.push_back(each.value);
  return found;
}

TEST(Rows, OfEachStepAreFetchedWhereTheyAreAwayAndChangedOnesWritten) {
  // Room for two chunks; 0 and 1 are near at first. The second step wants 2 and 3: 0 is written by 10, 2 comes
  // meanwhile 1 is written, 3 comes by 30.
  const Trace one = trace({tensor(25)}, {op(100, {{0}})});
  const Rows two = rows(4, {{touches(0, {{0, 2}})}, {touches(0, {{2, 4}})}});
  Witness policy;
  const Replayed got = replay(one, two, machine(25), policy, {.steps = 4}).value();
  EXPECT_EQ(times(got), (std::vector<std::int64_t>{100, 130, 130, 130}));
  EXPECT_EQ(got.measured.stall, Nanoseconds{30});
  EXPECT_EQ(got.bytes_in, Bytes{20});
  EXPECT_EQ(got.bytes_out, Bytes{20});
  EXPECT_EQ(got.peak, Bytes{25});
}

TEST(Rows, LeaveInTheOrderInWhichTheyWereTouchedAndBeforeWhatIsPlanned) {
  // Room for tensor 1 and two chunks. Op 0 touches 1, op 1 touches 0; then op 0 wants 2, for which 1 leaves, not 0 and
  // not the tensor that op 1 reads.
  const Trace one = trace({tensor(25), tensor(10)}, {op(100, {{0}}), op(100, {{0}, {1}})});
  const Rows two =
      rows(3, {{touches(0, {{1, 2}}), touches(1, {{0, 1}})}, {touches(0, {{2, 3}}), touches(1, {{0, 1}})}});
  Witness policy;
  const Replayed got = replay(one, two, machine(35), policy, {.steps = 3}).value();
  EXPECT_EQ(times(got), (std::vector<std::int64_t>{200, 220, 220}));
  EXPECT_EQ(got.measured.op_stall, (std::vector<Nanoseconds>{{20}, {0}}));
  EXPECT_EQ(got.bytes_in, Bytes{10});
}

TEST(Rows, TheStepThatStandsForTheOthersWouldSayThatNothingMoves) {
  const Trace one = trace({tensor(25)}, {op(100, {{0}})});
  Witness policy;
  EXPECT_EQ(times(replay(one, machine(25), policy).value()), (std::vector<std::int64_t>{100, 100, 100}));
}

TEST(Rows, APolicySeesWhatItSeesLive) {
  const Trace one = trace({tensor(25)}, {op(100, {{0}})});
  const Rows two = rows(4, {{touches(0, {{0, 2}})}, {touches(0, {{2, 4}})}});
  Witness policy;
  ASSERT_TRUE(replay(one, two, machine(25), policy, {.steps = 4}));
  ASSERT_EQ(policy.planned.size(), 1u);
  EXPECT_EQ(policy.planned[0].tensors.size(), 1u);
  EXPECT_EQ(policy.planned[0].tensors[0].bytes, Bytes{15});  // what is held, and half of the other 20
  EXPECT_EQ(policy.heard, std::vector<Event::Kind>(4, Event::Kind::step_ended));
  EXPECT_EQ(policy.tensors_heard_of, std::vector<std::size_t>(4, 1));
}

// A table of 40 chunks. Each step touches the first four, and four others. Room is for eight chunks: where slower
// memory can be used in place, the four stay near and the others are used there.
TEST(Rows, ThatFewStepsTouchAreUsedInPlaceAndTheHotOnesStayNear) {
  const Trace one = trace({tensor(5 + 80)}, {op(100, {{0}})});
  std::vector<std::vector<RowAccess>> steps;
  for (std::uint32_t s = 0; s < 9; ++s) steps.push_back({touches(0, {{0, 4}, {5 + 4 * s % 36, 7 + 4 * s % 36}})});
  const auto table = [&] {
    Rows made = rows(40, steps);
    made.touched = {2};  // bytes of a chunk
    return made;
  };
  const Machine moved = machine(165);  // of 16 chunks half is for rows
  Machine used_there = moved;
  used_there.tiers[1].addressable = true;
  Witness policy;
  const ReplayOptions twice{.steps = 18};
  const Replayed on_demand = replay(one, table(), moved, policy, twice).value(),
                 by_heat = replay(one, table(), used_there, policy, twice).value();
  const Trace no_room = trace({tensor(5)}, {op(100, {{0}})});  // so that no chunk of the table is hot
  const Replayed whole = replay(no_room, table(), used_there, policy, twice).value();
  // of two cold chunks two bytes, read and written, at a byte a nanosecond
  EXPECT_EQ(by_heat.measured.time, Nanoseconds{100 + 2 * 4});
  EXPECT_EQ(whole.measured.time, Nanoseconds{100 + 6 * 4}) << "the whole table lies in slower memory";
  EXPECT_EQ(by_heat.bytes_in + by_heat.bytes_out, Bytes{0});
  EXPECT_LT(by_heat.measured.time, on_demand.measured.time);
  EXPECT_LT(by_heat.bytes_in + by_heat.bytes_out, on_demand.bytes_in + on_demand.bytes_out);
}

TEST(Rows, OfAnotherTraceAreRefused) {
  const Trace one = trace({tensor(25)}, {op(100, {{0}})});
  Witness policy;
  const auto refused = replay(one, rows(4, {{touches(1, {{0, 2}})}}), machine(25), policy);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "rows: step 0, row 0 names an op that the trace does not have");
}

}  // namespace
}  // namespace vedette::rows_test
