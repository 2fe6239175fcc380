// Large ops in sections, live. An op that makes results while it reads its operands one after the other is planned in
// sections after two planned steps. It ends with the same bytes in any budget, and may change its accesses later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "session/loop.h"
#include "support/sanitized.h"

namespace vedette::sections_test {
namespace {

using testing::Block;
using testing::open_session;
using testing::Outcome;

constexpr std::size_t bytes = 1 << 20;  // 16 chunks
constexpr Bytes chunk = 64_KiB;

// Layers of "backward": scratch of the gradient, the input's gradient, then the input itself and scratch of it. Between
// them it computes for a millisecond on its scratch alone.
class Backward {
 public:
  Backward(Session& session, std::size_t layers) : session_(session) {
    for (std::size_t l = 0; l < layers; ++l) {
      inputs_.emplace_back(session_, bytes, true);
      inputs_[l].fill(l + 1);
    }
  }

  bool input_first = false;      // touches the input when it should not need it yet
  bool without_scratch = false;  // does not make its last scratch

  std::uint64_t step(std::uint64_t number) {
    auto scope = session_.step();
    Block gradient(session_, bytes);
    gradient.fill(number);
    std::uint64_t loss = 0;
    for (Block& input : inputs_) {
      const void* reads[] = {gradient.address()};
      const void* writes[] = {input.address()};
      auto op = session_.op("backward", reads, writes);
      Block reordered(session_, bytes);
      for (std::size_t i = 0; i < reordered.count(); ++i) reordered[i] = gradient[i] * 7 + (input_first ? input[i] : 0);
      compute_on_registers();
      Block result(session_, bytes);
      compute(reordered, result);
      reordered.drop();
      Block again(session_, without_scratch ? 8 : bytes);
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < result.count(); ++i) {
        const std::uint64_t value = input[i] ^ result[i];
        sum += value;
        if (!without_scratch) again[i] = value;
      }
      for (std::size_t i = 0; i < result.count(); ++i) input[i] += result[i];
      compute_on_registers();
      loss = loss * 31 + sum;
      gradient = std::move(result);
    }
    return loss;
  }
  std::uint64_t state() const {
    std::uint64_t all = 0;
    for (const Block& b : inputs_) all = all * 31 + b.sum();
    return all;
  }

 private:
  static void compute(const Block& from, Block& to) {
    for (std::size_t i = 0; i < to.count(); ++i) to[i] = from[i] * 6364136223846793005U + from[from.count() - 1 - i];
    compute_on_registers();
  }
  static void compute_on_registers() {  // long enough for a section
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
    while (std::chrono::steady_clock::now() < until) {
    }
  }
  Session& session_;
  std::vector<Block> inputs_;
};

using Habits = std::function<void(Backward&, std::uint64_t)>;
const Habits always_alike = [](Backward&, std::uint64_t) {};

struct Ran : Outcome {
  Trace planned;                      // as the session plans it at the end
  std::vector<std::uint64_t> faults;  // of each step
  std::uint64_t faults_at_last() const { return faults.back() + *std::prev(faults.end(), 2); }  // of the last two steps
};

Ran run(Bytes budget, const std::string& policy = "vedette", const Habits& habits = always_alike,
        std::uint64_t steps = 8, std::chrono::milliseconds after_faults = {}) {
  Ran ran;
  const auto session = open_session(budget, "host", policy, chunk, nullptr, &ran.messages);
  Backward loop(*session, 6);
  for (std::uint64_t s = 0; s < steps; ++s) {
    const std::uint64_t before = session->counters().faults;
    habits(loop, s);
    ran.losses.push_back(loop.step(s));
    ran.faults.push_back(session->counters().faults - before);
    if (s >= 5 && ran.faults.back() > 0) std::this_thread::sleep_for(after_faults);
  }
  ran.state = loop.state();
  ran.counters = session->counters();
  for (const PlannedStep& step : session->planned_steps()) ran.planned = step.trace;
  return ran;
}

TEST(Sections, ArePlannedWhereAnOpDoesNotTouchAllItsOperandsAllTheTime) {
  const Ran ran = run(64_MiB);
  EXPECT_EQ(ran.planned.ops.size(), 6U * 3) << "six ops: the gradient, its scratch alone, the input";
  EXPECT_LT(largest_op_bytes(ran.planned).value, 4 * bytes)
      << "gradient, input, two results and scratch are never needed all at once";
  EXPECT_THAT(ran.messages, ::testing::Each(::testing::StartsWith("all of a step fits")));
}

class SectionsIn : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(SectionsIn, AnyBudgetEndWithTheSameBytes) {
  const auto& [policy, percent] = GetParam();
  const Ran plenty = run(64_MiB, policy);
  const Bytes budget{plenty.counters.peak_bytes.value * static_cast<std::uint64_t>(percent) / 100};
  const Ran tight = run(budget, policy);
  EXPECT_EQ(plenty, tight);
  EXPECT_LE(tight.counters.resident_max_bytes.value, budget.value);
  EXPECT_EQ(tight.faults_at_last(), 0U) << "every section brings what it touches";
}
INSTANTIATE_TEST_SUITE_P(Each, SectionsIn,
                         ::testing::Combine(::testing::Values("vedette", "sentinel", "belady", "on-demand"),
                                            ::testing::Values(80, 60)),
                         [](const auto& each) {
                           std::string name = std::get<0>(each.param) + "_" + std::to_string(std::get<1>(each.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Sections, ServeAnOpThatChangesItsHabits) {
  const Habits changes = [](Backward& loop, std::uint64_t step) { loop.input_first = step >= 5; };
  // each of the six ops may fault in a step of its own, also late: plans are made anew when times settle
  constexpr std::uint64_t steps = 40;
  const Ran plenty = run(64_MiB, "vedette", changes, steps);
  const Bytes budget{plenty.counters.peak_bytes.value * 60 / 100};
  // A plan is made beside the program, and has arrived after this time.
  const std::chrono::milliseconds planning{testing::sanitized ? 3000 : 200};
  const Ran tight = run(budget, "vedette", changes, steps, planning);
  EXPECT_EQ(plenty, tight);
  EXPECT_LE(tight.counters.resident_max_bytes.value, budget.value);
  EXPECT_LE(
      std::count_if(tight.faults.begin() + 5, tight.faults.end(), [](std::uint64_t faults) { return faults > 0; }), 6)
      << "six ops, each at most once";
  EXPECT_EQ(tight.faults_at_last(), 0U) << "an op that faults in its sections is planned whole again";
  Nanoseconds planned_for;
  for (const Op& op : tight.planned.ops) planned_for += op.time;
  EXPECT_GE(planned_for.value, 6 * 3'000'000) << "six ops, each of which computes for a millisecond three times: whole "
                                                 "again they take as long as their sections did";
}

TEST(Sections, GoOnWhereAnOpDoesNotAllocateAsItDid) {
  const Habits changes = [](Backward& loop, std::uint64_t step) { loop.without_scratch = step >= 5; };
  const Ran plenty = run(64_MiB, "vedette", changes);
  const Bytes budget{plenty.counters.peak_bytes.value * 60 / 100};
  const Ran tight = run(budget, "vedette", changes);
  EXPECT_EQ(plenty, tight);
  EXPECT_LE(tight.counters.resident_max_bytes.value, budget.value);
}

}  // namespace
}  // namespace vedette::sections_test
