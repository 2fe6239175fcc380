// Ten thousand small steps: nothing grows, neither memory nor files nor mappings nor the time of a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "session/loop.h"
#include "support/resident_bytes.h"

namespace vedette::many_steps_test {
namespace {

using testing::Loop;
using testing::open_session;

struct Figures {
  std::uint64_t resident = 0, mappings = 0, files = 0, threads = 0;
};

Figures figures() {
  Figures now{.resident = testing::resident_bytes()};
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Threads:")) now.threads = std::stoull(line.substr(8));
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++now.mappings;
  now.files = static_cast<std::uint64_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
  return now;
}

class ManySteps : public ::testing::TestWithParam<const char*> {};

TEST_P(ManySteps, GrowNothing) {
  constexpr std::uint64_t steps = 10'000, block = 1'000;
  const auto session = open_session({std::uint64_t{1} << 20}, "host", GetParam());
  Loop loop(*session, 4, 80'000);
  std::vector<double> medians;
  Figures after_first;
  std::uint64_t bytes_in_first = 0, bytes_in_before = 0;
  for (std::uint64_t b = 0; b < steps / block; ++b) {
    std::vector<double> times;
    for (std::uint64_t s = 0; s < block; ++s) {
      const auto began = std::chrono::steady_clock::now();
      loop.step(s, s % 100 == 99 ? 2 : 4);  // now and then a shorter one
      times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count());
    }
    std::nth_element(times.begin(), times.begin() + block / 2, times.end());
    medians.push_back(times[block / 2]);
    if (b == 0) {
      after_first = figures();
      bytes_in_before = session->counters().bytes_in.value;
    }
    if (b == 1) bytes_in_first = session->counters().bytes_in.value - bytes_in_before;
    if (b == steps / block - 2) bytes_in_before = session->counters().bytes_in.value;
  }
  const Figures last = figures();
  const std::uint64_t bytes_in_last = session->counters().bytes_in.value - bytes_in_before;
  std::printf(
      "after 1000 steps: %lu KiB, %lu mappings, %lu files; after 10000: %lu KiB, %lu, %lu; a step: %.0f us, then %.0f "
      "us\n",
      after_first.resident >> 10, after_first.mappings, after_first.files, last.resident >> 10, last.mappings,
      last.files, medians[0], medians.back());
  EXPECT_LE(last.resident, after_first.resident + (2u << 20));
  EXPECT_LE(last.mappings, after_first.mappings + 4);
  EXPECT_EQ(last.files, after_first.files);
  EXPECT_LE(last.threads, after_first.threads);  // fewer: a plan was in the making
  const double early = std::min({medians[0], medians[1], medians[2]});
  const double late = std::min({medians[medians.size() - 1], medians[medians.size() - 2], medians[medians.size() - 3]});
  EXPECT_LE(late, early * 2);  // the machine may be busy with other things
  EXPECT_LE(bytes_in_last, bytes_in_first + bytes_in_first / 2 + (1u << 20));
}
INSTANTIATE_TEST_SUITE_P(Policies, ManySteps, ::testing::Values("on-demand", "sentinel", "vedette"));

}  // namespace
}  // namespace vedette::many_steps_test
