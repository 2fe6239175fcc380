// What a plan's moves mean for GPU memory: plans that are refused, holds, departures, and steps that begin as planned.
#include "gpu/executor.h"

#include <gmock/gmock.h>

#include "simulated_gpu/test_device.h"

namespace vedette::testing::executor_test {
namespace {

using detail::Executor;
using detail::GpuExecutor;
using detail::OpMoves;
using detail::PlannedPlaces;

constexpr Bytes chunk = 4_KiB, tensor = 64_KiB;
constexpr std::uint32_t chunks_of_a_tensor = 16;

class GpuPlans : public SimulatedGpu, public GpuProgram {
 protected:
  void TearDown() override {
    for (const std::uint32_t n : living_) executor_->died(chunks(n));
    executor_.reset();
    stream_.reset();
    device_.reset();
    SimulatedGpu::TearDown();
  }
  void SetUp() override {
    SimulatedGpu::SetUp();
    registered_before_ = pinned_pieces();
    device_ = open_device();
    stream_.emplace(cuda::Stream::create(device_).value());
    executor_ = GpuExecutor::make(
                    device_,
                    {.budget = {8 * tensor.value}, .host = {}, .arena = names_.data(), .chunk = chunk, .program = this})
                    .value();
  }
  void* current_stream() noexcept override { return stream_->handle(); }
  void moved(const void*, DeviceAddress) noexcept override {}

  static ChunkRange chunks(std::uint32_t n) { return ChunkRange::of({n * chunks_of_a_tensor}, chunks_of_a_tensor); }
  const std::byte* name(std::uint32_t n) const { return names_.data() + n * tensor.value; }
  DeviceAddress address(std::uint32_t n) const { return executor_->address(name(n)); }
  void born(std::uint32_t n) {
    executor_->born(chunks(n), tensor).value();
    executor_->allow_moves(name(n));
    living_.push_back(n);
  }
  // An op that uses nothing, after which these leave.
  void leave(std::vector<std::uint32_t> gone, const PlannedPlaces* places = nullptr) {
    std::vector<OpMoves::Departure> departures;
    for (const std::uint32_t n : gone) departures.push_back({.chunks = chunks(n), .source = {}, .target = {1}});
    executor_->begin_op({0}, "op", {.operands = {}, .moves = {}, .places = places, .frames_to_come = {}});
    executor_->end_op(departures);
  }

  unsigned registrations() const { return pinned_pieces() - registered_before_; }

