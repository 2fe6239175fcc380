// The log of a step: numbers of events, ops and tensors, and the hash that tells sequences apart.
#include "session/step_logger.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "moves/executor.h"

namespace vedette::detail::step_logger_test {
namespace {

Live tensor_of(std::uint64_t bytes, const std::string& name = {}) {
  Live live;
  live.bytes = {bytes};
  live.name = name;
  return live;
}

std::uint32_t op(StepLogger& logger, const std::string& name) {
  return logger.begin_op({.name = name}, std::hash<std::string>{}(name));
}

TEST(StepLogger, NumbersBirthsAndDeathsByOp) {
  StepLogger logger;
  logger.begin_step();
  const Live a = tensor_of(1000), b = tensor_of(2000);
  EXPECT_EQ(op(logger, "first"), 0u);
  logger.born(0, a, true);
  logger.end_op();
  logger.born(4096, b, false);  // between ops
  EXPECT_EQ(op(logger, "second"), 1u);
  logger.died(0, a);
  logger.end_op();
  const StepLog& log = logger.log();
  ASSERT_EQ(log.tensors.size(), 2u);
  EXPECT_EQ(log.tensors[0].birth, 1u);
  EXPECT_EQ(log.tensors[0].birth_op, 0u);
  EXPECT_EQ(log.tensors[0].death, 3u);
  EXPECT_EQ(log.tensors[0].death_op, 1);
  EXPECT_EQ(log.tensors[1].birth_op, 1u);
  EXPECT_EQ(log.tensors[1].death, ~0u);
  EXPECT_EQ(log.ops[0].events.end, 1u);
  EXPECT_EQ(log.ops[1].events.begin, 2u);
  EXPECT_EQ(log.ops[1].events.end, 3u);
}

TEST(StepLogger, ATensorAtTheAddressOfADeadOneIsAnotherOne) {
  StepLogger logger;
  logger.begin_step();
  const Live live = tensor_of(1000);
  EXPECT_EQ(logger.tensor(64, live), 0u);
  EXPECT_EQ(logger.tensor(64, live), 0u);
  logger.died(64, live);
  EXPECT_EQ(logger.born(64, live, false), 1u);
}

TEST(StepLogger, APrefixIsOfOpsAlone) {
  StepLogger one, other;
  one.begin_step();
  other.begin_step();
  op(one, "a");
  other.born(0, tensor_of(10), false);
  op(other, "a");
  EXPECT_EQ(one.prefix(), other.prefix());
  op(one, "b");
  op(other, "c");
  EXPECT_NE(one.prefix(), other.prefix());
  one.end_step();
  one.begin_step();
  op(one, "a");
  EXPECT_EQ(one.hashes().size(), 1u);
  EXPECT_EQ(one.step(), 2u);
}

TEST(StepLogger, APushedLayerWinsOverMarks) {
  StepLogger logger;
  logger.begin_step();
  logger.mark_layer("conv1", Phase::forward);
  logger.push_layer("mine", Phase::backward);
  logger.mark_layer("conv2", Phase::forward);
  EXPECT_EQ(logger.site(false).layer, "mine");
  EXPECT_EQ(logger.kind_of_birth(TensorKind::activation), TensorKind::gradient);
  logger.pop_layer();
  EXPECT_EQ(logger.site(false).layer, "conv1");
  EXPECT_EQ(logger.kind_of_birth(TensorKind::activation), TensorKind::activation);
  op(logger, "matmul");
  EXPECT_EQ(logger.site(true).op, "matmul");
}

// A program may put a counter into the names of its layers.
TEST(StepLogger, ForgetsLayersWhereTheirNamesAreEverNew) {
  StepLogger logger;
  std::size_t most = 0;
  for (std::size_t s = 0, named = 0; s < 4 * StepLogger::most_layers / 100; ++s) {
    logger.begin_step();
    for (int i = 0; i < 100; ++i) {
      const std::string name = "layer " + std::to_string(named++);
      logger.push_layer(name, Phase::forward);
      op(logger, "matmul");
      ASSERT_EQ(logger.log().layers[logger.log().ops.back().layer->value].name, name);
      logger.pop_layer();
    }
    logger.end_step();
    most = std::max(most, logger.log().layers.size());
  }
  EXPECT_LE(most, StepLogger::most_layers + 100);
}

TEST(StepLogger, KnowsTheNthAllocationOfASize) {
  StepLogger logger;
  logger.begin_step();
  EXPECT_EQ(logger.next_of_size(100), 0u);
  EXPECT_EQ(logger.next_of_size(200), 0u);
  EXPECT_EQ(logger.next_of_size(100), 1u);
  logger.end_step();
  logger.begin_step();
  EXPECT_EQ(logger.next_of_size(100), 0u);
}

// What dies before a step's first op was born in the step before: as many of that size die at its seam.
TEST(StepLogger, GuessesWhatDiesAtTheSeam) {
  Arena arena(Mapping::reserve({64 << 16}, {1 << 16}).value(), {1 << 16});
  const Live before = tensor_of(70'000);
  StepLogger logger;
  logger.begin_step();
  logger.tensor(0, before);
  logger.died(0, before);
  op(logger, "loss");
  const Arena::Place place = arena.take({.bytes = 70'000}).value(), other = arena.take({.bytes = 90'000}).value();
  logger.born(place.offset, arena.add(place, {}), true);
  logger.born(other.offset, arena.add(other, {}), true);
  logger.end_op();
  logger.end_step();
  const StepLog log = logger.finished(arena);
  ASSERT_EQ(log.tensors.size(), 3u);
  EXPECT_TRUE(log.tensors[1].dies_at_seam);
  EXPECT_FALSE(log.tensors[2].dies_at_seam);
  EXPECT_EQ(log.tensors[1].name, "loss 68.4 KiB");
}

// Offsets come and go, as many as make the table grow; the same, beside a map.
TEST(LoggedOffsets, AreThoseOfAMap) {
  std::minstd_rand random(11);
  LoggedOffsets table;
  for (int step = 0; step < 5; ++step) {
    std::map<std::uint64_t, std::uint32_t> map;
    for (std::uint32_t n = 0; n < 20'000; ++n) {
      const std::uint64_t offset = random() % 6'000 * 64;
      if (random() % 3 == 0) {
        table.erase(offset);
        map.erase(offset);
      } else {
        const auto [found, fresh] = map.try_emplace(offset, n);
        EXPECT_EQ(table.find_or_add(offset, n), (std::pair{found->second, fresh}));
      }
      const std::uint64_t asked = random() % 6'000 * 64;
      const auto there = map.find(asked);
      EXPECT_EQ(table.find(asked), there == map.end() ? std::nullopt : std::optional(there->second));
    }
    table.clear();
  }
}

}  // namespace
}  // namespace vedette::detail::step_logger_test
