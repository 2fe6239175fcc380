// A GPU's memory of another size while the program runs: the host's numbers, and the memory that goes is free for
// others on the device.
#include <atomic>
#include <random>
#include <thread>

#include "support/gpu_net.h"

namespace vedette::testing::gpu_fast_memory_test {
namespace {

class GpuFastMemory : public SimulatedGpu {};

constexpr std::size_t layers = 8, words = 512 << 10;  // activations of 2 MiB: 18 MiB of them, 16 MiB of weights
constexpr Bytes all = 48_MiB, piece = 3_MiB;          // the range grows and shrinks by sixteenths

std::uint64_t free_bytes(const WordsOnGpu& gpu) { return gpu.device->memory().value().free.value; }

TEST_F(GpuFastMemory, FollowsSizesThatChangeBetweenOps) {
  WordsOnGpu gpu({.fast_memory = all, .slow = "host", .policy = "vedette"});
  const std::uint64_t free_at_first = free_bytes(gpu);
  NetOnGpu net(gpu, layers, words);
  std::mt19937_64 random(3);
  int changes = 0;
  const auto change = [&] {
    const Bytes asked{(14 + random() % 50) << 20};  // more than at first, too
    const auto got = gpu.session->set_fast_memory(asked);
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(got->now, asked) << got->holds;
    EXPECT_EQ(gpu.session->budget(), asked);
    const std::uint64_t kept = asked.value + 2 * piece.value;
    EXPECT_GE(free_bytes(gpu) + kept, free_at_first + all.value) << "others have the rest";
    ++changes;
  };
  net.in_the_middle = [&](const std::vector<WordsOnGpu::Tensor>&) {
    if (random() % 2 == 0) change();
  };
  for (std::uint32_t s = 0; s < 40 && !HasFailure(); ++s) {
    net.step(s);
    if (random() % 3 == 0) change();
  }
  net.expect_right();
  EXPECT_GT(changes, 20);
  EXPECT_FALSE(gpu.session->take_error());
}

TEST_F(GpuFastMemory, AnotherThreadWaitsForTheEndOfAnOp) {
  WordsOnGpu gpu({.fast_memory = all, .slow = "host", .policy = "vedette"});
  NetOnGpu net(gpu, layers, words);
  net.step(0);
  std::atomic<bool> over = false;
  int met = 0, changes = 0;
  std::thread changer([&] {
    std::mt19937_64 random(4);
    for (; !over; ++changes) {
      const Bytes asked{(14 + random() % 34) << 20};
      const auto got = gpu.session->set_fast_memory(asked);
      ASSERT_TRUE(got.ok()) << got.error().message;
      met += got->now == asked ? 1 : 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  std::uint32_t s = 1;
  for (; (s < 40 || met < 20) && s < 2'000; ++s) net.step(s);
  over = true;
  std::atomic<bool> ended = false;
  std::thread joiner([&] {
    changer.join();
    ended = true;
  });
  while (!ended) net.step(s++);  // a call that waits finds an op
  joiner.join();
  net.expect_right();
  EXPECT_GE(met, 20) << "of " << changes;
}

TEST_F(GpuFastMemory, HasAPlanForEachSize) {
  WordsOnGpu gpu({.fast_memory = 32_MiB, .slow = "host", .policy = "vedette"});
  NetOnGpu net(gpu, layers, words);
  std::uint32_t s = 0;
  const auto settle = [&] {
    for (int n = 0; n < 200 && (n < 6 || gpu.session->phase() != "planned"); ++n) net.step(s++);
    EXPECT_EQ(gpu.session->phase(), "planned");
  };
  settle();
  ASSERT_EQ(gpu.session->set_fast_memory(16_MiB)->now, 16_MiB);
  net.step(s++);
  EXPECT_NE(gpu.session->phase(), "planned");
  settle();
  ASSERT_EQ(gpu.session->set_fast_memory(32_MiB)->now, 32_MiB);
  net.step(s++);
  EXPECT_EQ(gpu.session->phase(), "planned") << "by the plan that was kept";
  settle();
  net.expect_right();
  EXPECT_FALSE(gpu.session->take_error());
}

TEST_F(GpuFastMemory, KeepsWhatMayNotMoveAndSaysSo) {
  WordsOnGpu gpu({.fast_memory = all, .slow = "host", .policy = "vedette"});
  WordsOnGpu::Tensor low = gpu.make(words), high = gpu.make(4 * words);  // 2 MiB, and 8 above them
  gpu.op("fill", low, {}, 1u);
  gpu.op("fill", high, {}, 2u);
  gpu.session->gpu()->forbid_moves(high.name);
  const auto held = gpu.session->set_fast_memory(4_MiB);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(held->now, 10_MiB);
  EXPECT_NE(held->holds.find("whose address other code keeps"), std::string::npos) << held->holds;
  gpu.session->gpu()->allow_moves(high.name);
  const auto op = gpu.session->set_fast_memory(4_MiB);
  EXPECT_EQ(op->now, 8_MiB);
  EXPECT_NE(op->holds.find("the largest op so far needs 8.0 MiB"), std::string::npos) << op->holds;
  gpu.expect_right(low, "low");
  gpu.expect_right(high, "high");
  const auto more = gpu.session->set_fast_memory({std::uint64_t{1} << 50});
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.error().message.find("and what the GPU has"), std::string::npos) << more.error().message;
}

}  // namespace
}  // namespace vedette::testing::gpu_fast_memory_test
