// A guest that boots, runs programs and ends: boot.sh, and what it said.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

namespace vedette::guest_test {

struct Boot {
  std::string said;
  int status = -1;
};

// `settings`: of the environment, "VEDETTE_GUEST_NODE1=1024 ". `kernel`: "guest", Debian 12's own, or "guest-6.12".
inline Boot boot(const std::string& programs, const std::string& kernel = "guest", const std::string& settings = "") {
  std::string folder = (std::filesystem::current_path() / "vedette-guest-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return {};
  Boot result;
  const std::string command = settings + "bash " VEDETTE_BOOT " " VEDETTE_GUEST_KERNELS "/" + kernel + "/vmlinuz '" +
                              folder + "' " + programs + " 2>&1";
  if (std::FILE* const pipe = ::popen(command.c_str(), "re")) {
    std::array<char, 4096> buffer;
    for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
      result.said.append(buffer.data(), n);
    const int status = ::pclose(pipe);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::filesystem::remove_all(folder);
  return result;
}

// All programs ran and ended well. What skips in the guest is not this test: ctest looks for the word as gtest writes
// it.
inline void expect_all_well(const Boot& guest) {
  ASSERT_EQ(guest.status, 0) << guest.said;
  EXPECT_NE(guest.said.find("guest: done"), std::string::npos) << "it did not reach its end";
  const std::regex skipped(R"(\[  SKIPPED \])");
  std::printf("%s\n", std::regex_replace(guest.said, skipped, "[  skipped ]").c_str());
  for (std::size_t at = 0; (at = guest.said.find("guest: rc=", at)) != std::string::npos; ++at) {
    const std::string line = guest.said.substr(at, guest.said.find('\n', at) - at);
    EXPECT_TRUE(line.starts_with("guest: rc=0 ")) << line;
  }
}

// The first JSON document that was printed: doctor's.
inline nlohmann::json json_in(const std::string& said) {
  const std::size_t begin = said.find("\n{"), end = said.find("\n}", begin);
  if (end == std::string::npos) return {};
  return nlohmann::json::parse(said.substr(begin, end + 2 - begin));
}

}  // namespace vedette::guest_test
