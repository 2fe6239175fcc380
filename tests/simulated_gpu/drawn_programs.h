// Programs drawn from seeds on the simulated GPU, each on a device and with options from the same seed, with and
// without a guard: the same bits, and no access is a race.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/drawn_program.h"
#include "simulated_gpu/torch_device.h"

namespace vedette::test {

class DrawnGpuPrograms : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override {
    if (const std::string missing = testing::load_simulated_libraries(); !missing.empty()) GTEST_SKIP() << missing;
    at::set_num_threads(1);
  }

  void expect_plain_runs_bits(unsigned seed) {
    std::mt19937_64 random(seed * 977 + 5);
    testing::control().choose(drawn_device(random));
    testing::control().forget_races();
    Trial plain;
    DrawnProgram(plain, seed, device_).run();
    expect_same_bits(plain, drawn_options(random), seed);
    EXPECT_EQ(testing::control().races(), std::vector<std::string>());
  }

 private:
  static std::uint64_t below(std::mt19937_64& random, std::uint64_t limit) { return random() % limit; }
  static simulated::Options drawn_device(std::mt19937_64& random) {
    simulated::Options options{.memory = std::size_t{512} << 20};
    options.latency_us = std::array{0.0, 0.0, 10.0, 300.0}[below(random, 4)];
    options.gbs = std::array{0.0, 0.0, 0.5, 4.0}[below(random, 4)];
    options.one_engine = below(random, 4) == 0;
    options.copies_wait = below(random, 4) == 0;
    options.unmap_waits = below(random, 4) == 0;
    options.batched_copies = below(random, 4) != 0;
    return options;
  }
  static std::uint64_t peak_bytes() {
    constexpr std::size_t all = 0;  // StatType::AGGREGATE
    return static_cast<std::uint64_t>(c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(0).allocated_bytes[all].peak);
  }
  static GuardOptions drawn_options(std::mt19937_64& random) {
    const Bytes least = 6_MiB;
    GuardOptions options = {.fast_memory = std::max(least, Bytes{peak_bytes() * (25 + below(random, 60)) / 100}),
                            .fast = "gpu:0",
                            .slow = "host",
                            .on_message = [](auto) {}};
    if (below(random, 4) == 0) options.slow = "host:8MiB+nvme:" + ::testing::TempDir();
    const std::array<std::string_view, 5> others = {"on-demand", "sentinel", "g10", "capuchin", "vdnn-all"};
    if (below(random, 3) == 0) options.policy = others[below(random, others.size())];
    options.warmup_steps = static_cast<std::uint32_t>(below(random, 3));
    options.recompute =
        std::array{Recompute::off, Recompute::off, Recompute::planned, Recompute::always}[below(random, 4)];
    return options;
  }
  // A budget without room for an op is told as libtorch tells it, and a larger one has the room.
  void expect_same_bits(const Trial& plain, GuardOptions options, unsigned seed) {
    constexpr int most_doublings = 2;
    for (int doubled = 0;; ++doubled, options.fast_memory.value *= 2) {
      SCOPED_TRACE("budget " + std::to_string(options.fast_memory.value) + ", " + options.slow + ", " + options.policy);
      Guard guard(options);
      Trial guarded{.guard = &guard};
      try {
        DrawnProgram(guarded, seed, device_).run();
      } catch (const c10::OutOfMemoryError& error) {
        ASSERT_LT(doubled, most_doublings) << error.what();
        continue;
      }
      expect_same(guarded.outcome, plain.outcome);
      EXPECT_FALSE(guard.session().take_error());
      return;
    }
  }

  const c10::Device device_{at::kCUDA, 0};
};

}  // namespace vedette::test
