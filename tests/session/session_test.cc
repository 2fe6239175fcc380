// Whole sessions without libtorch: a pretended training loop whose every byte is known, in budgets from plenty to tiny.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "session/loop.h"
#include "vedette/observer.h"

namespace vedette::session_test {
namespace {

using testing::Block;
using testing::Loop;
using testing::open_session;
using testing::Outcome;

Outcome run(Bytes budget, const std::string& slow, const std::string& policy, std::size_t layers = 8,
            std::size_t bytes = 300'000) {
  Outcome outcome;
  const auto session = open_session(budget, slow, policy, 64_KiB, nullptr, &outcome.messages);
  Loop loop(*session, layers, bytes);
  for (std::uint64_t s = 0; s < 8; ++s) outcome.losses.push_back(loop.step(s));
  outcome.state = loop.state();
  outcome.counters = session->counters();
  return outcome;
}

using Case = std::tuple<int, std::string, std::string>;
class SessionBudget : public ::testing::TestWithParam<Case> {};

TEST_P(SessionBudget, EndsWithTheSameBytesAsWithPlentyOfMemory) {
  const auto& [percent, slow, policy] = GetParam();
  const Outcome plenty = run(64_MiB, slow, policy);
  const Bytes budget{plenty.counters.peak_bytes.value * static_cast<std::uint64_t>(percent) / 100};
  const Outcome tight = run(budget, slow, policy);
  EXPECT_EQ(plenty, tight);
  EXPECT_LE(tight.counters.resident_max_bytes.value, budget.value);
  EXPECT_EQ(plenty.counters.bytes_in.value, 0u);
  if (percent <= 50) {
    EXPECT_GT(tight.counters.bytes_in.value, 0u);
  }
  for (const std::string& m : tight.messages) ADD_FAILURE() << m;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const auto& [percent, slow, policy] = info.param;
  std::string name = policy + "_" + slow.substr(0, slow.find(':')) + "_" + std::to_string(percent);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Budgets, SessionBudget,
                         ::testing::Combine(::testing::Values(100, 60, 40, 25), ::testing::Values("host", "nvme:."),
                                            ::testing::Values("on-demand", "sentinel", "vedette")),
                         name_of);

TEST(Session, FinishesAnOpThatNeedsMoreThanTheBudgetAndSaysSoOnce) {
  const Outcome plenty = run(64_MiB, "host", "on-demand", 3, 400'000);
  const Outcome tiny = run(640_KiB, "host", "on-demand", 3, 400'000);  // an op needs 3 x 448 KiB
  EXPECT_EQ(plenty, tiny);
  EXPECT_FALSE(tiny.messages.empty());
  EXPECT_GT(tiny.counters.faults, 0u);
}

TEST(Session, SaysFromWhichBudgetItsOpsWouldNotBePaged) {
  std::vector<std::string> messages;
  Bytes smallest;
  {
    const auto session = open_session(640_KiB, "host", "on-demand", 64_KiB, nullptr, &messages);
    Loop loop(*session, 8, 400'000);
    for (std::uint64_t s = 0; s < 4; ++s) loop.step(s);
    smallest = session->smallest_budget();
  }
  ASSERT_FALSE(messages.empty());
  std::uint64_t named = 0;
  for (std::size_t m = 0; m < messages.size(); ++m) {
    SCOPED_TRACE(messages[m]);
    EXPECT_EQ(messages[m].substr(0, 4), "op '");
    EXPECT_NE(
        messages[m].find(" at once and the budget is 640.0 KiB: it runs paged, slowly; give fast_memory at least "),
        std::string::npos);
    EXPECT_EQ(std::find(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(m), messages[m]),
              messages.begin() + static_cast<std::ptrdiff_t>(m))
        << "once";
    named = std::max<std::uint64_t>(named, std::stoull(messages[m].substr(messages[m].rfind('(') + 1)));
  }
  EXPECT_EQ(smallest.value, named) << "one number";
  const Outcome unpaged = run({named}, "host", "on-demand", 8, 400'000);
  EXPECT_EQ(unpaged.messages, std::vector<std::string>());
}

struct Told {
  std::vector<std::string> messages;
  std::string phase;  // at the end of the last step
};

// Ops of one name, each of which allocates one block more than the one before, the largest first or last.
Told grow(Bytes budget, const char* policy, bool largest_first) {
  constexpr std::size_t most = 6, bytes = 200'000;
  Told told;
  const auto session = open_session(budget, "host", policy, 64_KiB, nullptr, &told.messages);
  const Block input(*session, bytes, true);
  for (int s = 0; s < 8; ++s) {
    const auto step = session->step();
    for (std::size_t k = 1; k <= most; ++k) {
      const void* const reads[] = {input.address()};
      const auto op = session->op("grow", reads, {});
      std::vector<Block> blocks;
      for (std::size_t b = 0; b < (largest_first ? most + 1 - k : k); ++b) {
        blocks.emplace_back(*session, bytes);
        blocks.back().fill(b);
      }
      for (std::size_t b = 0; b < blocks.size(); ++b) EXPECT_TRUE(blocks[b].holds(b));
    }
    told.phase = session->phase();
  }
  return told;
}

// The number in the last parentheses; 0: none.
std::uint64_t bytes_named(const std::string& message) {
  const auto at = message.find("give fast_memory at least ");
  if (at == message.npos) return 0;
  return std::stoull(message.substr(message.find('(', at) + 1));
}

TEST(Session, ABudgetThatAMessageNamesSuffices) {
  for (const bool largest_first : {true, false}) {
    for (const char* const policy : {"on-demand", "vedette"}) {
      SCOPED_TRACE(policy + std::string(largest_first ? ", the largest op first" : ", the largest op last"));
      const Told tight = grow(640_KiB, policy, largest_first);
      ASSERT_FALSE(tight.messages.empty());
      for (const std::string& message : tight.messages) {
        SCOPED_TRACE(message);
        const std::uint64_t named = bytes_named(message);
        ASSERT_GT(named, 0u);
        const Told enough = grow({named}, policy, largest_first);
        EXPECT_THAT(enough.messages, ::testing::Each(::testing::StartsWith("all of a step fits")));
        EXPECT_EQ(enough.phase, "planned");
      }
    }
  }
}

TEST(Session, ABudgetThatAMessageNamesSufficesBesideWhatTensorsOfClosedSessionsKeep) {
  for (const std::size_t kept : {3, 40}) {  // of 98 KiB: less than the largest op needs, and more
    for (const char* const policy : {"on-demand", "vedette"}) {
      SCOPED_TRACE(policy + std::string(", ") + std::to_string(kept));
      const auto grow_after_another = [&](Bytes budget) {
        std::vector<Block> blocks;
        auto earlier = open_session(budget, "host", "on-demand");
        for (std::size_t k = 0; k < kept; ++k) {
          blocks.emplace_back(*earlier, 100'000);
          blocks.back().fill(k);
        }
        earlier.reset();
        return grow(budget, policy, true);
      };
      std::uint64_t named = 0;
      for (const std::string& message : grow_after_another(640_KiB).messages)
        named = std::max(named, bytes_named(message));
      ASSERT_GT(named, 0u);
      const Told enough = grow_after_another({named});
      for (const std::string& message : enough.messages) EXPECT_EQ(bytes_named(message), 0u) << message;
      EXPECT_EQ(enough.phase, "planned");
    }
  }
}

TEST(Session, AStepWhosePolicyHasNoPlanIsNotCalledPlanned) {
  const Told tight = grow(640_KiB, "vedette", false);
  const bool without = std::any_of(tight.messages.begin(), tight.messages.end(), [](const std::string& message) {
    return message.find("its steps run without a plan") != message.npos;
  });
  EXPECT_EQ(without, tight.phase != "planned") << tight.phase;
}

TEST(Session, TellsTheStepsThatHaveAPlanAsTheirPlansSeeThem) {
  constexpr std::size_t layers = 4;
  const auto session = open_session({40 * (64_KiB).value}, "host", "vedette");
  Loop loop(*session, layers, (64_KiB).value * 3 / 2);
  const Block small(*session, 100);  // in the slab, which is always near
  for (int i = 0; i < 4; ++i) loop.step(1);
  for (int i = 0; i < 3; ++i) loop.step(1, layers - 1);
  const std::vector<PlannedStep> steps = session->planned_steps();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].steps + steps[1].steps, 4u);  // two warm up or are profiled, one was met first without a plan
  for (const PlannedStep& each : steps) {
    const Trace& trace = each.trace;
    EXPECT_EQ(trace.ops.size(), 4 * (&each == &steps[0] ? layers : layers - 1) + 1);
    EXPECT_EQ(trace.tensors.back().name, "always near");
    for (const Tensor& tensor : trace.tensors) EXPECT_EQ(tensor.bytes.value % (64_KiB).value, 0u) << tensor.name;
    for (const Op& op : trace.ops) EXPECT_EQ(op.reads.back().value, trace.tensors.size() - 1);
    EXPECT_TRUE(parse_trace(format_trace(trace)));
  }
}

TEST(Session, ServesAnAccessThatNobodyAnnounced) {
  const auto session = open_session(1_MiB, "host", "on-demand");
  std::vector<Block> blocks;
  for (std::uint64_t b = 0; b < 40; ++b) {
    blocks.emplace_back(*session, 64 << 10);
    blocks[b].fill(b);
  }
  for (std::uint64_t b = 0; b < 40; ++b) ASSERT_TRUE(blocks[b].holds(b));
  EXPECT_GT(session->counters().faults, 0u);
}

// The bytes of writes that were spared because a chunk's bytes are those of its slot. A chunk that arrives early and
// leaves before its first use is dropped too, at once and without a comparison: it is not counted.
class SparedWrites final : public Observer {
 public:
  void moved(const MoveRecord& move) override {
    if (move.verb == Verb::drop && move.ended != move.issued) bytes_ += move.bytes.value;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::atomic<std::uint64_t> bytes_ = 0;
};

struct ReadInTurn {
  std::uint64_t bytes_out = 0, bytes_spared = 0;
};

// Forty blocks that every step reads one after the other, of which ten fit. `liar`: each op changes what it says it
// only reads.
ReadInTurn read_in_turn(bool liar) {
  SparedWrites spared;
  const auto session = open_session(640_KiB, "host", "vedette", 64_KiB, &spared);
  std::vector<Block> blocks;
  for (std::uint64_t b = 0; b < 40; ++b) {
    blocks.emplace_back(*session, 64 << 10, true);
    blocks[b].fill(b);
  }
  ReadInTurn before;
  for (std::uint64_t s = 0; s < 8; ++s) {
    if (s == 6)
      before = {session->counters().bytes_out.value, spared.bytes()};  // planned, each block was written out once
    const auto step = session->step();
    for (std::uint64_t b = 0; b < 40; ++b) {
      const void* const read[] = {blocks[b].address()};
      const auto op = session->op("read", read, {});
      EXPECT_TRUE(blocks[b].holds(liar ? b + s * 100 : b));
      if (liar) blocks[b].fill(b + (s + 1) * 100);
    }
  }
  return {session->counters().bytes_out.value - before.bytes_out, spared.bytes() - before.bytes_spared};
}

TEST(Session, WritesWhatIsOnlyReadNoSecondTime) {
  const ReadInTurn counted = read_in_turn(false);
  EXPECT_GT(counted.bytes_spared, 8 * Bytes(64_KiB).value);
  EXPECT_LT(counted.bytes_out, counted.bytes_spared / 4);
}

TEST(Session, TakesNobodysWordForWhatIsOnlyRead) {
  const ReadInTurn counted = read_in_turn(true);
  EXPECT_EQ(counted.bytes_spared, 0u);
  EXPECT_GT(counted.bytes_out, 0u);
}

TEST(Session, RefusesASecondOneWhileOneLives) {
  const auto first = open_session(1_MiB, "host", "on-demand");
  const auto second =
      Session::open({.fast_memory = 1_MiB, .slow = "host", .policy = "on-demand", .chunk = 64_KiB, .on_message = {}});
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("second session"), std::string::npos);
}

TEST(Session, LeavesMemoryValidAndPagedWhenItEnds) {
  auto session = open_session(1_MiB, "host", "on-demand");
  std::vector<Block> blocks;
  for (std::uint64_t b = 0; b < 40; ++b) {
    blocks.emplace_back(*session, 64 << 10);
    blocks[b].fill(b);
  }
  session.reset();
  for (std::uint64_t b = 0; b < 40; ++b) EXPECT_TRUE(blocks[b].holds(b));
}

TEST(Session, OpensAnyNumberOfTimesInAProcess) {
  for (int i = 0; i < 300; ++i) {
    const auto session = open_session(1_MiB, "host", "on-demand");
    Block block(*session, 64 << 10);
    block.fill(1);
    ASSERT_TRUE(block.holds(1)) << i;
  }
}

// A guard an epoch: whatever a session learned goes with it.
TEST(Session, KeepsNoBooksWhenItHasEnded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have a malloc of their own, which does not tell what is in use";
#else
  const auto epoch = [](std::size_t ops) {
    const auto session = open_session(64_MiB, "host", "vedette");
    Block block(*session, 1 << 20);
    for (std::size_t s = 0; s < 4; ++s) {
      auto step = session->step();
      for (std::size_t i = 0; i < ops + 10 * s; ++i) {
        const void* uses[] = {block.address()};
        auto op = session->op("an operator with a name of some length", uses, uses);
      }
    }
  };
  for (int i = 0; i < 3; ++i) epoch(1000);
  const std::size_t before = ::mallinfo2().uordblks;
  constexpr int epochs = 10;
  for (int i = 0; i < epochs; ++i) epoch(1000);
  EXPECT_LT((::mallinfo2().uordblks - std::min(before, ::mallinfo2().uordblks)) / epochs, 64u << 10);
#endif
}

// What has begun when the reader of messages throws ends, and the session goes on.
TEST(Session, GoesOnWhereTheReaderOfMessagesThrows) {
  bool throws = false;
  SessionOptions options;
  options.fast_memory = 1_MiB;
  options.chunk = 64_KiB;
  options.slow = "host";
  options.on_message = [&](std::string_view) {
    if (throws) throw std::runtime_error("of the program");
  };
  const auto session = Session::open(options).value();
  Block large(*session, 4 << 20);
  const void* uses[] = {large.address()};
  { auto op = session->op("needs more than there is", uses, uses); }
  for (int i = 0; i < 99; ++i) auto op = session->op("op", {}, {});
  throws = true;  // at what the first one needed
  EXPECT_THROW(static_cast<void>(session->op("next", {}, {})), std::runtime_error);
  throws = false;
  {
    auto step = session->step();
    for (int i = 0; i < 3; ++i) auto op = session->op("op", {}, {});
  }
  EXPECT_EQ(session->counters().ops, 104u) << "none of them is inside of another";
}

TEST(Session, SaysWhatItCannotKeepResident) {
  std::vector<std::string> messages;
  const auto session = open_session(1_MiB, "host", "on-demand", 64_KiB, nullptr, &messages);
  Block block(*session, 2 << 20);
  block.fill(1);
  {
    const auto scope = session->resident(block.address());
    ASSERT_EQ(messages.size(), 1u);
    EXPECT_NE(messages[0].find("cannot be kept in fast memory"), std::string::npos) << messages[0];
  }
  EXPECT_TRUE(block.holds(1));
}

// Of every 1.x: this compiles.
TEST(WhatStays, AreTheOptionsOf1_0) {
  const SessionOptions options{.fast_memory = 2_MiB,
                               .fast = "dram",
                               .gpu = nullptr,
                               .table_memory = {},
                               .slow = "host",
                               .max_writes = "",
                               .policy = "vedette",
                               .chunk = 64_KiB,
                               .warmup_steps = 1,
                               .profile = ProfileTicks::layers,
                               .tracker = "best",
                               .observer = nullptr,
                               .on_message = {},
                               .on_progress = {},
                               .verbose = true,
                               .seed = 1,
                               .ranks = 1,
                               .interference_percent = {},
                               .fault_time = {},
                               .checksums = true,
                               .pressure = false,
                               .enabled = true,
                               .record = "",
                               .share = "",
                               .recompute = Recompute::off};
  EXPECT_TRUE(Session::open(options));
}

}  // namespace
}  // namespace vedette::session_test
