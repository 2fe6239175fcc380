// What an earlier step lets a step expect: where the step is in it, what is used next, what to fetch.
#include "session/foresight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "session/step_logger.h"

namespace vedette::detail::foresight_test {
namespace {

using ::testing::ElementsAre;

constexpr Bytes chunk = 64_KiB;

// A program that logs its steps: tensors by name, sizes in chunks.
class Program {
 public:
  Program() : arena_(Mapping::reserve({1024 * chunk.value}, chunk).value(), chunk), foresight(arena_) {
    for (const char* weight : {"w0", "w1", "w2"}) add(weight, 4, true);
  }

  void begin_step() {
    logger_.begin_step();
    foresight.begin_step();
    told = nullptr;
  }
  // `made` is born in the op, `dead` dies in it.
  void op(const std::string& name, const std::vector<std::string>& reads, const std::string& made = {},
          std::uint64_t chunks = 0, const std::vector<std::string>& dead = {}) {
    LoggedOp op{.name = name};
    for (const std::string& read : reads) op.reads.push_back(logger_.tensor(offset_.at(read), live(read)));
    const std::uint64_t kind = mix(std::hash<std::string>{}(name), reads.size());
    logger_.begin_op(std::move(op), kind, kind);
    told = foresight.look(logger_.log(), logger_.kinds(), frames);
    if (!made.empty()) {
      add(made, chunks, false);
      logger_.born(offset_.at(made), live(made), true);
    }
    for (const std::string& name_of_dead : dead) kill(name_of_dead);
    logger_.end_op();
  }
  void end_step() {
    logger_.end_step();
    std::uint64_t sequence = logger_.prefix();
    for (const LoggedTensor& t : logger_.log().tensors) sequence = mix(sequence, t.bytes.value);
    foresight.remember(logger_.log(), logger_.kinds(), sequence);
  }

  ChunkRange at(const std::string& name) const { return arena_.chunks_of(offset_.at(name), live(name).bytes.value); }
  std::vector<ChunkRange> fetches() const {
    std::vector<ChunkRange> chunks;
    if (told != nullptr)
      for (const OpMoves::Fetch& fetch : told->fetches) chunks.push_back(fetch.chunks);
    return chunks;
  }
  // The op of the running step in which a tensor is used next, as told last.
  std::uint32_t next_use(const std::string& name) const {
    std::uint32_t after = ~0u - 1;
    if (told != nullptr)
      for (const OpMoves::NextUse& use : told->next_uses)
        if (use.chunks == at(name)) after = use.after;
    return after;
  }

  std::optional<std::uint32_t> dead_at(const std::string& name) const {
    for (const OpMoves::NextUse& use : told != nullptr ? told->next_uses : std::span<const OpMoves::NextUse>())
      if (use.chunks == at(name)) return use.dead_at;
    return std::nullopt;
  }

 private:
  Arena arena_;
  StepLogger logger_;
  std::map<std::string, std::uint64_t> offset_;

  const Live& live(const std::string& name) const { return arena_.tensors().at(offset_.at(name)); }
  void add(const std::string& name, std::uint64_t chunks, bool lasting) {
    const Arena::Place place = arena_.take({.bytes = chunks * chunk.value, .lasting = lasting}).value();
    offset_[name] = place.offset;
    arena_.add(place, {});
  }
  void kill(const std::string& name) {
    const std::uint64_t offset = offset_.at(name);
    const auto dead = arena_.remove(offset);
    logger_.died(offset, *dead);
    arena_.free_place(offset, *dead);
  }

