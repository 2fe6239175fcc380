// The probe tells the truth about the machine the test runs on, where another way to the same fact exists.
#include "os/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "os/page_tracker.h"
#include "os/uapi.h"
#include "os/uffd.h"

namespace vedette::probe_test {
namespace {

namespace fs = std::filesystem;

TEST(Probe, NamesThisKernelAndItsMemory) {
  const MachineFacts facts = probe_machine();
  utsname name{};
  ::uname(&name);
  EXPECT_THAT(facts.kernel, ::testing::EndsWith(name.release));
  EXPECT_GT(facts.processors, 0u);
  const auto pages =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(facts.memory.value, pages);
  EXPECT_LE(facts.available_memory, facts.memory);
}

TEST(Probe, SaysWhyForEverythingThatDoesNotWork) {
  const MachineFacts facts = probe_machine();
  for (const Tried* tried : {&facts.move, &facts.pagemap_scan, &facts.trackers.zap, &facts.trackers.missing,
                             &facts.trackers.mprotect, &facts.uring, &facts.registered_buffers, &facts.huge_page}) {
    EXPECT_EQ(tried->works, tried->why_not.empty()) << tried->why_not;
  }
  EXPECT_EQ(facts.userfaultfd == UserfaultfdAccess::full, facts.userfaultfd_refusal.empty());
}

TEST(Probe, AgreesWithWhoUsesTheFeatures) {
  const MachineFacts facts = probe_machine();
  EXPECT_EQ(facts.trackers.zap.works, open_zap_tracker().ok());
  EXPECT_EQ(facts.trackers.missing.works, open_missing_tracker().ok());
  EXPECT_EQ(facts.trackers.mprotect.works, open_mprotect_tracker().ok());
  const auto userfaultfd = Userfaultfd::open(0);
  EXPECT_EQ(facts.userfaultfd != UserfaultfdAccess::none, userfaultfd.ok());
  if (userfaultfd) {
    EXPECT_EQ(facts.userfaultfd == UserfaultfdAccess::full, userfaultfd->serves_system_calls());
  }
  EXPECT_EQ((facts.userfaultfd_features & uapi::feature_move) != 0, Userfaultfd::open(uapi::feature_move).ok());
}

TEST(Probe, LeavesNoDescriptorBehind) {
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  probe_machine();  // libraries may keep something of their own the first time
  const auto before = open_files();
  probe_machine();
  EXPECT_EQ(open_files(), before);
}

TEST(Probe, SeesALowerMemoryLockLimit) {
  const pid_t child = ::fork();  // the limit cannot be raised again without privileges
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit low{65536, 65536};
    ::setrlimit(RLIMIT_MEMLOCK, &low);
    const MachineFacts facts = probe_machine();
    const bool right =
        facts.locked_memory_limit == 65536 && (facts.may_exceed_locked_limit || !facts.registered_buffers.works);
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Probe, FindsTheNumaNodesThatTheKernelNames) {
  std::vector<std::uint32_t> named;
  for (const auto& entry : fs::directory_iterator("/sys/devices/system/node")) {
    unsigned number = 0;
    if (std::sscanf(entry.path().filename().c_str(), "node%u", &number) == 1) named.push_back(number);
  }
  if (named.empty()) GTEST_SKIP() << "this kernel names no NUMA nodes (/sys/devices/system/node)";
  const MachineFacts facts = probe_machine();
  std::vector<std::uint32_t> found;
  for (const NumaNode& node : facts.numa_nodes) {
    found.push_back(node.number);
    EXPECT_GT(node.memory.value, 0u);
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(named));
}

TEST(Probe, ReadsTheChosenSetting) {
  EXPECT_EQ(chosen_setting("always [madvise] never\n"), "madvise");
  EXPECT_EQ(chosen_setting("[always] madvise never\n"), "always");
  EXPECT_EQ(chosen_setting("no choice"), "");
  EXPECT_EQ(chosen_setting(""), "");
}

TEST(Probe, NamesUserfaultfdFeatures) {
  EXPECT_THAT(userfaultfd_feature_names(uapi::feature_wp_async | uapi::feature_move),
              ::testing::ElementsAre("WP_ASYNC", "MOVE"));
  EXPECT_THAT(userfaultfd_feature_names(std::uint64_t{1} << 40), ::testing::ElementsAre("bit 40"));
}

// A made-up /sys/fs/cgroup.
class CgroupLimit : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "vedette-probe-XXXXXX").string();
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    mount_ = path;
  }
  void TearDown() override { fs::remove_all(mount_); }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((mount_ / file).parent_path());
    std::ofstream(mount_ / file) << text;
  }
  std::optional<Bytes> limit(const char* membership) const { return memory_cgroup_limit(membership, mount_.string()); }

  fs::path mount_;
};

TEST_F(CgroupLimit, LeavesWhatIsNotUsedAndWhatFilesUse) {
  write("proc/meminfo", "MemTotal: 16384 kB\nMemAvailable: 8192 kB\n");
  write("proc/self/cgroup", "0::/job\n");
  EXPECT_EQ(available_memory(mount_.string()), 8_MiB) << "there is no limit";
  write("sys/fs/cgroup/job/memory.max", "6291456\n");
  write("sys/fs/cgroup/job/memory.current", "5242880\n");
  EXPECT_EQ(available_memory(mount_.string()), 1_MiB);
  write("sys/fs/cgroup/job/memory.stat", "anon 1048576\ninactive_file 3145728\nactive_file 1048576\nshmem 0\n");
  EXPECT_EQ(available_memory(mount_.string()), 5_MiB) << "the kernel takes the cache of files back";
  EXPECT_EQ(available_memory("/no/such/root"), Bytes{});
}

TEST_F(CgroupLimit, IsTheSmallestOfAllLevels) {
  write("memory.max", "max\n");
  write("user/memory.max", "1000000\n");
  write("user/session/memory.max", "2000000\n");
  EXPECT_EQ(limit("0::/user/session\n"), Bytes{1000000});
  EXPECT_EQ(limit("0::/user\n"), Bytes{1000000});
  EXPECT_EQ(limit("0::/\n"), std::nullopt);
}

TEST_F(CgroupLimit, IsReadFromVersionOneToo) {
  write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("memory/box/memory.limit_in_bytes", "4096000\n");
  EXPECT_EQ(limit("5:cpu,cpuacct:/box\n4:memory:/box\n0::/\n"), Bytes{4096000});
  EXPECT_EQ(limit("4:memory:/\n"), std::nullopt);
}

TEST_F(CgroupLimit, IsTakenFromTheRootWhereAContainerHidesTheRest) {
  write("memory.max", "5000000\n");
  EXPECT_EQ(limit("0::/hidden/path\n"), Bytes{5000000});
}

TEST_F(CgroupLimit, IsNoneWhereNothingCanBeRead) {
  EXPECT_EQ(limit(""), std::nullopt);
  EXPECT_EQ(limit("nonsense\n0::/nowhere\n"), std::nullopt);
}

}  // namespace
}  // namespace vedette::probe_test
