// Steps that never repeat, on the simulated GPU: the shapes of eight programs, at a half and a quarter of what each
// needs, with the host's numbers and without a race.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "session/gpu_player.h"
#include "session/irregular_shapes.h"

namespace vedette::testing::gpu_foreseen_test {
namespace {

struct Played {
  std::uint64_t state = 0, peak = 0, moved = 0;  // `moved`: bytes each way, of all steps but the first four
  Counters all;
  std::vector<std::string> phases;
  std::string error;
};

struct How {
  std::string policy = "vedette", slow = "host";
  std::size_t steps = 14;
  std::uint64_t wait_for = 0;  // before bytes are counted: until four pairs of steps move at most these bytes each
};

using Make = std::unique_ptr<Shape> (*)(Player&);

Played play(Make make, Bytes budget, const How& how = {}) {
  const auto& [policy, slow, steps, wait_for] = how;
  WordsOnGpu gpu({.fast_memory = budget, .slow = slow, .policy = policy});
  GpuPlayer player(gpu);
  const auto program = make(player);
  Played played;
  const auto moved = [&] {
    const Counters counters = gpu.session->counters();
    return counters.bytes_in.value + counters.bytes_out.value;
  };
  const auto step = [&](std::size_t number) {
    program->step(number);
    gpu.stream.synchronize().value();
  };
  std::uint64_t before = 0;
  for (std::size_t s = 0; s < steps; ++s) {
    // Plans for steps in turns are made beside them.
    for (int pairs = 0, calm = 0; s == 4 && wait_for != 0 && calm < 4 && pairs < 400; ++pairs) {
      const std::uint64_t so_far = moved();
      step(0);
      step(1);
      calm = moved() - so_far <= wait_for ? calm + 1 : 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (s == 4) before = moved();
    step(s);
    played.phases.emplace_back(gpu.session->phase());
  }
  played.moved = moved() - before;
  played.state = program->state();
  played.all = gpu.session->counters();
  played.peak = played.all.resident_max_bytes.value;
  if (const auto error = gpu.session->take_error()) played.error = error->message;
  return played;
}

Played play(std::size_t shape, Bytes budget, const How& how = {}) {
  return play(irregular_shapes[shape].make, budget, how);
}

constexpr Bytes plenty = 64_MiB;
Bytes part_of(std::uint64_t peak, std::uint64_t percent) {
  constexpr std::uint64_t largest_op = 10;  // chunks: of it and of what lies between its operands
  return {std::max(peak * percent / 100 / Shape::chunk, largest_op) * Shape::chunk};
}

class GpuForeseen : public SimulatedGpu,
                    public ::testing::WithParamInterface<std::tuple<std::size_t, std::uint64_t>> {};

TEST_P(GpuForeseen, EndsWithTheNumbersOfPlentyOfMemory) {
  const auto [shape, percent] = GetParam();
  const Played whole = play(shape, plenty);
  const Bytes budget = part_of(whole.peak, percent);
  const Played tight = play(shape, budget);
  EXPECT_EQ(tight.state, whole.state);
  EXPECT_EQ(tight.error, "");
  EXPECT_LE(tight.peak, budget.value);
  EXPECT_GT(tight.all.bytes_in.value, 0u);
}

INSTANTIATE_TEST_SUITE_P(AtHalfAndQuarter, GpuForeseen,
                         ::testing::Combine(::testing::Range(std::size_t{0}, irregular_shapes.size()),
                                            ::testing::Values(50, 25)),
                         [](const auto& each) {
                           return std::string(irregular_shapes[std::get<0>(each.param)].name) + "_at_" +
                                  std::to_string(std::get<1>(each.param)) + "_percent";
                         });

class GpuForesight : public SimulatedGpu {};

// A cache that grows, lengths, and a batch that grows: only sizes change. In brackets: what was seen.
TEST_F(GpuForesight, MovesLessThanLeastRecentlyUsedMemory) {
  const std::pair<std::size_t, double> shapes[] = {{0, 0.8}, {1, 0.9}, {3, 0.9}};  // (0.59 to 0.71, 0.63 to 0.78, same)
  for (const auto& [shape, most] : shapes) {
    const Bytes budget = part_of(play(shape, plenty, {.policy = "on-demand", .steps = 24}).peak, 50);
    const Played on_demand = play(shape, budget, {.policy = "on-demand", .steps = 24}),
                 foreseen = play(shape, budget, {.steps = 24});
    EXPECT_LE(static_cast<double>(foreseen.moved), static_cast<double>(on_demand.moved) * most)
        << irregular_shapes[shape].name;
    EXPECT_GT(std::count(foreseen.phases.begin(), foreseen.phases.end(), "foreseen"), 12)
        << irregular_shapes[shape].name;
  }
}

// Experts are drawn, so that plans come in turns, each with places of its own.
TEST_F(GpuForesight, WherePlansComeInTurnsTheirTensorsMoveInsideOfTheDevice) {
  const Played played = play(2, plenty, {.steps = 24});
  EXPECT_GT(std::count(played.phases.begin(), played.phases.end(), "planned"), 4);
  EXPECT_LE(played.moved / Shape::chunk, 400u) << "(92; 1,908 where they leave and come back)";
}

// Steps of a short and of a long length, or of both in turns.
template <bool shorts, bool longs>
class Lengths final : public Shape {
 public:
  explicit Lengths(Player& player) : Shape(player) { add_layers(10, 2 * chunk, true); }
  void step(std::size_t number) override {
    const std::size_t bytes = !shorts || (longs && number % 2 != 0) ? 2 * chunk : chunk;
    player_.step([&] { train(input(bytes, number), bytes, all_layers()); });
  }
};

TEST_F(GpuForesight, LengthsInTurnsMoveAboutWhatEachMovesAlone) {
  const How long_enough{.steps = 24};
  const std::uint64_t peak = play(make_shape<Lengths<false, true>>, plenty).peak;
  for (const std::uint64_t percent : {90, 80}) {
    const Bytes budget = part_of(peak, percent);
    const Played of_short = play(make_shape<Lengths<true, false>>, budget, long_enough),
                 of_long = play(make_shape<Lengths<false, true>>, budget, long_enough);
    const double most = static_cast<double>(of_short.moved + of_long.moved) / 2 * 1.5;
    const Played in_turns =
        play(make_shape<Lengths<true, true>>, budget, {.steps = 24, .wait_for = static_cast<std::uint64_t>(most / 10)});
    EXPECT_LE(static_cast<double>(in_turns.moved), most)
        << percent << " % (1.0 to 1.3; where each plan is cheapest by itself: 2.0 to 2.3)";
    EXPECT_EQ(in_turns.error, "");
  }
}

TEST_F(GpuForesight, ThreeLevelsHaveTheHostsNumbers) {
  for (const std::size_t shape : {1u, 3u}) {
    const Played whole = play(shape, plenty);
    const Bytes budget = part_of(whole.peak, 40);
    const Played tight = play(shape, budget, {.slow = "host:1MiB+nvme:" + ::testing::TempDir()});
    EXPECT_EQ(tight.state, whole.state) << irregular_shapes[shape].name;
    EXPECT_GT(tight.all.far_bytes_in.value, 0u) << irregular_shapes[shape].name;
    EXPECT_EQ(tight.error, "");
  }
}

}  // namespace
}  // namespace vedette::testing::gpu_foreseen_test
