// Fast memory that follows pressure: the rule alone, with times of its own, and a session that hears of it.
#include "session/pressure.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "session/loop.h"

namespace vedette::detail::pressure_test {
namespace {

using testing::Loop;

constexpr Bytes wanted = 800_MiB, least = 100_MiB;
Nanoseconds seconds(double s) { return {static_cast<std::int64_t>(s * 1e9)}; }

class Rule : public ::testing::Test {
 protected:
  // What a session does with the rule's answers.
  Bytes at(double when, bool pressure, std::optional<std::int64_t> headroom = {}, std::optional<Bytes> borrowed = {}) {
    if (const auto next = rule_.next({.now = seconds(when),
                                      .pressure = pressure,
                                      .headroom = headroom,
                                      .borrowed = borrowed,
                                      .budget = budget_,
                                      .least = least}))
      budget_ = *next;
    return budget_;
  }
  PressureRule rule_{wanted};
  Bytes budget_ = wanted;
};

TEST_F(Rule, AnEighthGoesAtATimeAndNeverMoreThanMayGo) {
  EXPECT_EQ(at(1, false), wanted);
  EXPECT_EQ(at(2, true), 700_MiB);
  EXPECT_EQ(at(2.5, true), 700_MiB) << "the same pressure still";
  EXPECT_EQ(at(3.5, true), 600_MiB);
  for (int s = 5; s < 20; ++s) at(s, true);
  EXPECT_EQ(budget_, least);
}

TEST_F(Rule, NoMoreGoesThanIsBorrowed) {
  EXPECT_EQ(at(1, true, {}, 250_MiB), 700_MiB);
  EXPECT_EQ(at(3, true, {}, 30_MiB), 670_MiB);
  EXPECT_EQ(at(5, true, {}, 0_MiB), 670_MiB);
}

TEST_F(Rule, GrowsBackWhenItHasBeenCalm) {
  at(1, true);
  EXPECT_EQ(at(5, false), 700_MiB);
  EXPECT_EQ(at(10.9, false), 700_MiB);
  EXPECT_EQ(at(11.1, false), wanted);
  EXPECT_EQ(at(100, false), wanted) << "and no more than the program wants";
}

TEST_F(Rule, WaitsTwiceAsLongWherePressureComesBack) {
  at(1, true);
  at(11.5, false);
  ASSERT_EQ(budget_, wanted);
  EXPECT_EQ(at(12, true), 700_MiB) << "at once";
  EXPECT_EQ(at(30, false), 700_MiB) << "18 of 20 seconds";
  EXPECT_EQ(at(32.5, false), wanted);
}

TEST_F(Rule, ALimitIsKeptAtOnceAndBoundsGrowth) {
  EXPECT_EQ(at(1, false, 200 << 20), wanted);
  EXPECT_EQ(at(2, false, -(100 << 20)), 684_MiB) << "what is beyond it, and some slack";
  EXPECT_EQ(at(3, false, 16 << 20), 684_MiB);
  EXPECT_EQ(at(13, false, 16 << 20), 684_MiB) << "growth would bring it back";
  EXPECT_EQ(at(14, false, 82 << 20), 734_MiB) << "as far as the limit allows";
  EXPECT_EQ(at(30, false, 500 << 20), wanted);
}

TEST_F(Rule, FollowsWhatTheProgramWants) {
  at(1, true);
  rule_.program_wants(400_MiB);
  budget_ = 400_MiB;
  EXPECT_EQ(at(30, false), 400_MiB);
  EXPECT_EQ(at(31, true), 350_MiB) << "an eighth of that";
}

TEST(FollowedPressure, MakesFastMemoryLessAndKeepsTheNumbers) {
  std::string made = ::testing::TempDir() + "vedette_follow_XXXXXX";
  const std::string folder = ::mkdtemp(made.data()), path = folder + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const Fd manager{::open(path.c_str(), O_RDWR | O_NONBLOCK)};
  ASSERT_EQ(::setenv("MEMORY_PRESSURE_WATCH", path.c_str(), 1), 0);
  ASSERT_EQ(::unsetenv("MEMORY_PRESSURE_WRITE"), 0);
  std::vector<std::string> said;
  std::uint64_t state = 0;
  {
    const auto session = Session::open({.fast_memory = 16_MiB,
                                        .slow = "host",
                                        .chunk = 64_KiB,
                                        .on_message = [&](std::string_view sentence) { said.emplace_back(sentence); },
                                        .pressure = true})
                             .value();
    ::unsetenv("MEMORY_PRESSURE_WATCH");
    Loop loop(*session, 8, 500'000);
    std::uint64_t step = 0;
    for (; step < 5; ++step) loop.step(step);
    ASSERT_EQ(::write(manager.get(), "x", 1), 1);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (session->budget() == 16_MiB && std::chrono::steady_clock::now() < deadline) loop.step(step++);
    EXPECT_EQ(session->budget(), 14_MiB);
    const auto answer = ask_for_size(::getpid(), 12_MiB);
    EXPECT_EQ(*answer, "fast memory is 12.0 MiB (12582912 bytes)");
    EXPECT_EQ(session->budget(), 12_MiB);
    EXPECT_NE(ask_for_size(::getpid(), 1_KiB).value().find("too small"), std::string::npos);
    for (; step < 30; ++step) loop.step(step);
    state = loop.state();
    EXPECT_EQ(std::count(said.begin(), said.end(), "memory is scarce: fast memory is 14.0 MiB now, it was 16.0 MiB"),
              1);
  }
  const auto plain = testing::open_session(64_MiB, "host", "vedette");
  Loop loop(*plain, 8, 500'000);
  for (std::uint64_t step = 0; step < 30; ++step) loop.step(step);
  EXPECT_EQ(state, loop.state());
  std::filesystem::remove_all(folder);
}

// A memory cgroup of version 2, which this process is in until it goes. Empty: it cannot be made.
class MemoryCgroup {
 public:
  MemoryCgroup() {
    const std::string mount = "/sys/fs/cgroup";
    if (!write(mount + "/cgroup.subtree_control", "+memory")) return;
    std::string made = mount + "/vedette-" + std::to_string(::getpid());
    if (::mkdir(made.c_str(), 0755) != 0) return;
    folder_ = made;
    entered_ = write(folder_ + "/cgroup.procs", "0");
  }
  ~MemoryCgroup() {
    if (folder_.empty()) return;
    write("/sys/fs/cgroup/cgroup.procs", "0");
    ::rmdir(folder_.c_str());
  }
  explicit operator bool() const noexcept { return entered_; }
  bool set(const char* file, Bytes bytes) const {
    return write(folder_ + "/" + file, std::to_string(bytes.value).c_str());
  }
  Bytes number(const char* file) const {
    std::ifstream text(folder_ + "/" + file);
    Bytes bytes;
    text >> bytes.value;
    return bytes;
  }
  std::uint64_t kills() const {
    std::ifstream text(folder_ + "/memory.events");
    for (std::string name; text >> name;) {
      std::uint64_t count = 0;
      text >> count;
      if (name == "oom_kill") return count;
    }
    return 0;
  }

 private:
  static bool write(const std::string& path, const char* text) {
    const Fd file{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    return file && ::write(file.get(), text, std::strlen(text)) > 0;
  }
  std::string folder_;
  bool entered_ = false;
};

TEST(FollowedPressure, OfTheKernelIsMemoryHigh) {
  const MemoryCgroup group;
  if (!group) GTEST_SKIP() << "no memory cgroup of version 2 can be made here";
  std::vector<std::string> said;
  std::uint64_t state = 0, step = 0;
  {
    const auto session = Session::open({.fast_memory = 48_MiB,
                                        .slow = "nvme:" + std::filesystem::current_path().string(),  // no tmpfs
                                        .chunk = 64_KiB,
                                        .on_message = [&](std::string_view sentence) { said.emplace_back(sentence); },
                                        .pressure = true})
                             .value();
    Loop loop(*session, 8, 1'000'000);
    for (; step < 5; ++step) loop.step(step);
    const Bytes used = group.number("memory.current");
    ASSERT_GT(used, 32_MiB);
    ASSERT_TRUE(group.set("memory.high", used - 4_MiB));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (session->budget() == 48_MiB && std::chrono::steady_clock::now() < deadline) loop.step(step++);
    EXPECT_LT(session->budget(), 48_MiB - 4_MiB) << "what is beyond the limit, and more";
    for (std::uint64_t end = step + 5; step < end; ++step) loop.step(step);
    EXPECT_LE(group.number("memory.current"), used - 4_MiB);
    EXPECT_EQ(group.kills(), 0u);
    EXPECT_FALSE(said.empty());
    for (const std::string& sentence : said)
      EXPECT_EQ(sentence.find("the kernel tells no memory pressure"), sentence.npos);
    state = loop.state();
  }
  const auto plain = testing::open_session(48_MiB, "host", "vedette");
  Loop loop(*plain, 8, 1'000'000);
  for (std::uint64_t s = 0; s < step; ++s) loop.step(s);
  EXPECT_EQ(state, loop.state());
}

}  // namespace
}  // namespace vedette::detail::pressure_test
