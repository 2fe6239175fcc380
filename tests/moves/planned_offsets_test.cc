// Places of planned steps, judged by a map of who lies at each byte in each op: no code is shared with what plans.
#include "moves/planned_offsets.h"

#include <gmock/gmock.h>

#include <random>

namespace vedette::moves::planned_offsets_test {
namespace {

struct Program {
  StepShape shape;
  std::vector<Residency> residencies;
};

bool resident(const Residency& each, std::uint32_t op) {
  const std::uint32_t begin = each.ops.begin.value, end = each.ops.end.value;
  return begin < end ? begin <= op && op < end : begin <= op || op < end;
}

std::uint64_t live_in(const Program& program, std::uint32_t op) {
  std::uint64_t sum = 0;
  for (const Residency& each : program.residencies) {
    if (resident(each, op)) sum += (each.bytes.value + 63) / 64 * 64;
  }
  return sum;
}

Program random_program(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); };
  Program program{.shape = {.ops = 2 + below(30), .alignment = {64}}};
  const std::uint32_t count = 1 + below(40);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t begin = below(program.shape.ops);
    const std::uint32_t end = below(8) == 0 ? begin : below(4) == 0 ? below(program.shape.ops) : begin + 1;
    program.residencies.push_back(
        {.storage = {i}, .ops = {{begin}, {std::min(end, program.shape.ops)}}, .bytes = {1 + below(4000)}});
  }
  return program;
}

// The first thing that is wrong with a placement; empty where nothing is.
std::string fault(const Program& program, const Placement& placement) {
  constexpr std::uint64_t unit = 64;
  for (std::uint32_t op = 0; op < program.shape.ops; ++op) {
    std::vector<int> owner(program.shape.budget.value / unit + 1, -1);
    for (std::size_t i = 0; i < program.residencies.size(); ++i) {
      const Residency& each = program.residencies[i];
      if (!resident(each, op)) continue;
      const std::uint64_t offset = placement.offset[i];
      if (offset % unit != 0) return "an offset is not aligned";
      if (offset + each.bytes.value > program.shape.budget.value) return "the budget is exceeded";
      for (std::uint64_t at = offset / unit; at * unit < offset + each.bytes.value; ++at) {
        if (owner[at] >= 0) return "two storages share a byte in op " + std::to_string(op);
        owner[at] = static_cast<int>(i);
      }
    }
  }
  return "";
}

TEST(PlannedPlaces, OverlapNowhereInOpAndBytesAndKeepTheBudget) {
  std::size_t placed = 0;
  for (unsigned seed = 1; seed <= 600; ++seed) {
    Program program = random_program(seed);
    std::uint64_t most = 0;
    for (std::uint32_t op = 0; op < program.shape.ops; ++op) most = std::max(most, live_in(program, op));
    for (const double slack : {1.0, 1.05, 2.0}) {
      program.shape.budget = {static_cast<std::uint64_t>(static_cast<double>(most) * slack)};
      const auto placement = place_step(program.residencies, program.shape);
      if (!placement) {
        EXPECT_EQ(placement.error().cause, Cause::infeasible);
        EXPECT_LT(slack, 2.0) << "seed " << seed << ": " << placement.error().message;
        continue;
      }
      ++placed;
      ASSERT_EQ(fault(program, *placement), "") << "seed " << seed << ", slack " << slack;
      EXPECT_EQ(placement->most_live.value, most) << "seed " << seed;
      EXPECT_LE(placement->peak, program.shape.budget);
    }
  }
  EXPECT_GT(placed, 1500u) << "of 1800: most plans fit into what is live at once";
}

TEST(PlannedPlaces, AStorageThatStaysIntoTheNextStepLeavesItsBytesInBetween) {
  const StepShape shape{.ops = 10, .budget = {1024}};
  const auto placement = place_step(
      {{.storage = {0}, .ops = {{8}, {2}}, .bytes = {1024}}, {.storage = {1}, .ops = {{2}, {8}}, .bytes = {1024}}},
      shape);
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->offset, (std::vector<std::uint64_t>{0, 0}));
}

TEST(PlannedPlaces, TheOpThatDoesNotFitIsNamed) {
  const auto refused = place_step(
      {{.storage = {0}, .ops = {{0}, {3}}, .bytes = {512}}, {.storage = {1}, .ops = {{2}, {4}}, .bytes = {512}}},
      {.ops = 4, .budget = {512}});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("op 2 needs 1.0 KiB of 512 B; evict more before it"));
}

TEST(PlannedPlaces, AnOpThatTheStepHasNotIsRefused) {
  const auto refused = place_step({{.storage = {7}, .ops = {{0}, {9}}, .bytes = {1}}}, {.ops = 4, .budget = {512}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().cause, Cause::malformed_input);
}

}  // namespace
}  // namespace vedette::moves::planned_offsets_test
