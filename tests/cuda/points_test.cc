// Points of streams on the simulated GPU: what waits for one runs behind it, and what a point costs.
#include "cuda/points.h"

#include <gmock/gmock.h>

#include <future>
#include <random>

#include "simulated_gpu/test_device.h"

namespace vedette::testing::points_test {
namespace {

using cuda::Points;
using cuda::StreamPoint;
using ::testing::IsEmpty;

constexpr std::size_t words = 256;

unsigned records() {
  const auto calls = control().calls();
  const auto found = calls.find("cuEventRecord");
  return found == calls.end() ? 0 : found->second;
}

class PointsOfStreams : public SimulatedGpu {
 protected:
  void SetUp() override {
    SimulatedGpu::SetUp();
    device_ = open_device();
    range_.emplace(cuda::DeviceRange::make(device_, {.bytes = 2_MiB}).value());
    for (std::size_t s = 0; s < 2; ++s) streams_.push_back(cuda::Stream::create(device_).value());
  }
  void TearDown() override {
    for (const cuda::Stream& stream : streams_) stream.synchronize().value();
    streams_.clear();
    range_.reset();
    device_.reset();
    SimulatedGpu::TearDown();
  }
  cuda::StreamHandle handle(std::uint32_t stream) const {
    return stream == 0 ? nullptr : streams_[stream - 1].handle();
  }
  cuda::Address cell(std::size_t index) const { return range_->address() + index * words * 4; }
  // Work that ends when the test says so.
  std::promise<void> hold_up(std::uint32_t stream) {
    std::promise<void> open;
    control().launch(handle(stream), "gate", {}, [opened = open.get_future().share()] { opened.wait(); });
    return open;
  }

  std::shared_ptr<cuda::Device> device_;
  std::optional<cuda::DeviceRange> range_;
  std::vector<cuda::Stream> streams_;
};

TEST_F(PointsOfStreams, ANotedPointCostsAnEventWhereSomethingWaitsForIt) {
  Points points(device_);
  const std::uint32_t one = points.number_of(handle(0)), other = points.number_of(handle(1));
  const unsigned before = records();
  std::vector<StreamPoint> noted;
  for (int i = 0; i < 100; ++i) noted.push_back(points.note(one));
  points.let_wait(one, noted.back()).value();
  EXPECT_EQ(records(), before) << "its own points are no wait";
  points.let_wait(other, noted[50]).value();
  EXPECT_EQ(records(), before + 1);
  for (const StreamPoint& each : noted) EXPECT_FALSE(points.has_to_wait(other, each)) << each.number;
}

TEST_F(PointsOfStreams, AMarkedPointIsNotWaitedForBeyond) {
  Points points(device_);
  const std::uint32_t one = points.number_of(handle(0)), other = points.number_of(handle(1));
  launch_fill(handle(0), cell(0), words, 7);
  const StreamPoint noted = points.note(one);
  const StreamPoint marked = points.mark(one).value();
  std::promise<void> gate = hold_up(0);
  points.note(one);
  for (const StreamPoint& each : {noted, marked}) {
    std::uint32_t sum = 0;
    points.let_wait(other, each).value();
    launch_read(handle(1), cell(0), words, &sum);
    streams_[0].synchronize().value();
    EXPECT_EQ(sum, 7 * words);
  }
  gate.set_value();
  device_->synchronize().value();
}

TEST_F(PointsOfStreams, OneThatIsOnlyNotedIsWaitedForWithWhatIsQueuedByThen) {
  Points points(device_);
  const std::uint32_t one = points.number_of(handle(0)), other = points.number_of(handle(1));
  launch_fill(handle(0), cell(0), words, 7);
  const StreamPoint noted = points.note(one);
  std::promise<void> gate = hold_up(0);
  points.let_wait(other, noted).value();
  const auto behind = cuda::Event::create(device_).value();
  behind.record(handle(1)).value();
  EXPECT_FALSE(behind.passed().value());
  EXPECT_FALSE(points.passed(noted).value());
  gate.set_value();
  points.wait(noted).value();
  behind.synchronize().value();
}

// Three streams fill cells and read each other's, behind points that are marked or noted, by rings that wrap around.
TEST_F(PointsOfStreams, WhatWaitsRunsBehindInDrawnPrograms) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 draw(seed);
    const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(draw() % end); };
    Points points(device_, 1 + below(6));
    std::uint32_t numbers[3];
    for (std::uint32_t s = 0; s < 3; ++s) numbers[s] = points.number_of(handle(s));
    struct Cell {
      std::uint32_t value = 0;
      std::vector<StreamPoint> uses;
    };
    std::vector<Cell> cells(6);
    std::vector<std::pair<std::unique_ptr<std::uint32_t>, std::uint32_t>> sums;  // found, and expected
    for (int round = 0; round < 60; ++round) {
      const std::uint32_t s = below(3), c = below(6);
      Cell& at = cells[c];
      for (const StreamPoint& use : at.uses) points.let_wait(numbers[s], use).value();
      const bool fills = at.uses.empty() || below(2) == 0;
      if (fills) {
        launch_fill(handle(s), cell(c), words, at.value = seed + static_cast<std::uint32_t>(round));
      } else {
        sums.emplace_back(std::make_unique<std::uint32_t>(0), at.value * words);
        launch_read(handle(s), cell(c), words, sums.back().first.get());
      }
      at.uses.push_back(below(2) == 0 ? points.mark(numbers[s]).value() : points.note(numbers[s]));
      if (below(8) == 0) points.wait(at.uses[below(static_cast<std::uint32_t>(at.uses.size()))]).value();
    }
    device_->synchronize().value();
    for (const auto& [found, expected] : sums) EXPECT_EQ(*found, expected) << "seed " << seed;
    ASSERT_THAT(control().races(), IsEmpty()) << "seed " << seed;
  }
}

TEST_F(PointsOfStreams, AnEventThatIsRefusedIsNoWrongOrder) {
  for (const char* const call : {"cuEventRecord", "cuStreamWaitEvent", "cuEventCreate"}) {
    Points points(device_);
    const std::uint32_t one = points.number_of(handle(0)), other = points.number_of(handle(1));
    launch_fill(handle(0), cell(0), words, 7);
    const StreamPoint noted = points.note(one);
    control().fail(call, 1, 999);
    points.let_wait(other, noted).value();
    control().fail_none();
    std::uint32_t sum = 0;
    launch_read(handle(1), cell(0), words, &sum);
    streams_[0].synchronize().value();
    EXPECT_EQ(sum, 7 * words) << call;
    EXPECT_THAT(control().races(), IsEmpty()) << call;
  }
}

}  // namespace
}  // namespace vedette::testing::points_test
