// Ten thousand steps leave the process as a thousand did: no more memory, open files or mappings.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "adapter/training.h"

namespace vedette::test::ten_thousand_steps_test {
namespace {

struct Footprint {
  std::uint64_t resident_kib = 0, mappings = 0, files = 0;
};

Footprint footprint() {
  Footprint now;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "RssAnon:" && word != "RssShmem:") continue;
    std::uint64_t kib = 0;
    status >> kib;
    now.resident_kib += kib;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++now.mappings;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++now.files;
  return now;
}

// On files in memory where there is room: gigabytes go each way, and how fast a disk is is not the question here.
std::string folder_for_steps() {
  std::error_code ignored;
  const auto room = std::filesystem::space("/dev/shm", ignored);
  const bool in_memory = !ignored && room.available > std::uint64_t{1} << 30 && ::access("/dev/shm", W_OK | X_OK) == 0;
  const std::string above = in_memory ? std::string("/dev/shm/") : ::testing::TempDir();
  return std::string(above).append("vedette_ten_thousand_steps_").append(std::to_string(::getpid()));
}

TEST(TenThousandSteps, GrowNothing) {
  at::set_num_threads(2);
  const std::string folder = folder_for_steps();
  std::filesystem::create_directories(folder);
  examples::forget_peak();

  const auto plain = small("mlp");
  for (std::int64_t i = 0; i < 3; ++i) plain->train_step(i, 2);
  const std::uint64_t peak = examples::counted_peak_bytes();
  Guard guard{{.fast_memory = Bytes{peak / 2}, .slow = "nvme:" + folder, .chunk = small_chunk}};
  const auto model = small("mlp");
  guard.watch(model->module());
  guard.watch(model->optimizer());
  Footprint early;
  for (std::int64_t i = 0; i < 10'000; ++i) {
    const auto step = guard.step();
    const std::int64_t samples = i % 50 == 49 ? 1 : 2;  // and a second plan, now and then
    ASSERT_TRUE(std::isfinite(model->train_step(i, samples))) << i;
    if (i == 1000) early = footprint();
  }
  const Footprint late = footprint();
  std::filesystem::remove(folder);  // what lies in it has no name
  EXPECT_GT(guard.counters().bytes_in.value, std::uint64_t{1} << 30);
  EXPECT_LE(late.resident_kib, early.resident_kib + early.resident_kib / 50 + 512);  // malloc's own slack
  EXPECT_LE(late.mappings, early.mappings + 8);
  EXPECT_EQ(late.files, early.files);
  std::printf("resident %lu -> %lu KiB, mappings %lu -> %lu, files %lu -> %lu\n", early.resident_kib, late.resident_kib,
              early.mappings, late.mappings, early.files, late.files);
}

}  // namespace
}  // namespace vedette::test::ten_thousand_steps_test
