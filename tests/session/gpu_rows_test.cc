// A tensor of GPU memory of which ops use few rows: where it is away they use them in pinned memory, over the link, and
// it does not come. A tensor that some op has whole moves as others do.
#include <array>
#include <random>
#include <vector>

#include "support/gpu_program.h"

namespace vedette::testing::gpu_rows_test {
namespace {

class GpuRows : public SimulatedGpu {};

constexpr std::size_t words = 64 << 10, row = 256, layers = 3;  // tensors of 256 KiB, rows of 1 KiB
constexpr Bytes whole{words * 4};

// A memory of samples beside weights that each step changes; steps read rows of it, and change one.
class Learner {
 public:
  using Tensor = WordsOnGpu::Tensor;
  explicit Learner(SessionOptions options) : gpu(std::move(options)) {
    samples = gpu.make(words, true);
    gpu.op("begin", samples, {}, 7u);
    for (std::size_t layer = 0; layer < layers; ++layer) {
      weights.push_back(gpu.make(words, true));
      gpu.op("begin", weights.back(), {}, static_cast<std::uint32_t>(layer));
    }
    batch = gpu.make(row, true);
    gpu.op("begin", batch, {}, 5u);
  }
  ~Learner() {
    for (Tensor* const each : {&samples, &batch, &weights[0], &weights[1], &weights[2]}) gpu.drop(*each);
  }
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  void step(bool has_it_whole = false) {
    const auto scope = gpu.session->step();
    for (int i = 0; i < 4; ++i) {
      const Part part{.first = samples.name, .bytes = {row * 4}};
      const void* const writes[] = {batch.name};
      const auto op = gpu.session->op("look up", writes, writes, {&part, 1});
      gpu.read_row_in_op(samples, drawn(), batch);
    }
    for (Tensor& weight : weights) gpu.op("change", weight, {&batch});
    const Part part{.first = samples.name, .bytes = {row * 4}, .written = true};
    const void* const reads[] = {batch.name};
    {
      const auto op = gpu.session->op("store", reads, {}, {&part, 1});
      gpu.write_row_in_op(samples, drawn(), batch);
    }
    if (has_it_whole) gpu.op("change all", samples, {&batch});
  }
  void expect_right() {
    gpu.expect_right(samples, "samples");
    gpu.expect_right(batch, "batch");
    for (Tensor& weight : weights) gpu.expect_right(weight, "weight");
  }

  WordsOnGpu gpu;
  std::vector<Tensor> weights;
  Tensor samples, batch;

 private:
  std::size_t drawn() { return random_() % (words / row) * row; }
  std::mt19937 random_{3};
};

// The weights have room, and the samples beside them do not.
constexpr Bytes enough_for_weights{(layers * words + words / 2) * 4};

struct Moved {
  Bytes in, out, in_place;
};
Moved moved_since(const Counters& before, const Counters& now) {
  return {.in = {now.bytes_in.value - before.bytes_in.value},
          .out = {now.bytes_out.value - before.bytes_out.value},
          .in_place = {now.bytes_in_place.value - before.bytes_in_place.value}};
}

TEST_F(GpuRows, AreUsedInHostMemoryAndTheTensorDoesNotCome) {
  for (const std::string policy : {"vedette", "on-demand"}) {
    for (const std::string& slow : {std::string("host"), "host:1MiB+nvme:" + ::testing::TempDir()}) {
      Learner learner({.fast_memory = enough_for_weights, .slow = slow, .policy = policy});
      for (int s = 0; s < 6; ++s) learner.step();
      const Counters before = learner.gpu.session->counters();
      for (int s = 0; s < 20; ++s) learner.step();
      const Moved moved = moved_since(before, learner.gpu.session->counters());
      EXPECT_EQ(moved.in, Bytes{}) << policy << ", " << slow << " (as a whole operand 20 x 256 KiB or more)";
      EXPECT_EQ(moved.out, Bytes{}) << policy << ", " << slow;
      EXPECT_EQ(moved.in_place, Bytes{20 * 5 * row * 4}) << policy << ", " << slow;
      learner.expect_right();
      EXPECT_THAT(control().races(), ::testing::IsEmpty());
      EXPECT_FALSE(learner.gpu.session->take_error());
    }
  }
}

TEST_F(GpuRows, ATensorThatAnotherOpHasWholeComesByThePlan) {
  Learner learner({.fast_memory = enough_for_weights, .slow = "host", .policy = "vedette"});
  for (int s = 0; s < 400 && learner.gpu.session->phase() != "planned"; ++s) learner.step(true);
  for (int s = 0; s < 4; ++s) learner.step(true);
  ASSERT_EQ(learner.gpu.session->phase(), "planned");
  const Counters before = learner.gpu.session->counters();
  for (int s = 0; s < 10; ++s) learner.step(true);
  EXPECT_GT(moved_since(before, learner.gpu.session->counters()).in, Bytes{});
  const std::vector<PlannedStep> steps = learner.gpu.session->planned_steps();
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].trace.tensors.size(), layers + 2) << "the samples are one of the plan's tensors";
  learner.expect_right();
}