  unsigned registered_before_ = 0;
  std::vector<std::byte> names_ = std::vector<std::byte>(32 * tensor.value);
  std::vector<std::uint32_t> living_;
  std::shared_ptr<cuda::Device> device_;
  std::optional<cuda::Stream> stream_;
  std::unique_ptr<GpuExecutor> executor_;
};

TEST_F(GpuPlans, AreRefusedWhereMemoryCannotFollow) {
  const auto refused = [&](const Plan& plan) {
    const auto accepted = executor_->accepts(plan);
    return accepted ? std::string() : accepted.error().message;
  };
  const Move evict{
      .issue = {1}, .due = {2}, .extent = {.tensor = {0}}, .source = {0}, .target = {1}, .verb = Verb::evict};
  EXPECT_EQ(refused({.home = {}, .moves = {evict}}), "");
  Plan parts{.home = {}, .moves = {evict}};
  parts.moves[0].extent.part = Span<Bytes>{{0}, {4096}};
  EXPECT_THAT(refused(parts), ::testing::HasSubstr("move a part of a tensor"));
  Plan far{.home = {}, .moves = {evict}};
  far.moves[0].target = {2};
  EXPECT_THAT(refused(far), ::testing::HasSubstr("reach tier 2"));
  EXPECT_THAT(refused({.home = {}, .moves = {}, .recomputations = {{.before = {1}, .producer = {0}, .tensor = {0}}}}),
              ::testing::HasSubstr("run an op again"));
  EXPECT_THAT(refused({.home = {}, .moves = {}, .in_place = {{.op = {0}, .tensor = {0}, .tier = {1}}}}),
              ::testing::HasSubstr("slower tier"));
  EXPECT_THAT(refused({.home = {}, .moves = {}, .order = {{1}, {0}}}), ::testing::HasSubstr("another order"));
}

TEST_F(GpuPlans, SendAwayWhatLeavesAndNothingElse) {
  for (std::uint32_t n = 0; n < 3; ++n) born(n);
  leave({1});
  EXPECT_NE(address(0), 0u);
  EXPECT_EQ(address(1), 0u);
  EXPECT_NE(address(2), 0u);
}

TEST_F(GpuPlans, HaveRegisteredMemoryForWhatLeavesBeforeTheStep) {
  const std::vector<Executor::Leaving> leaving = {{.chunks = chunks(0), .bytes = tensor, .persistent = true},
                                                  {.chunks = chunks(1), .bytes = tensor},
                                                  {.chunks = chunks(2), .bytes = 65_MiB}};
  executor_->will_leave(leaving);
  // A tensor of 65 MiB has a piece of its own, once for each of two steps.
  EXPECT_EQ(registrations(), 3u);
  for (std::uint32_t n = 0; n < 2; ++n) born(n);
  leave({0, 1});
  EXPECT_EQ(address(1), 0u);
  executor_->will_leave(leaving);
  EXPECT_EQ(registrations(), 3u) << "pinned memory stays";
}

TEST_F(GpuPlans, LeaveWhatIsHeldUntilItsLastHoldEnds) {
  born(0);
  executor_->hold(chunks(0)).value();
  executor_->hold(chunks(0)).value();
  EXPECT_EQ(executor_->held_chunks(), chunks_of_a_tensor);
  executor_->release_hold(chunks(0));
  leave({0});
  EXPECT_NE(address(0), 0u) << "one hold is left";
  executor_->release_hold(chunks(0));
  EXPECT_EQ(executor_->held_chunks(), 0u);
  leave({0});
  EXPECT_EQ(address(0), 0u);
}

// A ResidentScope may end after its tensor, whose name is another tensor's by then.
TEST_F(GpuPlans, AHoldMayOutliveItsTensor) {
  born(0);
  executor_->hold(chunks(0)).value();
  executor_->died(chunks(0));
  living_.pop_back();
  born(0);
  executor_->hold(chunks(0)).value();
  EXPECT_EQ(executor_->held_chunks(), 2 * chunks_of_a_tensor);
  executor_->release_hold(chunks(0));
  leave({0});
  EXPECT_NE(address(0), 0u) << "the hold of the tensor that lives";
  executor_->release_hold(chunks(0));
  EXPECT_EQ(executor_->held_chunks(), 0u);
  for (std::uint32_t n = 1; n < 8; ++n) born(n);  // the dead tensor's place is free again
  leave({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(address(0), 0u);
}

// By the plan both are only read, so that what the host has of them would do.
TEST_F(GpuPlans, CopyWhatAnOpWritesAgainstThem) {
  const std::vector<ChunkRange> both = {chunks(0), chunks(1)}, one = {chunks(0)};
  for (std::uint32_t n = 0; n < 2; ++n) born(n);
  leave({0, 1});
  const Counters before = executor_->counters();
  const PlannedPlaces places;
  const std::vector<OpMoves::Fetch> back = {
      {.chunks = chunks(0), .source = {1}, .unchanged = true, .place = 0},
      {.chunks = chunks(1), .source = {1}, .unchanged = true, .place = tensor.value}};
  executor_->begin_op({0}, "other", {.operands = both, .moves = {.fetches = back}, .places = &places, .written = one});
  launch_fill(stream_->handle(), address(0), tensor.value / sizeof(std::uint32_t), 7);
  const std::vector<OpMoves::Departure> gone = {{.chunks = chunks(0), .source = {}, .target = {1}},
                                                {.chunks = chunks(1), .source = {}, .target = {1}}};
  executor_->end_op(gone);
  EXPECT_EQ(executor_->counters().bytes_in.value - before.bytes_in.value, 2 * tensor.value);
  EXPECT_EQ(executor_->counters().bytes_out.value - before.bytes_out.value, tensor.value);
}

// The first step by a plan finds tensors anywhere; a step that follows the same plan finds them as they should be.
TEST_F(GpuPlans, BeginWithTheirTensorsWhereTheyShouldBe) {
  for (std::uint32_t n = 0; n < 3; ++n) born(n);
  const DeviceAddress first = address(0);
  const PlannedPlaces places{.births = {},
                             .at_start = {{chunks(2), 0}, {chunks(0), 4 * tensor.value}}};  // and 1 is away
  executor_->begin_step(1);
  leave({}, &places);
  EXPECT_EQ(address(2), first);
  EXPECT_EQ(address(0), first + 4 * tensor.value);
  EXPECT_EQ(address(1), 0u);
  const Counters before = executor_->counters();
  executor_->begin_step(2);
  leave({}, &places);
  EXPECT_EQ(executor_->counters().bytes_in.value, before.bytes_in.value);
  EXPECT_EQ(executor_->counters().bytes_out.value, before.bytes_out.value);
}

// Which plan a step follows is known at its first op. What is born before lies where the plan of the step before has
// it; where the step follows another one, it moves.
TEST_F(GpuPlans, HavePlacesForWhatIsBornBeforeTheFirstOp) {
  born(0);
  const DeviceAddress first = address(0);
  const PlannedPlaces one{.births = {{chunks(1).first().value, 5 * tensor.value}}, .at_start = {{chunks(0), 0}}};
  const PlannedPlaces other{.births = {{chunks(1).first().value, 3 * tensor.value}}, .at_start = {{chunks(0), 0}}};
  const auto step = [&](std::uint64_t number, const PlannedPlaces& places) {
    executor_->begin_step(number);
    born(1);
    const DeviceAddress at_birth = address(1);
    leave({}, &places);
    const DeviceAddress in_op = address(1);
    executor_->died(chunks(1));
    living_.pop_back();
    return std::pair(at_birth - first, in_op - first);
  };
  EXPECT_EQ(step(1, one), std::pair(tensor.value, 5 * tensor.value));
  const Counters before = executor_->counters();
  EXPECT_EQ(step(2, one), std::pair(5 * tensor.value, 5 * tensor.value));
  EXPECT_EQ(executor_->counters().bytes_out.value, before.bytes_out.value) << "nothing has to leave its place";
  EXPECT_EQ(step(3, other), std::pair(5 * tensor.value, 3 * tensor.value));
}

}  // namespace
}  // namespace vedette::testing::executor_test
