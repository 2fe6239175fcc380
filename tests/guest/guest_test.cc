// The core on a kernel that is not this machine's: Debian 12's own (6.1), without asynchronous write protection,
// UFFDIO_MOVE, PAGEMAP_SCAN and guard pages, with a memory cgroup of version 2, in software emulation (boot.sh). The
// same programs as everywhere run there; what the kernel lacks they skip by name, and doctor says what is used instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Boot {
  std::string said;
  int status = -1;
};

Boot boot(const std::string& programs) {
  std::string folder = (fs::current_path() / "vedette-guest-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return {};
  Boot result;
  const std::string command = std::string("bash " VEDETTE_BOOT " " VEDETTE_GUEST_KERNEL " '")
                                  .append(folder)
                                  .append("' ")
                                  .append(programs)
                                  .append(" 2>&1");
  if (std::FILE* const pipe = ::popen(command.c_str(), "re")) {
    std::array<char, 4096> buffer;
    for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
      result.said.append(buffer.data(), n);
    const int status = ::pclose(pipe);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  fs::remove_all(folder);
  return result;
}

TEST(DebiansOwnKernel, RunsTheCoreAndDoctorSaysWhatItUsesInstead) {
  const Boot guest =
      boot("'" VEDETTE_CLI " doctor --no-disk --json' '" VEDETTE_CLI " doctor --no-disk' " VEDETTE_GUEST_PROGRAMS);
  if (guest.status == 77) GTEST_SKIP() << guest.said;
  ASSERT_EQ(guest.status, 0) << guest.said;
  EXPECT_THAT(guest.said, HasSubstr("guest: done")) << "it did not reach its end";
  // What skips in the guest is not this test: ctest looks for the word as gtest writes it.
  const std::regex skipped(R"(\[  SKIPPED \])");
  std::printf("%s\n", std::regex_replace(guest.said, skipped, "[  skipped ]").c_str());
  for (std::size_t at = 0; (at = guest.said.find("guest: rc=", at)) != std::string::npos; ++at) {
    const std::string line = guest.said.substr(at, guest.said.find('\n', at) - at);
    EXPECT_TRUE(line.starts_with("guest: rc=0 ")) << line;
  }
  const std::size_t begin = guest.said.find("\n{"), end = guest.said.find("\n}", begin);
  ASSERT_NE(end, std::string::npos);
  const auto doctor = nlohmann::json::parse(guest.said.substr(begin, end + 2 - begin));
  EXPECT_THAT(doctor.at("kernel").get<std::string>(), HasSubstr("Linux 6.1."));
  EXPECT_EQ(doctor.at("uses").at("memory").at("mechanism"), "userfaultfd, mremap");
  EXPECT_THAT(doctor.at("uses").at("tracking").at("mechanism").get<std::string>(), HasSubstr("missing pages, messages"))
      << "system calls into profiled memory";
  EXPECT_FALSE(doctor.at("zap_tracking").at("works").get<bool>());
  EXPECT_FALSE(doctor.at("userfaultfd").at("move").at("works").get<bool>());
}

}  // namespace
