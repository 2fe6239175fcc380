// What happens to real loops: other sequences of ops, steps cut short, exceptions, memory that other threads allocate
// and free, a disk that fills up. Each ends with the right bytes or with one clear sentence.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "session/loop.h"
#include "support/sanitized.h"

// The address sanitizer's own: there in a program that is built with it, null in others.
extern "C" [[gnu::weak]] void __sanitizer_purge_allocator();

namespace vedette::accidents_test {
namespace {

using testing::Block;
using testing::Loop;
using testing::open_session;

constexpr Bytes tight = 2_MiB, plenty = 64_MiB;
constexpr std::size_t block_bytes = 200'000, layers = 8;

struct Planned final : Observer {
  void planned(std::uint64_t, std::uint64_t bucket, const Trace&, const Plan& plan) override {
    buckets.insert(bucket);
    moves += plan.moves.size();
  }
  std::set<std::uint64_t> buckets;
  std::size_t moves = 0;
};

struct Ending {
  std::vector<std::uint64_t> losses;
  std::uint64_t state = 0;
  bool operator==(const Ending&) const = default;
};

class Accidents : public ::testing::TestWithParam<const char*> {};

TEST_P(Accidents, TwoSequencesOfOpsInTurnsGetAPlanEach) {
  const auto run = [&](Bytes budget, Planned& planned, std::vector<std::string>& phases) {
    const auto session = open_session(budget, "host", GetParam(), 64_KiB, &planned);
    Loop loop(*session, layers, block_bytes);
    loop.before_end = [&] { phases.emplace_back(session->phase()); };
    Ending result;
    for (std::uint64_t s = 0; s < 12; ++s) result.losses.push_back(loop.step(s, s % 2 == 0 ? layers : layers / 2));
    result.state = loop.state();
    return result;
  };
  Planned calm, planned;
  std::vector<std::string> calm_phases, phases;
  EXPECT_EQ(run(tight, planned, phases), run(plenty, calm, calm_phases));
  EXPECT_EQ(planned.buckets.size(), 2u);
  ASSERT_EQ(phases.size(), 12u);
  for (std::size_t s = 8; s < 12; ++s) EXPECT_EQ(phases[s], "planned") << s;
}

TEST_P(Accidents, AnExceptionAtAnyOpLeavesALoopThatGoesOn) {
  const auto run = [&](Bytes budget) {
    const auto session = open_session(budget, "host", GetParam());
    Loop loop(*session, layers, block_bytes);
    Ending result;
    std::uint64_t thrown = 0;
    for (std::uint64_t s = 0; s < 24; ++s) {
      const std::size_t at = s % 3 == 2 ? s : 1000;
      loop.in_op = [&](std::size_t op) {
        if (op == at) throw std::runtime_error("from inside an op");
      };
      try {
        result.losses.push_back(loop.step(s));
      } catch (const std::runtime_error&) {
        ++thrown;
      }
    }
    EXPECT_EQ(thrown, 8u);
    EXPECT_EQ(session->counters().live_bytes.value, 2 * layers * ((block_bytes + 63) / 64 * 64));  // nothing leaked
    result.state = loop.state();
    return result;
  };
  EXPECT_EQ(run(tight), run(plenty));
}

TEST_P(Accidents, OtherThreadsMayAllocateAndFreeDuringOps) {
  const auto run = [&](Bytes budget, bool alone) {
    const auto session = open_session(budget, "host", GetParam());
    Loop loop(*session, layers, block_bytes);
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> wrong{0}, turns{0};
    std::mutex mutex;
    std::vector<std::pair<std::uint64_t, Block>> given;  // freed by another thread than made them
    const auto meddle = [&](std::uint64_t seed) {
      std::mt19937_64 random(seed);
      while (!stop) {
        Block own(*session, 64 + random() % 100'000);
        const std::uint64_t mark = random();
        own.fill(mark);
        std::pair<std::uint64_t, Block> taken;
        {
          const std::lock_guard lock(mutex);
          if (given.size() < 5) {
            given.emplace_back(mark, std::move(own));
          } else {
            std::swap(taken, given[random() % given.size()]);
            std::swap(given.back(), taken);
            given.pop_back();
          }
        }
        if (own.address() != nullptr && !own.holds(mark)) ++wrong;
        ++turns;
      }
    };
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; !alone && t < 2; ++t) threads.emplace_back(meddle, t);
    Ending result;
    for (std::uint64_t s = 0; s < 12; ++s) result.losses.push_back(loop.step(s));
    stop = true;
    for (std::thread& thread : threads) thread.join();
    for (const auto& [mark, block] : given)
      if (block.address() != nullptr && !block.holds(mark)) ++wrong;
    EXPECT_EQ(wrong, 0u);
    if (!alone) {
      EXPECT_GT(turns, 10u);
    }
    result.state = loop.state();
    return result;
  };
  EXPECT_EQ(run(tight, false), run(plenty, true));
}

std::string name_of(const ::testing::TestParamInfo<const char*>& chosen) {
  std::string name = chosen.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Policies, Accidents, ::testing::Values("on-demand", "sentinel", "vedette"), name_of);

std::uint64_t anonymous_bytes() {
  // The address sanitizer keeps up to 256 MiB of freed blocks back.
  if (__sanitizer_purge_allocator != nullptr) __sanitizer_purge_allocator();
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) << 10;
  return 0;
}

TEST(SessionEnd, GivesMemoryBackWhenNothingLivesAnyMore) {
  const auto files = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
  const std::uint64_t before = anonymous_bytes();
  const auto files_before = files();
  for (int again = 0; again < 12; ++again) {
    auto session = open_session(plenty, "nvme:.", "on-demand");
    Block small(*session, 100), outlives(*session, 1'000'000);
    outlives.fill(1);
    { const Block passing(*session, 20'000'000); }
    session.reset();
    EXPECT_TRUE(outlives.holds(1));
  }
  // The thread sanitizer keeps some 3 MiB for each session's threads; what a session keeps is at least as much as the
  // passing block.
  EXPECT_LE(anonymous_bytes(), before + (testing::sanitized ? plenty.value : plenty.value / 2));
  EXPECT_EQ(files(), files_before);
}

// A file system of its own with room for so many bytes, for as long as this object lives.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& size) {
    std::string pattern = std::filesystem::temp_directory_path() / "vedette-disk-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
    mounted_ = ::mount("none", path_.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
    ::rmdir(path_.c_str());
  }
  const std::string& path() const { return path_; }
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

TEST(FullDisk, IsToldByTheAllocationThatFindsNoRoom) {
  const SmallDisk disk("6M");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  const auto session = open_session(1_MiB, "nvme:" + disk.path(), "on-demand");
  std::vector<Block> blocks;
  std::string sentence;
  while (sentence.empty() && blocks.size() < 500) {
    auto memory = session->allocate({.bytes = {100'000}, .name = {}});
    if (!memory) {
      sentence = memory.error().message;
      break;
    }
    Session::release(*memory);
    blocks.emplace_back(*session, 100'000);
    blocks.back().fill(blocks.size());
  }
  EXPECT_NE(sentence.find("disk full"), std::string::npos) << sentence;
  EXPECT_GT(blocks.size(), 30u);  // most of what the disk and fast memory can hold
  for (std::size_t b = 0; b < blocks.size(); ++b) EXPECT_TRUE(blocks[b].holds(b + 1)) << b;
  blocks.resize(blocks.size() - 5);
  for (int again = 0; again < 5; ++again) blocks.emplace_back(*session, 100'000);  // there is room again
}

TEST(FullDisk, LetsALoopThatFitsGoOn) {
  const SmallDisk disk("8M");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  const auto run = [](const std::string& slow, Bytes budget) {
    const auto session = open_session(budget, slow, "vedette");
    Loop loop(*session, 6, 150'000);  // its plan's layout wants more of the disk than is left
    Ending result;
    for (std::uint64_t s = 0; s < 10; ++s) result.losses.push_back(loop.step(s));
    result.state = loop.state();
    return result;
  };
  EXPECT_EQ(run("nvme:" + disk.path(), 1_MiB), run("host", plenty));
}

}  // namespace
}  // namespace vedette::accidents_test
