// A memory cgroup around the program, as every container has one. A session lives in its budget and the overhead that
// README states, where the kernel counts all memory of the process; the same loop without a session is killed there. A
// budget that cannot fit is refused in one sentence, and `vedette doctor` tells beforehand the budget that fits.
#include "support/memory_cgroup.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "session/loop.h"
#include "support/child.h"

namespace vedette::memory_cgroup_test {
namespace {

using testing::Loop;
using testing::MemoryCgroup;
using testing::say;
using testing::Told;

constexpr Bytes budget = 64_MiB, overhead = 64_MiB;  // the second is README's
constexpr std::size_t layers = 10, layer_bytes = 8'000'000;

// In `group`, where there is one.
Told inside(const MemoryCgroup* group, const std::function<int()>& body) {
  return testing::inside([group] { return group == nullptr || group->enter(); }, body);
}

// Six steps; tells their losses and the state at the end as one number, and the most that was alive.
int train(Bytes fast_memory, const char* slow) {
  std::string messages;
  auto session = Session::open({.fast_memory = fast_memory, .slow = slow, .on_message = [&](std::string_view m) {
                                  messages.append(m).append(1, '\n');
                                }});
  if (!session) return say(session.error().message, 2);
  Loop loop(**session, layers, layer_bytes);
  std::uint64_t all = 0;
  for (std::uint64_t s = 0; s < 6; ++s) all = all * 31 + loop.step(s);
  all = all * 31 + loop.state();
  const nlohmann::json told = {{"result", all},
                               {"peak", (*session)->counters().peak_bytes.value},
                               {"in", (*session)->counters().bytes_in.value},
                               {"messages", messages}};
  return say(told.dump(), 0);
}

// Bytes that nothing can take away: as a plain program's tensors.
int touch(std::uint64_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  std::memset(memory, 1, bytes);
  return 0;
}

class InMemoryCgroup : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's own memory does not fit";
#endif
    if (!group_.made()) GTEST_SKIP() << group_.why_not();
  }
  MemoryCgroup group_{"vedette-test"};
};

TEST_F(InMemoryCgroup, ASessionLivesInItsBudgetAndTheStatedOverheadWhereItsTensorsWouldBeKilled) {
  const Told free = inside(nullptr, [] { return train(512_MiB, "host"); });
  ASSERT_EQ(free.status, 0) << free.text;
  const auto plain = nlohmann::json::parse(free.text);
  ASSERT_TRUE(group_.set_limit(budget + overhead, false)) << group_.why_not();
  const Told tight = inside(&group_, [] { return train(budget, "nvme:."); });
  ASSERT_EQ(tight.signal, 0) << "killed; charged at most " << group_.peak().value << " of "
                             << (budget + overhead).value;
  ASSERT_EQ(tight.status, 0) << tight.text;
  const auto guarded = nlohmann::json::parse(tight.text);
  std::printf("version %d: limit %.0f MiB, alive at most %.1f MiB, charged at most %.1f MiB\n", group_.version(),
              static_cast<double>((budget + overhead).value) / (1 << 20), guarded.at("peak").get<double>() / (1 << 20),
              static_cast<double>(group_.peak().value) / (1 << 20));
  EXPECT_EQ(guarded.at("result"), plain.at("result"));
  EXPECT_GT(guarded.at("in").get<std::uint64_t>(), 0u);
  EXPECT_EQ(group_.kills(), 0u);
  const auto alive = guarded.at("peak").get<std::uint64_t>();
  ASSERT_GT(alive, (budget + overhead).value * 3 / 2);
  const Told killed = inside(&group_, [alive] { return touch(alive); });
  EXPECT_EQ(killed.signal, SIGKILL) << "status " << killed.status;
  EXPECT_GE(group_.kills(), 1u);
}

TEST_F(InMemoryCgroup, ABudgetBeyondTheLimitIsRefusedInOneSentence) {
  ASSERT_TRUE(group_.set_limit(96_MiB, false)) << group_.why_not();
  const Told told = inside(&group_, [] { return train(128_MiB, "host"); });
  EXPECT_EQ(told.status, 2) << told.text;
  EXPECT_NE(told.text.find("memory cgroup"), std::string::npos) << told.text;
  EXPECT_EQ(told.text.find('\n'), std::string::npos) << told.text;
}

TEST_F(InMemoryCgroup, ABudgetThatLeavesLessThanTheOverheadIsSaidToBeAtRisk) {
  ASSERT_TRUE(group_.set_limit(96_MiB, false)) << group_.why_not();
  const Told told = inside(&group_, [] {
    std::string messages;
    auto session = Session::open(
        {.fast_memory = 40_MiB, .slow = "host", .on_message = [&](std::string_view m) { messages.append(m); }});
    return session ? say(messages, 0) : say(session.error().message, 2);
  });
  EXPECT_EQ(told.status, 0) << told.text;
  EXPECT_NE(told.text.find("memory cgroup"), std::string::npos) << told.text;
}

TEST_F(InMemoryCgroup, DoctorSaysWhichBudgetFits) {
  ASSERT_TRUE(group_.set_limit(256_MiB, false)) << group_.why_not();
  const auto doctor = [](const char* how) {
    return [how] {
      ::execl(VEDETTE_CLI, "vedette", "doctor", "--no-disk", how, static_cast<char*>(nullptr));
      return 98;
    };
  };
  const Told json = inside(&group_, doctor("--json"));
  ASSERT_EQ(json.status, 0) << json.text;
  const auto memory = nlohmann::json::parse(json.text).at("memory");
  EXPECT_EQ(memory.at("cgroup_limit_bytes"), (256_MiB).value);
  EXPECT_EQ(memory.at("largest_budget_bytes"), (256_MiB - overhead).value);
  const Told text = inside(&group_, doctor("--slow=."));
  ASSERT_EQ(text.status, 0) << text.text;
  EXPECT_NE(text.text.find("memory cgroup allows 256.0 MiB"), std::string::npos) << text.text;
}

}  // namespace
}  // namespace vedette::memory_cgroup_test
