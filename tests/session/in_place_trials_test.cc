// What ops lose by operands in slower memory, by their kind.
#include "session/in_place_trials.h"

#include <gtest/gtest.h>

namespace vedette::detail::in_place_trials_test {
namespace {

std::vector<Op> ops_named(std::initializer_list<const char*> names) {
  std::vector<Op> ops;
  for (const char* const name : names) ops.push_back({.name = name});
  return ops;
}

TEST(InPlaceTrials, PriceAKindOfOpByItsLeastTimesThereAndNear) {
  const std::vector<Op> ops = ops_named({"mul", "addmm", "mul", "gather"});
  const Nanoseconds near[] = {{100}, {1000}, {100}, {50}};
  InPlaceTrials trials;
  for (std::uint32_t step = 0; step < InPlaceTrials::enough; ++step) {
    const std::int64_t busy = step == 2 ? 0 : 10'000;  // what else the machine does
    trials.used(0, {100}, {190 + busy});
    trials.used(1, {100}, {1000 + busy});
    trials.used(2, {300}, {370 + busy});
    if (step > 0) trials.used(3, {100}, {500});
  }
  const std::vector<InPlacePrice> expected = {{.op = "addmm", .percent = 5},  // hidden by its arithmetic; not free
                                              {.op = "mul", .percent = 90}};  // 90 and 270 of 100 and 300
  EXPECT_EQ(trials.prices(ops, near), expected) << "gather has not run often enough";
}

TEST(InPlaceTrials, OfOtherBytesAreAnotherTrial) {
  const std::vector<Op> ops = ops_named({"mul"});
  const Nanoseconds near[] = {{100}};
  InPlaceTrials trials;
  for (std::uint32_t step = 0; step < InPlaceTrials::enough; ++step)
    trials.used(0, {step == 0 ? 10 : 100}, {step == 0 ? 110 : 150});
  EXPECT_TRUE(trials.prices(ops, near).empty());
  trials.used(0, {100}, {150});
  EXPECT_EQ(trials.prices(ops, near), (std::vector<InPlacePrice>{{.op = "mul", .percent = 50}}));
}

TEST(TakePrices, AsksForAnotherPlanWhereOneDiffersByAFifth) {
  Machine machine;
  EXPECT_FALSE(take_prices({}, machine));
  EXPECT_FALSE(take_prices(std::vector<InPlacePrice>{{.op = "mul", .percent = 88}}, machine))
      << "100 where none is known";
  EXPECT_TRUE(machine.in_place_prices.empty());
  EXPECT_TRUE(take_prices(std::vector<InPlacePrice>{{.op = "b", .percent = 110}, {.op = "c", .percent = 30}}, machine));
  EXPECT_TRUE(take_prices(std::vector<InPlacePrice>{{.op = "a", .percent = 10}, {.op = "c", .percent = 50}}, machine));
  EXPECT_EQ(
      machine.in_place_prices,
      (std::vector<InPlacePrice>{{.op = "a", .percent = 10}, {.op = "b", .percent = 110}, {.op = "c", .percent = 50}}));
}

}  // namespace
}  // namespace vedette::detail::in_place_trials_test
