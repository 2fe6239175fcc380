// The recording of a run whose steps follow a plan, an earlier step that was like them, or nothing: the report says how
// many of each there were and what they cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "profiler/report/report.h"
#include "report/hand_made.h"
#include "session/player.h"

namespace vedette::report::irregular_test {
namespace {

using ::testing::HasSubstr;
using testing::Player;
using testing::SessionPlayer;

constexpr std::size_t chunk = 64 << 10;

// Layers forward and an update. Sizes may differ, names too: then no earlier step is like it.
void step(Player& player, const Player::Tensors& weights, std::size_t bytes, const std::string& names) {
  player.step([&] {
    Player::Tensor x = player.make(bytes, false);
    player.fill(x, bytes);
    for (const Player::Tensor w : weights) player.drop(std::exchange(x, player.made("forward" + names, bytes, {x, w})));
    for (const Player::Tensor w : weights) player.changed("update" + names, {w}, {x});
    player.drop(x);
  });
}

struct Told {
  std::uint64_t steps = 0;
  std::uint64_t moved = 0, stall = 0, faults = 0;
};

TEST(ReportIrregular, SaysHowManyStepsFollowedAPlanAnEarlierStepAndNothingAndWhatEachCost) {
  const by_hand::Folder folder;
  const std::string path = folder.file("irregular.vedette");
  std::map<std::string, Told> told;
  {
    auto recorder = Recorder::open({.path = path, .program = "irregular"}).value();
    const auto session = testing::open_session({24 * chunk}, "host", "vedette", {chunk}, recorder.get());
    SessionPlayer player(*session);
    Player::Tensors weights;
    for (std::size_t l = 0; l < 12; ++l) weights.push_back(player.filled(3 * chunk, l));
    const auto count = [&](std::size_t bytes, const std::string& names) {
      const Counters before = session->counters();
      step(player, weights, bytes, names);
      const Counters after = session->counters();
      Told& phase = told[std::string(session->phase())];
      ++phase.steps;
      phase.moved += (after.bytes_in + after.bytes_out - before.bytes_in - before.bytes_out).value;
      phase.stall += after.stall_ns - before.stall_ns;
      phase.faults += after.faults - before.faults;
    };
    for (int s = 0; s < 6; ++s) count(chunk, "");                                    // they repeat
    for (std::size_t s = 0; s < 10; ++s) count(chunk / 2 + s * chunk / 8 + 64, "");  // other sizes
    for (int s = 0; s < 4; ++s) count(chunk, " of kind " + std::to_string(s));       // other ops
  }
  const Report report = analyse(load_run(path).value(), {});
  std::map<std::string, Told> shown;
  for (const Followed& each : report.followed) {
    shown[each.phase] = {.steps = each.steps,
                         .moved = each.moved.value,
                         .stall = static_cast<std::uint64_t>(each.stall.value),
                         .faults = each.faults};
    EXPECT_GT(each.time.value, 0) << each.phase;
  }
  ASSERT_EQ(shown.size(), 4u);
  for (const char* phase : {"warm-up", "profiling", "planned", "foreseen"}) {
    SCOPED_TRACE(phase);
    EXPECT_GT(shown[phase].steps, 0u);
    EXPECT_EQ(shown[phase].steps, told[phase].steps);
    EXPECT_EQ(shown[phase].faults, told[phase].faults);
    EXPECT_THAT(format_text(report, nullptr), HasSubstr(phase));
  }
  EXPECT_GT(shown["foreseen"].moved, 0u);
  EXPECT_GT(shown["planned"].moved, 0u);
}

}  // namespace
}  // namespace vedette::report::irregular_test
