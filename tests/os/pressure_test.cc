// What the system says about memory: systemd's protocol, limits of cgroups in a folder, and requests.
#include "os/pressure.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/children.h"
#include "base/fd.h"
#include "support/child.h"

namespace vedette::pressure_test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto soon = 5'000ms;

class Pressure : public ::testing::Test {
 protected:
  Pressure() {
    std::string made = ::testing::TempDir() + "vedette_pressure_XXXXXX";
    folder_ = ::mkdtemp(made.data());
  }
  ~Pressure() override { fs::remove_all(folder_); }
  void write(const std::string& path, const std::string& text) {
    const fs::path file = folder_ + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  PressureSources::Options in_folder() const { return {.root = folder_}; }
  std::string folder_;
};

TEST_F(Pressure, ByAFifoAsSystemdsProtocolHasIt) {
  const std::string path = folder_ + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  PressureSources sources({.root = folder_, .watch = path, .write = "aGVsbG8="});
  EXPECT_TRUE(sources.hears_pressure());
  const Fd other{::open(path.c_str(), O_RDWR | O_NONBLOCK)};
  EXPECT_TRUE(sources.wait(soon).pressure)
      << "the five bytes that it wrote itself, as the protocol asks, come back here";
  EXPECT_FALSE(sources.wait(10ms).pressure) << "they were read";
  ASSERT_EQ(::write(other.get(), "x", 1), 1);
  EXPECT_TRUE(sources.wait(soon).pressure);
}

TEST_F(Pressure, ByASocketAsSystemdsProtocolHasIt) {
  const std::string path = folder_ + "/socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const Fd manager{::socket(AF_UNIX, SOCK_STREAM, 0)};
  ASSERT_EQ(::bind(manager.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(manager.get(), 1), 0);
  PressureSources sources({.root = folder_, .watch = path, .write = "aGVsbG8="});
  Fd one{::accept(manager.get(), nullptr, nullptr)};
  char text[6] = {};
  EXPECT_EQ(::read(one.get(), text, 5), 5);
  EXPECT_STREQ(text, "hello");
  EXPECT_FALSE(sources.wait(10ms).pressure);
  ASSERT_EQ(::write(one.get(), "x", 1), 1);
  EXPECT_TRUE(sources.wait(soon).pressure);
  one.reset();  // the manager ends
  EXPECT_FALSE(sources.wait(10ms).pressure && sources.wait(10ms).pressure) << "and that is no pressure for ever";
}

TEST_F(Pressure, IsSwitchedOffByTheNullDeviceAndSaysWhatItCannotHear) {
  EXPECT_FALSE(PressureSources({.root = folder_, .watch = "/dev/null"}).hears_pressure());
  const PressureSources none({.root = folder_, .watch = folder_ + "/none"});
  ASSERT_EQ(none.remarks().size(), 1u);
  EXPECT_NE(none.remarks()[0].find("No such file"), std::string::npos) << none.remarks()[0];
  const PressureSources bad({.root = folder_, .watch = folder_, .write = "?"});
  ASSERT_EQ(bad.remarks().size(), 1u);
  EXPECT_NE(bad.remarks()[0].find("no base64"), std::string::npos);
  const PressureSources silent(in_folder());
  ASSERT_EQ(silent.remarks().size(), 1u);
  EXPECT_NE(silent.remarks()[0].find("limits are followed all the same"), std::string::npos);
}

TEST_F(Pressure, HeadroomIsBelowTheNearestLimitOfAllLevels) {
  write("/proc/self/cgroup", "0::/a/b\n");
  PressureSources sources(in_folder());
  EXPECT_FALSE(sources.wait(1ms).headroom);
  write("/sys/fs/cgroup/a/memory.max", "1000000\n");
  write("/sys/fs/cgroup/a/memory.current", "400000\n");
  EXPECT_EQ(sources.wait(1ms).headroom, 600000);
  write("/sys/fs/cgroup/a/b/memory.high", "300000\n");
  write("/sys/fs/cgroup/a/b/memory.current", "350000\n");
  EXPECT_EQ(sources.wait(1ms).headroom, -50000) << "above it, the kernel slows the program down";
  write("/sys/fs/cgroup/a/b/memory.stat", "active_file 20000\ninactive_file 60000\n");
  EXPECT_EQ(sources.wait(1ms).headroom, 30000) << "the cache of files goes by itself";
  write("/sys/fs/cgroup/a/b/memory.high", "max\n");
  EXPECT_EQ(sources.wait(1ms).headroom, 600000);
}

TEST_F(Pressure, OfAGpuIsItsRegionsLimitAlone) {
  write("/proc/self/cgroup", "0::/a\n");
  write("/sys/fs/cgroup/a/memory.max", "1\n");
  PressureSources::Options options = in_folder();
  options.gpu = "0000:19:00.0";
  PressureSources sources(options);
  EXPECT_TRUE(sources.remarks().empty());
  EXPECT_FALSE(sources.wait(1ms).headroom);
  write("/sys/fs/cgroup/a/dmem.max", "drm/0000:03:00.0/vram0 5\ndrm/0000:19:00.0/vram0 max\n");
  write("/sys/fs/cgroup/a/dmem.current", "drm/0000:03:00.0/vram0 9\ndrm/0000:19:00.0/vram0 70\n");
  EXPECT_FALSE(sources.wait(1ms).headroom);
  write("/sys/fs/cgroup/a/dmem.max", "drm/0000:03:00.0/vram0 5\ndrm/0000:19:00.0/vram0 100\n");
  EXPECT_EQ(sources.wait(1ms).headroom, 30);
}

TEST_F(Pressure, OfAFullGpuIsWhatIsAboveTheGuaranteedMinimum) {
  write("/proc/self/cgroup", "0::/a\n");
  PressureSources::Options options = in_folder();
  options.gpu = "0000:19:00.0";
  PressureSources sources(options);
  write("/sys/fs/cgroup/dmem.capacity", "drm/0000:19:00.0/vram0 3200\n");
  write("/sys/fs/cgroup/a/dmem.current", "drm/0000:19:00.0/vram0 700\n");
  write("/sys/fs/cgroup/b/dmem.current", "drm/0000:03:00.0/vram0 9999\ndrm/0000:19:00.0/vram0 2400\n");
  EXPECT_FALSE(sources.wait(1ms).borrowed) << "nothing is guaranteed, and a limit is all that counts";
  write("/sys/fs/cgroup/a/dmem.min", "drm/0000:19:00.0/vram0 500\n");
  EXPECT_FALSE(sources.wait(1ms).pressure) << "100 are free";
  EXPECT_EQ(sources.wait(1ms).borrowed, Bytes{200});
  write("/sys/fs/cgroup/b/dmem.current", "drm/0000:19:00.0/vram0 2450\n");
  EXPECT_TRUE(sources.wait(1ms).pressure);
  write("/sys/fs/cgroup/a/dmem.current", "drm/0000:19:00.0/vram0 500\n");
  write("/sys/fs/cgroup/b/dmem.current", "drm/0000:19:00.0/vram0 2700\n");
  EXPECT_FALSE(sources.wait(1ms).pressure) << "all of it is its own";
}

TEST_F(Pressure, ARequestComesFromTheSameUserAndIsAnswered) {
  PressureSources::Options options{.root = folder_, .watch = "/dev/null"};
  options.process = ::getpid();
  PressureSources sources(options);
  ASSERT_TRUE(sources.remarks().empty());
  Result<std::string> answer = std::string();
  std::thread asks([&] { answer = ask_for_size(::getpid(), {12'345'678}); });
  PressureSources::Heard heard;
  while (heard.requests.empty()) heard = sources.wait(soon);
  EXPECT_EQ(heard.requests[0].bytes.value, 12'345'678u);
  PressureSources::answer(heard.requests[0], "fast memory is 12");
  asks.join();
  EXPECT_EQ(*answer, "fast memory is 12");
  const PressureSources second(options);
  ASSERT_EQ(second.remarks().size(), 1u) << "of this process there is one already";
}

// At which this process is asked.
std::pair<sockaddr_un, socklen_t> own_address() {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string name = "vedette.size." + std::to_string(::getpid());
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

TEST_F(Pressure, AConnectionThatSaysNothingIsPassedOver) {
  PressureSources::Options options{.root = folder_, .watch = "/dev/null"};
  options.process = ::getpid();
  PressureSources sources(options);
  {
    const Fd silent{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    const auto [address, bytes] = own_address();
    ASSERT_EQ(::connect(silent.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  }
  EXPECT_TRUE(sources.wait(soon).requests.empty());
}

TEST_F(Pressure, AProcessThatDoesNotAnswerIsNamed) {
  const Fd listens{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  const auto [address, bytes] = own_address();
  ASSERT_EQ(::bind(listens.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(::listen(listens.get(), 4), 0);
  const auto answer = ask_for_size(::getpid(), {1}, 50ms);
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find(" does not answer: it is stopped"), std::string::npos);
}

TEST_F(Pressure, AForkedChildDoesNotKeepTheNameOfRequests) {
  PressureSources::Options options{.root = folder_, .watch = "/dev/null"};
  options.process = ::getpid();
  std::optional<PressureSources> sources(std::in_place, options);
  ASSERT_TRUE(sources->remarks().empty());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto body = [&] {
    close_what_children_do_not_keep();  // as the fork handler of a session does
    ::alarm(30);
    if (::write(ends[1], "x", 1) == 1) ::pause();
  };
  testing::in_child(body, [&](pid_t child) {
    char closed = 0;
    EXPECT_EQ(::read(ends[0], &closed, 1), 1);
    sources.reset();
    sources.emplace(options);
    EXPECT_TRUE(sources->remarks().empty()) << sources->remarks()[0];
    ::kill(child, SIGKILL);
  });
  for (const int end : ends) ::close(end);
}

TEST_F(Pressure, AProcessThatDoesNotFollowIsNamed) {
  const auto answer = ask_for_size(1, {1});
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("process 1 does not follow memory pressure; open its guard with pressure"),
            std::string::npos);
}

TEST_F(Pressure, WakeEndsAWait) {
  PressureSources sources({.root = folder_, .watch = "/dev/null"});
  std::thread wakes([&] { sources.wake(); });
  sources.wait(60'000ms);
  wakes.join();
}

}  // namespace
}  // namespace vedette::pressure_test
