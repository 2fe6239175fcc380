// Steps of sizes that come once, of ops that were planned with two others: their plans are made from these.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "session/irregular_shapes.h"
#include "session/like_log.h"
#include "session/loop.h"
#include "session/replay.h"

namespace vedette::likeness_test {
namespace {

using detail::ForetoldLog;
using testing::LinkStore;
using testing::Player;
using testing::ReplayPlayer;
using testing::Shape;

// --- logs ------------------------------------------------------------------------------------------------------------

// A weight; an activation, its square, and what grows by a constant beside. Tensors before an op, their bytes.
StepLog log_of(std::uint64_t length, std::size_t ops = 4) {
  StepLog log;
  const auto tensor = [&](std::uint64_t bytes, std::uint32_t birth, std::uint32_t death) {
    log.tensors.push_back({.name = "t", .bytes = {bytes}, .offset = bytes, .birth = birth, .death = death});
  };
  tensor(4096, 0, ~0u);
  tensor(length * 8, 1, 5);
  if (ops > 1) tensor(length * length, 2, ops > 3 ? 6 : ~0u);
  if (ops > 2) tensor(length * 8 + 64, 3, ops > 3 ? 4 : ~0u);
  const LoggedOp all[] = {{.name = "a", .time = {static_cast<std::int64_t>(length) * 10}, .reads = {0}, .writes = {1}},
                          {.name = "b", .time = {100}, .reads = {1}, .writes = {2}},
                          {.name = "c", .time = {100}, .reads = {2}, .writes = {3}},
                          {.name = "d", .time = {100}, .reads = {1, 3}, .writes = {0}}};
  for (std::size_t i = 0; i < ops; ++i) {
    log.ops.push_back(all[i]);
    const std::uint32_t event = i == 3 ? 4 : static_cast<std::uint32_t>(i) + 1;
    log.ops.back().events = {event, event};
    log.ops.back().named_reads = static_cast<std::uint32_t>(log.ops.back().reads.size());
  }
  if (ops < 4) log.tensors[1].death = ~0u;
  return log;
}
std::vector<Nanoseconds> times_of(const StepLog& log) {
  std::vector<Nanoseconds> times;
  for (const LoggedOp& op : log.ops) times.push_back(op.time);
  return times;
}
ForetoldLog foretold(const StepLog& one, const StepLog& other, const StepLog& running) {
  const std::vector<Nanoseconds> of_one = times_of(one), of_other = times_of(other);
  return detail::foretell({&one, of_one}, {&other, of_other}, running);
}

TEST(Foretold, SizesGrowWithTheFirstThatDiffersOrItsSquare) {
  const StepLog one = log_of(100), other = log_of(200);
  for (const std::uint64_t length : {150, 100, 320, 40}) {
    const StepLog third = log_of(length);
    const ForetoldLog found = foretold(one, other, log_of(length, 1));
    ASSERT_EQ(found.is, ForetoldLog::Is::known);
    for (std::size_t t = 0; t < third.tensors.size(); ++t)
      EXPECT_EQ(found.log.tensors[t].bytes, third.tensors[t].bytes);
    EXPECT_EQ(found.log.ops[0].time, third.ops[0].time);
    EXPECT_EQ(detail::hashes_of(found.log), detail::hashes_of(third));
    EXPECT_NE(detail::hashes_of(found.log), detail::hashes_of(log_of(length + 1)));
  }
}

TEST(Foretold, StepsThatDifferInMoreThanSizesAreNot) {
  const StepLog one = log_of(100), other = log_of(200);
  StepLog of_another_op = log_of(150, 2), born_later = log_of(150, 1), of_another_size = log_of(150, 3);
  of_another_op.ops[1].name = "other";
  born_later.tensors[1].birth = 0;
  of_another_size.tensors[2].bytes.value += 1;
  for (const StepLog* const running : {&of_another_op, &born_later, &of_another_size})
    EXPECT_EQ(foretold(one, other, *running).is, ForetoldLog::Is::another);
  StepLog other_deaths = log_of(200);
  std::swap(other_deaths.tensors[1].death, other_deaths.tensors[2].death);
  EXPECT_EQ(foretold(one, other_deaths, log_of(150, 1)).is, ForetoldLog::Is::another);
}

TEST(Foretold, NothingIsBeforeATensorTellsTheSize) {
  StepLog begins = log_of(150, 1);
  begins.tensors.resize(1);
  begins.ops[0].writes = {};
  StepLog one = log_of(100), other = log_of(200);
  one.ops[0].writes = other.ops[0].writes = {};
  EXPECT_EQ(foretold(one, other, begins).is, ForetoldLog::Is::not_yet);
}

// --- replays ---------------------------------------------------------------------------------------------------------

class Lengths final : public Shape {
 public:
  Lengths(Player& player, std::size_t layers, std::size_t chunks) : Shape(player) {
    add_layers(layers, chunks * chunk, true);
  }
  void step(std::size_t bytes) override {
    player_.step([&] { train(input(bytes, bytes), bytes, all_layers()); });
  }
};

struct Replayed {
  double ns = 0;
  std::map<std::string, int> phases;
};
struct Program {
  std::size_t layers, chunks;  // of a layer's weight
  std::uint32_t frames;
  std::int64_t moving;  // a chunk takes as long as so many ops compute with one
};

// The steps of these sizes, after `first` of them.
Replayed replay(const Program& what, const std::vector<std::size_t>& sizes, std::size_t first) {
  ReplayPlayer player({what.frames * Shape::chunk}, "vedette", {LinkStore::of_a_chunk.value / what.moving});
  Lengths program(player, what.layers, what.chunks);
  Replayed replayed;
  Nanoseconds began;
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    if (s == first) began = player.time();
    program.step(sizes[s]);
    if (s >= first) ++replayed.phases[std::string(player.phase())];
  }
  replayed.ns = static_cast<double>((player.time() - began).value);
  static_cast<void>(program.state());  // compares all bytes
  return replayed;
}

// Each alone: by a plan that is searched for, once it has settled.
double planned(const Program& what, std::size_t bytes) {
  return replay(what, std::vector<std::size_t>(14, bytes), 12).ns / 2;
}

void expect_hardly_longer_than_planned(const Program& what, const std::vector<std::size_t>& sizes) {
  constexpr std::size_t first = 4;
  double alone = 0;
  for (std::size_t s = first; s < sizes.size(); ++s) alone += planned(what, sizes[s]);
  const Replayed replayed = replay(what, sizes, first);
  std::printf("%zu layers, %u frames, a chunk moves in %d: %.3f of the time by plans of their own\n", what.layers,
              what.frames, static_cast<int>(what.moving), replayed.ns / alone);
  EXPECT_EQ(replayed.phases.at("planned"), static_cast<int>(sizes.size() - first));
  EXPECT_LE(replayed.ns, alone * 1.05) << "(foreseen: 1.2 to 1.3)";
}

constexpr Program programs[] = {{6, 2, 21, 4}, {8, 2, 27, 1}, {12, 4, 96, 4}};

TEST(PlansOfASession, UnsortedLengthsTakeHardlyLongerThanByPlansOfTheirOwn) {
  for (const Program& what : programs) {
    std::mt19937_64 random(3);
    std::vector<std::size_t> sizes;
    for (std::size_t s = 0; s < 24; ++s) sizes.push_back((32 + random() % 225) * Shape::chunk / 128);
    expect_hardly_longer_than_planned(what, sizes);
  }
}

TEST(PlansOfASession, AGrowingBatchTakesHardlyLongerThanByPlansOfItsOwn) {
  for (const Program& what : programs) {
    std::vector<std::size_t> sizes;
    for (std::size_t s = 0; s < 24; ++s) sizes.push_back(Shape::chunk / 2 + s * Shape::chunk / 16);
    expect_hardly_longer_than_planned(what, sizes);
  }
}

// With real bytes, and plans made beside the program. Its ops are slow on purpose: of quick ones none is planned so.
TEST(PlansOfASession, PlansThatComeInTheMiddleOfAStepLeaveItsBytes) {
  class Slow final : public Shape {
   public:
    explicit Slow(Player& player) : Shape(player) { add_layers(6, 2 * chunk, true); }
    void step(std::size_t number) override {
      const std::size_t bytes = chunk / 2 + number * chunk / 16;
      player_.step([&] {
        const Tensor x = input(bytes, number);
        player_.op("wait", {x}, {}, [] { std::this_thread::sleep_for(std::chrono::milliseconds(12)); });
        train(x, bytes, all_layers());
      });
    }
  };
  struct Plans final : Observer {
    void planned(std::uint64_t, std::uint64_t, const Trace&, const Plan& plan) override {
      by_likeness += !plan.reasons.empty() && plan.reasons[0].starts_with("carried over") ? 1 : 0;
    }
    int by_likeness = 0;
  };
  const auto run = [](Bytes budget, Plans& plans) {
    const auto session = testing::open_session(budget, "host", "vedette", {Shape::chunk}, &plans);
    testing::SessionPlayer player(*session);
    Slow program(player);
    for (std::size_t s = 0; s < 20; ++s) program.step(s);
    return program.state();
  };
  Plans few, plenty;
  EXPECT_EQ(run({21 * Shape::chunk}, few), run(64_MiB, plenty));
  EXPECT_GE(few.by_likeness, 1);
}

// A shorter last batch, and a step that turns out to be another one: an op less at its end.
TEST(PlansOfASession, AStepThatLeavesItsPlanEndsWithTheSameBytes) {
  class Cut final : public Shape {
   public:
    explicit Cut(Player& player) : Shape(player) { add_layers(6, 2 * chunk, true); }
    void step(std::size_t number) override {
      const std::size_t bytes = chunk / 2 + number * chunk / 16;
      player_.step([&] {
        const Tensor x = input(bytes, number);
        if (number % 5 != 4) return train(x, bytes, all_layers());
        train(x, bytes, {0, 1, 2, 4, 5});
        player_.changed("extra", {moments_[number % 6]});
      });
    }
  };
  ReplayPlayer player({21 * Shape::chunk}, "vedette", LinkStore::of_a_chunk);
  Cut program(player);
  int planned = 0;
  for (std::size_t s = 0; s < 30; ++s) {
    program.step(s);
    planned += player.phase() == "planned" ? 1 : 0;
  }
  EXPECT_GE(planned, 15);
  static_cast<void>(program.state());  // compares all bytes
}

// --- addresses -------------------------------------------------------------------------------------------------------

// Ten plans' zones would take more than the arena.
TEST(PlansOfASession, EverOtherSizesDoNotUseAddressesUp) {
  ReplayPlayer player({96 * Shape::chunk}, "vedette", LinkStore::of_a_chunk, 768);
  Lengths program(player, 4, 2);
  std::mt19937_64 random(3);
  int planned = 0;
  for (std::size_t s = 0; s < 40; ++s) {
    program.step((64 + random() % 105) * Shape::chunk / 8);
    planned += player.phase() == "planned" ? 1 : 0;
  }
  EXPECT_GE(planned, 30);
  static_cast<void>(program.state());                   // compares all bytes
  player.drop(player.make(400 * Shape::chunk, false));  // in zones of plans that no step follows
}

// Gradients live until the next step begins, and some steps end with another op than was foretold.
TEST(PlansOfASession, StepsForetoldWronglyDoNotUseAddressesUp) {
  class Kept final : public Shape {
   public:
    explicit Kept(Player& player) : Shape(player) { add_layers(6, 2 * chunk, false); }
    void step(std::size_t number) override {
      const std::size_t bytes = (32 + below(97)) * chunk / 64;
      player_.step([&] {
        drop_all(others_);
        Tensors activations = {input(bytes, number)};
        for (const Tensor weight : weights_)
          activations.push_back(player_.made("forward", bytes, {activations.back(), weight}));
        for (std::size_t l = weights_.size(); l-- > 0;) {
          others_.push_back(player_.made("backward", 2 * chunk, {activations.back(), weights_[l]}));
          player_.drop(activations.back());
          activations.pop_back();
        }
        player_.drop(activations.back());
        for (std::size_t l = 0; l < weights_.size(); ++l) player_.changed("update", {weights_[l]}, {others_[l]});
        if (number > 12 && below(4) == 0) player_.changed("norm", {weights_[0]});
      });
    }
  };
  ReplayPlayer player({24 * Shape::chunk}, "vedette", LinkStore::of_a_chunk, 512);
  Kept program(player);
  for (std::size_t s = 0; s < 240; ++s) program.step(s);
  static_cast<void>(program.state());  // compares all bytes
  player.drop(player.make(192 * Shape::chunk, false));
}

// What is free lies in pieces: two zones have room, and a third has none. A plan without would move what is elsewhere.
TEST(PlansOfASession, AStepWhosePlanWouldHaveNoZoneIsForeseen) {
  for (const bool roomy : {true, false}) {
    ReplayPlayer player({96 * Shape::chunk}, "vedette", LinkStore::of_a_chunk, roomy ? 4096 : 1024);
    Lengths program(player, 4, 2);
    Player::Tensors all;
    for (int t = 0; t < 960; ++t) all.push_back(player.make(Shape::chunk, false));
    for (std::size_t t = 0; t < all.size(); ++t)
      if (t % 32 != 0 || t > 700) player.drop(all[t]);
    for (const std::size_t chunks : {14, 17, 20, 23}) program.step(chunks * Shape::chunk);
    EXPECT_EQ(player.phase(), roomy ? "planned" : "foreseen");
    static_cast<void>(program.state());  // compares all bytes
  }
}

}  // namespace
}  // namespace vedette::likeness_test
