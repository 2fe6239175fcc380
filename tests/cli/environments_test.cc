// Where programs run: without privileges, in containers that forbid what vedette would like best, with small limits.
// Everywhere a training loop gives the right numbers, or is refused in one sentence; and `vedette doctor` names the
// same mechanisms beforehand. Each environment is made in a child process, by the same means as a container's: a
// seccomp filter, limits, another user, mounts of its own.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "session/loop.h"
#include "support/child.h"
#include "support/nobody.h"
#include "support/sanitized.h"

namespace vedette::environments_test {
namespace {

namespace fs = std::filesystem;
using testing::Loop;
using testing::not_entered;
using testing::say;
using testing::Told;

bool limit(int what, rlim_t most) {
  const rlimit both{most, most};
  return ::setrlimit(static_cast<__rlimit_resource>(what), &both) == 0;
}

bool forbid(std::initializer_list<const char*> calls) {
  scmp_filter_ctx filter = ::seccomp_init(SCMP_ACT_ALLOW);
  bool right = filter != nullptr;
  for (const char* call : calls) {
    const int number = ::seccomp_syscall_resolve_name(call);
    if (number != __NR_SCMP_ERROR) right = right && ::seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0) == 0;
  }
  right = right && ::seccomp_load(filter) == 0;
  ::seccomp_release(filter);
  return right;
}

bool change_user() {
  return ::setgroups(0, nullptr) == 0 && ::setresgid(65534, 65534, 65534) == 0 && ::setresuid(65534, 65534, 65534) == 0;
}

// As after a login, where an exec comes behind the change of user and makes /proc/self readable again.
bool become_nobody() { return ::geteuid() != 0 || (change_user() && ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0); }

// What Docker's default profile refuses to a container without capabilities (moby, profiles/seccomp/default.json), as
// far as a program that starts could ask for it.
bool enter_docker() {
  return become_nobody() && forbid({"userfaultfd",
                                    "io_uring_setup",
                                    "io_uring_enter",
                                    "io_uring_register",
                                    "move_pages",
                                    "migrate_pages",
                                    "mbind",
                                    "set_mempolicy",
                                    "get_mempolicy",
                                    "set_mempolicy_home_node",
                                    "process_madvise",
                                    "bpf",
                                    "perf_event_open",
                                    "keyctl",
                                    "add_key",
                                    "request_key",
                                    "mount",
                                    "umount2",
                                    "unshare",
                                    "setns",
                                    "pivot_root",
                                    "open_by_handle_at",
                                    "name_to_handle_at",
                                    "quotactl",
                                    "fanotify_init",
                                    "kcmp",
                                    "process_vm_readv",
                                    "process_vm_writev",
                                    "ptrace",
                                    "syslog",
                                    "swapon",
                                    "swapoff",
                                    "reboot",
                                    "acct",
                                    "personality"});
}

bool own_mounts() {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

struct Environment {
  const char* name;
  bool needs_root;
  std::function<bool()> enter;
  bool works;                 // else: refused, in one sentence
  bool survives_exec = true;  // so that doctor can be asked inside
  bool as_nobody = false;
};

const Environment environments[] = {
    {"as_it_is", false, [] { return true; }, true},
    {"nobody", true, [] { return become_nobody(); }, true, true, true},
    {"user_changed_without_exec", true, [] { return change_user(); }, true, false},
    {"userfaultfd_forbidden", true, [] { return become_nobody() && forbid({"userfaultfd"}); }, true, true, true},
    {"io_uring_forbidden", false,
     [] {
       return forbid({"io_uring_setup", "io_uring_enter", "io_uring_register"});
     },
     true},
    {"like_docker", true, [] { return enter_docker(); }, true, true, true},
    {"memory_lock_of_64_KiB", true, [] { return limit(RLIMIT_MEMLOCK, 65536) && become_nobody(); }, true, true, true},
    {"no_memory_lock", true, [] { return limit(RLIMIT_MEMLOCK, 0) && become_nobody(); }, true, true, true},
    {"no_huge_pages", false, [] { return ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0; }, true},
    {"read_only_tmp", true, [] { return own_mounts() && ::mount("none", "/tmp", "tmpfs", MS_RDONLY, nullptr) == 0; },
     true},
    {"no_proc", true, [] { return own_mounts() && ::mount("none", "/proc", "tmpfs", MS_RDONLY, nullptr) == 0; }, true},
    {"no_sys_and_no_shm", true,
     [] {
       return own_mounts() && ::mount("none", "/sys", "tmpfs", MS_RDONLY, nullptr) == 0 &&
              ::mount("none", "/dev", "tmpfs", MS_RDONLY, nullptr) == 0;
     },
     true},
    {"memfd_forbidden", false, [] { return forbid({"memfd_create"}); }, true},
    {"few_files", false, [] { return limit(RLIMIT_NOFILE, 6); }, false},
    {"small_files", false, [] { return ::signal(SIGXFSZ, SIG_IGN) != SIG_ERR && limit(RLIMIT_FSIZE, 1 << 20); }, false},
    {"little_address_space", false, [] { return limit(RLIMIT_AS, rlim_t{1} << 30); }, false},
    {"no_threads", true, [] { return limit(RLIMIT_NPROC, 0) && become_nobody(); }, false},
};
void PrintTo(const Environment& environment, std::ostream* out) { *out << environment.name; }

constexpr int right = 0, wrong = 1, refused = 2, cannot_exec = 4;

class InEnvironment : public ::testing::TestWithParam<Environment> {
 protected:
  void SetUp() override {
    if (GetParam().needs_root && ::geteuid() != 0) GTEST_SKIP() << "making this environment needs root";
    if (GetParam().as_nobody && !testing::nobody_finds_files()) GTEST_SKIP() << testing::no_files_for_nobody;
    const std::string_view name = GetParam().name;
    if (testing::sanitized && name == "no_proc")
      GTEST_SKIP() << "a sanitizer reads /proc/self/maps when a program starts";
    if (testing::sanitized && name == "few_files")
      GTEST_SKIP() << "a sanitizer asks through a pipe whether it may read an object, and takes no pipe for no";
    if (testing::sanitized && name == "little_address_space")
      GTEST_SKIP() << "a sanitizer's shadow memory alone is larger";
    std::string pattern = (fs::current_path() / "vedette-environment-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::permissions(folder_, fs::perms::all);
    fs::copy_file(VEDETTE_CLI, folder_ + "/vedette");
    fs::permissions(folder_ + "/vedette", fs::perms::all);
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  // Runs `body` inside; the folder is where it is.
  Told inside(const std::function<int()>& body) const {
    return testing::inside([this] { return ::chdir(folder_.c_str()) == 0 && GetParam().enter(); }, body);
  }

  std::string folder_;
};

std::uint64_t run_loop(Session& session) {
  Loop loop(session, 4, 100'000);
  std::uint64_t all = 0;
  for (std::uint64_t s = 0; s < 4; ++s) all = all * 31 + loop.step(s);
  return all * 31 + loop.state();
}

int train() try {
  std::string messages;
  auto session =
      Session::open({.fast_memory = 1_MiB, .slow = "nvme:.", .chunk = 64_KiB, .on_message = [&](std::string_view m) {
                       messages.append(1, '\n').append(m);
                     }});
  if (!session) return say(session.error().message, refused);
  const std::uint64_t result = run_loop(**session);
  const std::string mechanism = (*session)->mechanism();
  session->reset();
  auto plain = Session::open({.fast_memory = 64_MiB, .slow = "host", .policy = "on-demand", .chunk = 64_KiB});
  if (!plain) return say(plain.error().message, refused);
  return say(mechanism + messages, run_loop(**plain) == result ? right : wrong);
} catch (const Failure& failure) {
  return say(failure.what(), refused);
}

TEST_P(InEnvironment, ALoopIsRightOrRefusedInOneSentenceAndDoctorSaysTheSame) {
  const Told loop = inside(train);
  if (loop.status == not_entered) GTEST_SKIP() << "this machine does not let the test make the environment";
  std::printf("%s: %s\n", GetParam().name, loop.text.c_str());
  ASSERT_EQ(loop.status, GetParam().works ? right : refused) << loop.text;
  if (!GetParam().works) {
    EXPECT_FALSE(loop.text.empty());
    EXPECT_EQ(loop.text.find('\n'), std::string::npos);
    return;
  }
  if (!GetParam().survives_exec) return;
  const Told doctor = inside([] {
    ::execl("./vedette", "vedette", "doctor", "--no-disk", "--json", static_cast<char*>(nullptr));
    return cannot_exec;
  });
  ASSERT_EQ(doctor.status, 0) << doctor.text;
  const auto uses = nlohmann::json::parse(doctor.text).at("uses");
  const std::string memory = uses.at("memory").at("mechanism"), transfers = uses.at("transfers").at("mechanism");
  EXPECT_TRUE(loop.text.starts_with(memory + "; ")) << "doctor: " << memory << "; the loop: " << loop.text;
  EXPECT_NE(loop.text.find(transfers.substr(0, transfers.find(','))), std::string::npos) << transfers;
}

INSTANTIATE_TEST_SUITE_P(Environments, InEnvironment, ::testing::ValuesIn(environments),
                         [](const auto& e) { return e.param.name; });

}  // namespace
}  // namespace vedette::environments_test
