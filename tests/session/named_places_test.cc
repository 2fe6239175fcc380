// Places that the program gives its memory by names: plans keep them live, with the same bytes, and what cannot be kept
// is said.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "session/loop.h"
#include "vedette/check.h"
#include "vedette/observer.h"

namespace vedette::named_places_test {
namespace {

using testing::Loop;
using testing::open_session;
using testing::Outcome;
using enum Session::Placement;

constexpr Bytes chunk = 64_KiB;
constexpr std::string_view far = "host@cxl-2025";

class LatestPlan final : public Observer {
 public:
  void opened(const Machine& opened, std::string_view, Bytes, Bytes) override { machine = opened; }
  void planned(std::uint64_t, std::uint64_t, const Trace& trace, const Plan& made) override {
    units = trace;
    plan = made;
    ++plans;
  }
  // of units whose names end so
  std::size_t moves_of(std::string_view names) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        plan.moves, [&](const Move& move) { return units.tensors[move.extent.tensor.value].name.ends_with(names); }));
  }
  std::size_t uses_in_place_of(std::string_view names) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        plan.in_place, [&](const InPlace& use) { return units.tensors[use.tensor.value].name.ends_with(names); }));
  }

  Machine machine;
  Trace units;
  Plan plan;
  std::size_t plans = 0;
};

struct Wanted {
  std::string_view names, tier;
  Session::Placement as = rule;
};

Outcome run(Bytes budget, std::string_view slow, const std::string& policy, const std::vector<Wanted>& places,
            LatestPlan* latest = nullptr) {
  Outcome outcome;
  const auto session = open_session(budget, std::string(slow), policy, chunk, latest, &outcome.messages);
  for (const Wanted& each : places) EXPECT_TRUE(session->place(each.names, each.tier, each.as).ok());
  Loop loop(*session, 8, 5 * chunk.value);  // so that no two tensors share a chunk
  loop.give_names();
  for (std::uint64_t step = 0; step < 8; ++step) outcome.losses.push_back(loop.step(step));
  outcome.state = loop.state();
  outcome.counters = session->counters();
  return outcome;
}

Outcome with_plenty() { return run(64_MiB, "host", "vedette", {}); }
Bytes share_of_peak(const Outcome& plenty, std::uint64_t percent) {
  return {plenty.counters.peak_bytes.value * percent / 100};
}

class PlacesUnder : public ::testing::TestWithParam<const char*> {};

TEST_P(PlacesUnder, WhatIsToStaySlowIsUsedInPlaceAndNeverMoves) {
  const Outcome plenty = with_plenty();
  const Bytes budget = share_of_peak(plenty, 40);
  LatestPlan latest;
  const Outcome placed = run(budget, far, GetParam(), {{"*.moment", "slow"}}, &latest);
  EXPECT_EQ(plenty, placed);
  EXPECT_LE(placed.counters.resident_max_bytes, budget);
  EXPECT_EQ(latest.moves_of(".moment"), 0u);
  EXPECT_GE(latest.uses_in_place_of(".moment"), 8u);
  EXPECT_GT(placed.counters.bytes_in_place.value, 0u);
  EXPECT_TRUE(placed.messages.empty()) << placed.messages.front();
}

TEST_P(PlacesUnder, WhatIsToStayFastNeverMoves) {
  const Outcome plenty = with_plenty();
  const Bytes budget = share_of_peak(plenty, 60);
  LatestPlan unplaced, latest;
  run(budget, "host", GetParam(), {}, &unplaced);
  EXPECT_GT(unplaced.moves_of(".moment"), 0u) << "else it shows nothing";
  const Outcome placed = run(budget, "host", GetParam(), {{"*.moment", "fast"}}, &latest);
  EXPECT_EQ(plenty, placed);
  EXPECT_LE(placed.counters.resident_max_bytes, budget);
  EXPECT_FALSE(latest.plan.moves.empty());
  EXPECT_EQ(latest.moves_of(".moment"), 0u);
  EXPECT_TRUE(placed.messages.empty()) << placed.messages.front();
}

INSTANTIATE_TEST_SUITE_P(Each, PlacesUnder, ::testing::Values("vedette", "sentinel", "belady"));

TEST(NamedPlaces, ARuleForWhichThereIsNoPlanIsSaidAndTheStepIsPlannedWithoutIt) {
  const Outcome plenty = with_plenty();
  LatestPlan latest;
  const Outcome placed = run(share_of_peak(plenty, 40), "host", "vedette", {{"*", "fast"}}, &latest);
  EXPECT_EQ(plenty, placed);
  ASSERT_EQ(placed.messages.size(), 1u);
  EXPECT_NE(placed.messages[0].find("steps are planned without the rules"), std::string::npos) << placed.messages[0];
  EXPECT_FALSE(latest.plan.moves.empty());
}

TEST(NamedPlaces, AHintThatCostsTimeIsNotFollowed) {
  const Outcome plenty = with_plenty();
  LatestPlan latest;
  const Outcome placed = run(share_of_peak(plenty, 60), far, "vedette", {{"*", "slow", hint}}, &latest);
  EXPECT_EQ(plenty, placed);
  EXPECT_TRUE(placed.messages.empty()) << placed.messages.front();
  EXPECT_LT(latest.uses_in_place_of(".weight"), 8u * 3) << "each weight is used by two ops and an update";
}

TEST(NamedPlaces, TheLatestThatMatchesCounts) {
  const Outcome plenty = with_plenty();
  LatestPlan latest;
  const Outcome placed =
      run(share_of_peak(plenty, 60), far, "vedette", {{"*.moment", "slow"}, {"layer3.*", "fast"}}, &latest);
  EXPECT_EQ(plenty, placed);
  EXPECT_EQ(latest.uses_in_place_of("layer3.moment"), 0u);
  EXPECT_EQ(latest.moves_of("layer3.moment"), 0u);
  EXPECT_GT(latest.uses_in_place_of("layer4.moment"), 0u);
}

TEST(NamedPlaces, ANameThatNothingHasIsSaidOnce) {
  const Outcome placed = run(64_MiB, "host", "vedette", {{"*.exp_avg*", "fast", hint}});
  const auto says = [](const std::string& message) {
    return message.find("no tensor of the step") != std::string::npos;
  };
  ASSERT_EQ(std::ranges::count_if(placed.messages, says), 1);
  const auto sentence = std::ranges::find_if(placed.messages, says);
  EXPECT_NE(sentence->find("place(\"*.exp_avg*\")"), std::string::npos) << *sentence;
  EXPECT_NE(sentence->find("layer0.weight"), std::string::npos) << *sentence;
}

TEST(NamedPlaces, AnErrorSaysWhatToWrite) {
  const auto session = open_session(8_MiB, "host", "vedette", chunk);
  const auto sentence = [&](std::string_view names, std::string_view tier) {
    const auto placed = session->place(names, tier);
    return placed ? std::string() : placed.error().message;
  };
  EXPECT_EQ(sentence("*", "near"), "place(\"*\"): \"near\" is no place for tensors; write \"fast\" or \"slow\"");
  EXPECT_NE(sentence("", "fast").find("write a pattern"), std::string::npos);
  EXPECT_EQ(sentence("*.moment", "slow"),
            "place(\"*.moment\"): nothing can be used in the slow memory of \"host\" without coming back; it can with "
            "slow = \"numa:1\", or \"host@cxl-2025\" to try it");
  EXPECT_EQ(sentence("*.moment", "fast"), "");
  EXPECT_TRUE(Session::switched_off()->place("*", "fast").ok());
}

}  // namespace
}  // namespace vedette::named_places_test
