// A session of GPU memory rests where nothing has to move: its program's ops go unannounced. Nothing moves before it is
// awake and all that was queued meanwhile has passed, since nobody serves an access to what is away.
#include "session/rest.h"
#include "support/gpu_net.h"

namespace vedette::testing::gpu_rest_test {
namespace {

using detail::Rest;

class GpuSessionAtRest : public SimulatedGpu {};

constexpr std::size_t layers = 4, words = 64 << 10;  // tensors of 256 KiB
constexpr int long_enough = Rest::fewest_steps + 8;

// Weights that each step reads and changes; its ops are announced where the session wants to hear of them.
class Training {
 public:
  using Tensor = WordsOnGpu::Tensor;
  explicit Training(Bytes budget) : gpu({.fast_memory = budget, .slow = "host", .policy = "vedette"}) {
    for (std::size_t layer = 0; layer < layers; ++layer) {
      weights.push_back(gpu.make(words, true));
      gpu.op("begin", weights.back(), {}, static_cast<std::uint32_t>(layer));
    }
  }
  ~Training() {
    for (Tensor& each : weights) gpu.drop(each);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // Also where a birth has just had no room.
  bool hears() {
    if (gpu.session->wants_ops()) return true;
    const auto room = gpu.session->allocate({.bytes = {words * 4}});
    EXPECT_EQ(room.ok(), !gpu.session->wants_ops()) << "a birth without room wakes it";
    if (room) Session::release(*room);
    return !room;
  }
  void step(std::uint32_t number) {
    const auto scope = gpu.session->step();
    std::vector<Tensor> made;
    for (const Tensor& weight : weights) {
      if (hears()) {
        made.push_back(gpu.made_in_op("make", words, {&weight}, number));
      } else {
        made.push_back(gpu.make(words));
        gpu.in_op("make", made.back(), {&weight}, number);
      }
    }
    for (std::size_t layer = layers; layer-- > 0;) {
      gpu.session->wants_ops() ? gpu.op("change", weights[layer], {&made[layer]})
                               : gpu.in_op("change", weights[layer], {&made[layer]});
      gpu.drop(made[layer]);
    }
  }
  std::uint32_t run_until_rest(std::uint32_t number) {
    for (; gpu.session->wants_ops() && number < 4 * Rest::most_steps; ++number) step(number);
    return number;
  }
  void expect_right() {
    for (std::size_t layer = 0; layer < layers; ++layer)
      gpu.expect_right(weights[layer], "weight " + std::to_string(layer));
  }

  WordsOnGpu gpu;
  std::vector<Tensor> weights;
};

TEST_F(GpuSessionAtRest, CountsStepsAndNoOps) {
  Training training(8_MiB);
  std::uint32_t step = training.run_until_rest(0);
  EXPECT_LE(step, long_enough);
  const Counters before = training.gpu.session->counters();
  for (int i = 0; i < 20; ++i) training.step(step++);
  EXPECT_FALSE(training.gpu.session->wants_ops());
  EXPECT_EQ(training.gpu.session->phase(), "planned");
  EXPECT_EQ(training.gpu.session->counters().ops, before.ops);
  EXPECT_EQ(training.gpu.session->counters().steps, step);
  training.gpu.session->hear_ops();
  EXPECT_TRUE(training.gpu.session->wants_ops());
  training.step(step++);
  EXPECT_GT(training.gpu.session->counters().ops, before.ops);
  training.expect_right();
}

// What lives beside the steps grows beyond the budget. Unannounced ops whose work is still queued use the weights.
TEST_F(GpuSessionAtRest, ABirthWithoutRoomWakesItAndNothingMovesBeforeAnOp) {
  Training training(4_MiB);
  training.gpu.spin = 300'000;
  std::uint32_t step = training.run_until_rest(0);
  Session& session = *training.gpu.session;
  const Counters before = session.counters();
  auto other = cuda::Stream::create(training.gpu.device).value();
  const auto event = cuda::Event::create(training.gpu.device).value();
  std::vector<Training::Tensor> kept{training.gpu.make(words), training.gpu.make(words)};
  training.gpu.in_op("keep", kept[0], {}, 7u);
  event.record(training.gpu.stream.handle()).value();
  event.let_wait(other.handle()).value();
  training.gpu.work_on(other.handle());  // of which the session has not heard that it reads it
  training.gpu.in_op("beside", kept[1], {&kept[0]}, 1u);
  training.gpu.work_on(nullptr);
  for (int i = 0; i < 12; ++i) {
    training.step(step++);
    for (int k = 0; k < 2; ++k) {
      const bool hears = training.hears();
      if (!hears) {
        EXPECT_EQ(session.counters().bytes_out.value, before.bytes_out.value);
      }
      kept.push_back(hears ? training.gpu.made_in_op("keep", words, {}, step) : training.gpu.make(words));
    }
  }
  EXPECT_TRUE(session.wants_ops());
  EXPECT_GT(session.counters().bytes_out.value, before.bytes_out.value);
  for (int i = 0; i < 4; ++i) training.step(step++);
  training.expect_right();
  for (auto& each : kept) training.gpu.drop(each);
  training.run_until_rest(step);
  EXPECT_FALSE(session.wants_ops()) << "again";
  training.expect_right();
}

// A place is given away behind the unannounced work of the tensor that lay there.
TEST_F(GpuSessionAtRest, APlaceIsWrittenBehindTheUnannouncedUsesOfTheDead) {
  Training training(4_MiB);
  training.run_until_rest(0);
  auto& gpu = training.gpu;
  auto other = cuda::Stream::create(gpu.device).value();
  const auto scope = gpu.session->step();
  auto short_lived = gpu.make(words);
  gpu.spin = 3'000'000;
  gpu.in_op("slow", short_lived, {&training.weights[0]}, 1u);
  gpu.drop(short_lived);
  gpu.spin = 0;
  gpu.work_on(other.handle());  // which has not waited for it
  auto next = gpu.make(words);
  gpu.in_op("fast", next, {}, 2u);
  other.synchronize().value();
  gpu.work_on(nullptr);
  gpu.expect_right(next, "the one that came later");
  gpu.drop(next);
}

// Its size changes when nothing is left that nobody announced: as the next step begins.
TEST_F(GpuSessionAtRest, HearsTheStepAfterAnotherSizeWasAsked) {
  Training training(8_MiB);
  std::uint32_t number = training.run_until_rest(0);
  ASSERT_FALSE(training.gpu.session->wants_ops());
  const auto got = training.gpu.session->set_fast_memory(3_MiB);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(got->now, 8_MiB);
  EXPECT_NE(got->holds.find("changes as the next step begins"), std::string::npos) << got->holds;
  training.step(number++);
  EXPECT_EQ(training.gpu.session->budget(), 3_MiB);
  for (int more = 0; more < 5; ++more) training.step(number++);
  training.expect_right();
}

}  // namespace
}  // namespace vedette::testing::gpu_rest_test