 public:
  Foresight foresight;
  const Ahead* told = nullptr;
  std::uint32_t frames = 64;
};

// Forward over three weights, backward, and an optimizer; `batch`: chunks of an activation.
void train(Program& program, std::uint64_t batch, bool logs = false) {
  program.begin_step();
  program.op("embed", {"w0"}, "x0", batch);
  program.op("linear", {"w1", "x0"}, "x1", batch);
  if (logs) {
    program.op("mean", {"x1"});
    program.op("print", {});
  }
  program.op("linear", {"w2", "x1"}, "x2", batch);
  program.op("loss", {"x2"});
  program.op("linear backward", {"w2", "x1", "x2"}, {}, 0, {"x2"});
  program.op("linear backward", {"w1", "x0", "x1"}, {}, 0, {"x1"});
  program.op("embed backward", {"w0", "x0"}, {}, 0, {"x0"});
  program.op("update", {"w0"});
  program.op("update", {"w1"});
  program.op("update", {"w2"});
  program.end_step();
}

TEST(Foresight, SaysNothingOfAFirstStep) {
  Program program;
  program.begin_step();
  program.op("embed", {"w0"}, "x0", 1);
  EXPECT_EQ(program.told, nullptr);
  program.end_step();
}

TEST(Foresight, TellsOfAnotherBatchWhatIsUsedNext) {
  Program program;
  train(program, 2);
  program.begin_step();
  program.op("embed", {"w0"}, "x0", 6);
  ASSERT_NE(program.told, nullptr);
  EXPECT_EQ(program.next_use("w0"), 6u);
  EXPECT_EQ(program.next_use("w1"), 1u);
  EXPECT_EQ(program.next_use("w2"), 2u);
  program.op("linear", {"w1", "x0"}, "x1", 6);
  EXPECT_EQ(program.next_use("x0"), 5u);
  EXPECT_EQ(program.next_use("w1"), 5u);
  program.op("linear", {"w2", "x1"}, "x2", 6);
  EXPECT_EQ(program.next_use("x1"), 4u);
  program.op("loss", {"x2"});
  EXPECT_EQ(program.next_use("x2"), 4u);
  program.op("linear backward", {"w2", "x1", "x2"}, {}, 0, {"x2"});
  EXPECT_EQ(program.next_use("x1"), 5u);
  program.op("linear backward", {"w1", "x0", "x1"}, {}, 0, {"x1"});
  program.op("embed backward", {"w0", "x0"}, {}, 0, {"x0"});
  program.op("update", {"w0"});
  EXPECT_EQ(program.next_use("w0"), ticks_of_a_step) << "the first op of the next step";
  program.end_step();
}

TEST(Foresight, FetchesInOrderOfNeedAndNoMoreThanThereIsRoomFor) {
  Program program;
  train(program, 1);
  program.frames = 15;  // w0 and x0 take five chunks, w1 and x1 five; w2 and x2 the rest
  program.begin_step();
  program.op("embed", {"w0"}, "x0", 1);
  EXPECT_THAT(program.fetches(), ElementsAre(program.at("w1"), program.at("w2")));
  program.op("linear", {"w1", "x0"}, "x1", 1);
  EXPECT_THAT(program.fetches(), ElementsAre(program.at("w0"))) << "w2 was told before";
  program.end_step();
}

TEST(Foresight, ExpectsBirthsAsMuchLargerAsThoseBefore) {
  Program program;
  train(program, 2);
  program.begin_step();
  program.op("embed", {"w0"}, "x0", 6);
  EXPECT_EQ(program.told->births + program.told->next_births, 4u)
      << "nothing is known of this step: x0 and x1 as before";
  program.op("linear", {"w1", "x0"}, "x1", 6);
  EXPECT_EQ(program.told->births + program.told->next_births, 12u) << "x0 was three times as large";
  program.end_step();
}

TEST(Foresight, ComesBackBehindOpsThatAreInserted) {
  Program program;
  train(program, 2);
  program.begin_step();
  program.op("embed", {"w0"}, "x0", 3);
  program.op("linear", {"w1", "x0"}, "x1", 3);
  program.op("mean", {"x1"});
  EXPECT_EQ(program.told, nullptr);
  program.op("print", {});
  program.op("linear", {"w2", "x1"}, "x2", 3);
  program.op("loss", {"x2"});
  EXPECT_EQ(program.told, nullptr) << "one past has two ops alone";
  program.op("linear backward", {"w2", "x1", "x2"}, {}, 0, {"x2"});
  ASSERT_NE(program.told, nullptr);
  EXPECT_EQ(program.next_use("w2"), 11u) << "two ops later than in the step before";
  program.op("linear backward", {"w1", "x0", "x1"}, {}, 0, {"x1"});
  EXPECT_EQ(program.next_use("x0"), 8u);
  program.end_step();
}

TEST(Foresight, TakesTheStepThatHasTheLongerCommonPast) {
  Program program;
  train(program, 2);
  program.begin_step();  // another kind of step, in which the same ops come with another end
  program.op("start", {});
  for (int i = 0; i < 3; ++i) program.op("linear", {"w1"});
  program.op("read", {"w0"});
  program.end_step();
  program.begin_step();
  program.op("other", {});
  program.op("start", {});
  program.op("linear", {"w1"});
  program.op("linear", {"w1"});
  ASSERT_NE(program.told, nullptr);
  EXPECT_EQ(program.next_use("w0"), 5u);
  program.op("linear", {"w1"});
  program.end_step();
}

TEST(Foresight, TakesThePlaceWithTheLongerCommonPast) {
  Program program;
  const auto run = [&](const std::vector<std::string>& ops, const std::string& last) {
    program.begin_step();
    for (const std::string& name : ops) program.op(name, {"w1"});
    program.op("read", {last});
    program.end_step();
  };
  run({"a", "middle", "linear", "linear", "end"}, "w0");
  run({"b", "linear", "linear", "end"}, "w2");
  run({"a", "middle", "linear", "linear", "other"}, "w2");
  program.begin_step();
  for (const char* name : {"a", "middle", "linear", "linear", "end"}) program.op(name, {"w1"});
  EXPECT_EQ(program.next_use("w0"), 5u);
  program.end_step();
}

TEST(Foresight, KnowsWhenWhatWasJustMadeIsUsed) {
  Program program;
  for (const std::uint64_t batch : {1u, 3u}) {
    program.begin_step();
    program.op("embed", {"w0"}, "x", batch);
    program.op("other", {"w1"});
    if (batch == 3) {
      EXPECT_EQ(program.next_use("x"), 3u);
    }
    program.op("third", {"w2"});
    program.op("use", {"x"}, {}, 0, {"x"});
    program.end_step();
  }
}

TEST(Foresight, ExpectsTheStepThatCameNextLastTime) {
  Program program;
  const auto ask = [&](const std::string& last) {
    program.begin_step();
    program.op("begin", {});
    program.op("read", {last});
    program.op("finish " + last, {last});
    program.end_step();
  };
  ask("w0");
  ask("w1");
  ask("w0");
  ask("w1");
  program.begin_step();
  program.op("begin", {});
  EXPECT_EQ(program.next_use("w0"), 1u);
  program.op("read", {"w0"});
  program.end_step();
}

// A cache is made anew in each step, one chunk larger, at another address.
TEST(Foresight, KnowsWhatTheStepBeforeMade) {
  Program program;
  const auto generate = [&](int n) {
    const std::string caches[] = {"none", "first", "second", "third", "fourth"};
    const std::string &before = caches[n - 1], &now = caches[n];
    program.begin_step();
    program.op("embed", {"w0"}, "x", 1);
    const std::vector<ChunkRange> fetched = program.fetches();
    const std::uint32_t first_use = n > 1 ? program.next_use(before) : 0;
    const bool comes = n > 1 && std::find(fetched.begin(), fetched.end(), program.at(before)) != fetched.end();
    if (n == 1) {
      program.op("cat", {"w1"}, now, 2);
    } else {
      program.op("cat", {before, "w1"}, now, 2 + static_cast<std::uint64_t>(n), {before});
    }
    program.op("attend", {now, "w2"});
    const std::uint32_t next = program.next_use(now);
    program.op("head", {"w0"}, {}, 0, {"x"});
    program.end_step();
    return std::tuple(first_use, comes, next);
  };
  for (int n = 1; n < 4; ++n) generate(n);
  const auto [first_use, comes, next] = generate(4);
  EXPECT_EQ(first_use, 1u);
  EXPECT_TRUE(comes);
  EXPECT_EQ(next, ticks_of_a_step + 1);
}

TEST(Foresight, ForgetsTheStepsThatRanLongestAgo) {
  Program program;
  for (std::size_t s = 0; s <= Foresight::most_steps; ++s) {
    program.begin_step();
    program.op("step " + std::to_string(s), {"w0"});
    program.op("read", {"w1"});
    program.end_step();
  }
  program.begin_step();
  program.op("step 0", {"w0"});
  EXPECT_EQ(program.told, nullptr);
  program.end_step();
  program.begin_step();
  program.op("step 2", {"w0"});
  EXPECT_EQ(program.next_use("w1"), 1u);
  program.end_step();
}

// Of ten thousand sequences of ops that never come again.
TEST(Foresight, RemembersNoMoreThanItsBounds) {
  Program program;
  std::mt19937 random(1);
  Foresight::Remembered most;
  for (int s = 0; s < 10'000; ++s) {
    program.begin_step();
    for (int i = 0; i < 12; ++i) program.op("op " + std::to_string(random() % 50), {"w0"});
    program.end_step();
    const Foresight::Remembered now = program.foresight.remembered();
    most = {.steps = std::max(most.steps, now.steps),
            .ops = std::max(most.ops, now.ops),
            .successions = std::max(most.successions, now.successions)};
  }
  EXPECT_EQ(most.steps, Foresight::most_steps);
  EXPECT_EQ(most.ops, Foresight::most_steps * 12);
  EXPECT_LE(most.successions, Foresight::most_steps * Foresight::most_steps);
}

TEST(Foresight, TellsWhatDies) {
  Program program;
  train(program, 2);
  program.begin_step();
  program.op("embed", {"w0"}, "x0", 2);
  EXPECT_EQ(program.dead_at("w0"), std::nullopt);
  program.op("linear", {"w1", "x0"}, "x1", 2);
  EXPECT_EQ(program.dead_at("x0"), 7u) << "the op that begins without it";
  program.end_step();
}

TEST(Foresight, TakesTheSizesOfTheLatestStep) {
  Program program;
  train(program, 2);
  train(program, 6);
  program.begin_step();
  program.op("embed", {"w0"}, "x0", 6);
  EXPECT_EQ(program.told->births + program.told->next_births, 12u);
  program.end_step();
}

TEST(Foresight, MakesNoRoomForFetchesWhereItIsOftenWrong) {
  Program program;
  train(program, 2);
  train(program, 2);
  program.begin_step();
  program.op("embed", {"w0"}, "x0", 2);
  ASSERT_NE(program.told, nullptr);
  EXPECT_TRUE(program.told->makes_room);
  for (int i = 0; i < 4; ++i) program.op("other", {});
  program.op("update", {"w0"});
  program.op("update", {"w1"});
  program.op("update", {"w2"});
  ASSERT_NE(program.told, nullptr);
  EXPECT_FALSE(program.told->makes_room);
  program.end_step();
}

}  // namespace
}  // namespace vedette::detail::foresight_test
