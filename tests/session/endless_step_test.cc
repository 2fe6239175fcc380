// A step of more ops than a session logs: a program that begins one step for a whole run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "moves/executor.h"
#include "session/loop.h"
#include "support/sanitized.h"

namespace vedette::endless_step_test {
namespace {

using testing::Block;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Each op changes one of some blocks that do not all fit.
void run_ops(Session& session, std::vector<Block>& blocks, std::uint64_t count) {
  for (std::uint64_t op = 0; op < count; ++op) {
    Block& block = blocks[op / 50'000 % blocks.size()];
    const void* const writes[] = {block.address()};
    const auto scope = session.op("add", {}, writes);
    block[0] += 1;
  }
}

TEST(EndlessStep, RunsToItsEndAndIsToldOnce) {
  if (testing::sanitized) GTEST_SKIP() << "a million ops take minutes with a sanitizer";
  constexpr std::uint64_t ops = most_ops_of_a_step + 200'000;
  std::vector<std::string> heard;
  const auto opened = testing::open_session(1_MiB, "host", "vedette", 64_KiB, nullptr, &heard);
  Session& session = *opened;
  std::vector<Block> blocks;
  for (int b = 0; b < 8; ++b) {
    blocks.emplace_back(session, 500'000, true);
    blocks.back().fill(0);
    blocks.back()[0] = 0;
  }
  {
    const auto step = session.step();
    run_ops(session, blocks, ops);
  }
  EXPECT_THAT(heard, ElementsAre(HasSubstr("begin a step for each update of the parameters")));
  for (int s = 0; s < 3; ++s) {  // shorter ones are planned for as ever
    const auto step = session.step();
    run_ops(session, blocks, 100);
  }
  EXPECT_EQ(session.planned_steps().size(), 1u);
  std::uint64_t sum = 0;
  for (Block& block : blocks) sum += block[0];
  EXPECT_EQ(sum, ops + 300);
  EXPECT_EQ(heard.size(), 1u);
}

}  // namespace
}  // namespace vedette::endless_step_test