TEST_F(GpuRows, WhereThereIsRoomNothingMovesAndNothingIsUsedAway) {
  Learner learner({.fast_memory = {2 * (layers + 1) * whole.value}, .slow = "host", .policy = "vedette"});
  for (int s = 0; s < 10; ++s) learner.step();
  EXPECT_EQ(learner.gpu.session->counters().bytes_in, Bytes{});
  EXPECT_EQ(learner.gpu.session->counters().bytes_in_place, Bytes{});
  learner.expect_right();
}

// The samples are used in their slot by an op of one thread, while another thread's op has all of them.
TEST_F(GpuRows, AnOpOfAnotherThreadHasThemInHostMemoryMeanwhile) {
  Learner learner({.fast_memory = enough_for_weights, .slow = "host", .policy = "on-demand"});
  for (int s = 0; s < 4; ++s) learner.step();
  WordsOnGpu& gpu = learner.gpu;
  const Part part{.first = learner.samples.name, .bytes = {row * 4}, .written = true};
  const void* const reads[] = {learner.batch.name};
  {
    const auto step = gpu.session->step();
    const auto op = gpu.session->op("store", reads, {}, {&part, 1});
    const DeviceAddress here = gpu.session->gpu()->address(learner.samples.name);
    EXPECT_NE(here, 0u);
    {
      const auto held = gpu.session->resident(learner.samples.name);
      EXPECT_EQ(gpu.session->gpu()->address(learner.samples.name), here) << "it does not move beside the op";
      gpu.write_row_in_op(learner.samples, 0, learner.batch);
    }
    gpu.write_row_in_op(learner.samples, row, learner.batch);
  }
  EXPECT_EQ(gpu.session->gpu()->address(learner.samples.name), 0u);
  learner.expect_right();
}

// A slot knows one latest use: that of the op stands behind the other stream's.
TEST_F(GpuRows, TheTensorComesBehindTheUsesOfAllStreams) {
  Learner learner({.fast_memory = enough_for_weights, .slow = "host", .policy = "on-demand"});
  WordsOnGpu& gpu = learner.gpu;
  WordsOnGpu::Tensor other = gpu.make(row, true);
  gpu.op("begin", other, {}, 9u);
  for (int s = 0; s < 4; ++s) learner.step();
  const cuda::Stream stream = cuda::Stream::create(gpu.device).value();
  gpu.stream.synchronize().value();
  const Part part{.first = learner.samples.name, .bytes = {row * 4}, .written = true};
  const void* const reads[] = {learner.batch.name};
  {
    const auto step = gpu.session->step();
    const auto op = gpu.session->op("store", reads, {}, {&part, 1});
    gpu.work_on(stream.handle());
    {
      const auto held = gpu.session->resident(learner.samples.name), held_too = gpu.session->resident(other.name);
      gpu.write_row_in_op(learner.samples, 0, other);
    }
    gpu.work_on(nullptr);
    gpu.write_row_in_op(learner.samples, row, learner.batch);
  }
  learner.step(true);
  learner.expect_right();
  EXPECT_THAT(control().races(), ::testing::IsEmpty());
  gpu.drop(other);
}

// What an op changed in host memory is there when the tensor comes, and what dies beside an op dies after it.
TEST_F(GpuRows, CopiesRunBehindTheOpsThatUseTheSlot) {
  control().choose({.latency_us = 500});
  Learner learner({.fast_memory = enough_for_weights, .slow = "host", .policy = "on-demand"});
  learner.gpu.spin = 10'000;
  for (int s = 0; s < 12; ++s) learner.step(s % 2 == 1);
  learner.expect_right();
  EXPECT_THAT(control().races(), ::testing::IsEmpty());
  WordsOnGpu& gpu = learner.gpu;
  WordsOnGpu::Tensor dies = gpu.make(words, true);
  gpu.op("begin", dies, {}, 3u);
  for (int s = 0; s < 3; ++s) learner.step();
  const Part part{.first = dies.name, .bytes = {row * 4}, .written = true};
  const void* const reads[] = {learner.batch.name};
  {
    const auto op = gpu.session->op("store", reads, {}, {&part, 1});
    gpu.write_row_in_op(dies, 0, learner.batch);
    gpu.drop(dies);
  }
  for (int s = 0; s < 3; ++s) learner.step(true);
  learner.expect_right();
  EXPECT_THAT(control().races(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace vedette::testing::gpu_rows_test
