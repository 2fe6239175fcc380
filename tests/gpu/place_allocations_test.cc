// What a steady step of blocks on the simulated GPU allocates on the host: nothing, whether its blocks stay, are born
// and die, or leave and come back by a plan.
#include <gtest/gtest.h>

#include "gpu/place_executor.h"
#include "support/counted_allocations.h"
#include "support/places.h"

namespace vedette::testing::place_allocations_test {
namespace {

using BlockIndex = PlaceExecutor::BlockIndex;
constexpr std::uint64_t size = 64 << 10;

class PlaceAllocations : public SimulatedGpu {
 protected:
  BlockIndex born(std::uint64_t offset) {
    const BlockIndex block = executor_->allocate({size}, stream_->handle(), offset).value().block;
    executor_->allow_moves(block);
    return block;
  }
  void op(std::initializer_list<BlockIndex> blocks) {
    const std::span<const BlockIndex> operands(blocks.begin(), blocks.size());
    executor_->begin_op(operands, stream_->handle()).value();
    executor_->end_op(operands, stream_->handle());
  }
  // Of the last of several steps, without the simulated driver's own.
  template <class Step>
  unsigned of(const Step& step) {
    for (int i = 0; i < 40; ++i) step();
    stream_->synchronize().value();
    allocations = 0;
    counts_allocations = true;
    step();
    counts_allocations = false;
    return allocations;
  }
  void SetUp() override {
    SimulatedGpu::SetUp();
    const auto device = open_device();
    stream_.emplace(cuda::Stream::create(device).value());
    executor_ = PlaceExecutor::make(device, {.budget = {4 * size}, .most_pinned = {}}, pointed_).value();
  }
  void TearDown() override {
    executor_.reset();
    stream_.reset();
    SimulatedGpu::TearDown();
  }
  Pointed pointed_;
  std::optional<cuda::Stream> stream_;
  std::unique_ptr<PlaceExecutor> executor_;
};

TEST_F(PlaceAllocations, OpsBirthsAndDeathsAllocateNothing) {
  const BlockIndex weight = born(0);
  EXPECT_EQ(of([&] {
              const BlockIndex first = born(size);
              op({weight, first});
              const BlockIndex second = born(2 * size);
              op({weight, first, second});
              executor_->release(first);
              op({weight, second});
              executor_->release(second);
            }),
            0u);
  executor_->release(weight);
}

TEST_F(PlaceAllocations, MovesByAPlanAllocateNothing) {
  const BlockIndex weight = born(0), other = born(size);
  EXPECT_EQ(of([&] {
              op({weight});
              executor_->leave(weight).value();
              op({other});
              executor_->bring(weight, 2 * size, false).value();
              op({weight, other});
              executor_->leave(weight).value();
              executor_->bring(weight, 0, false).value();
              op({weight});
            }),
            0u);
  for (const BlockIndex each : {weight, other}) executor_->release(each);
}

TEST_F(PlaceAllocations, SeveralThatMoveInOneCallAllocateNothing) {
  const BlockIndex weight = born(0), other = born(size);
  const PlaceExecutor::Leaving out[] = {{.block = weight}, {.block = other}};
  const PlaceExecutor::Coming in[] = {{.block = weight, .place = 2 * size}, {.block = other, .place = 0}};
  EXPECT_EQ(of([&] {
              op({weight, other});
              executor_->leave_all(out).value();
              executor_->bring_all(in).value();
            }),
            0u);
  EXPECT_EQ(executor_->counters().batches, 82u);
  for (const BlockIndex each : {weight, other}) executor_->release(each);
}

TEST_F(PlaceAllocations, FetchesOfWhatNoPlanBroughtAllocateNothing) {
  const BlockIndex weight = born(0), other = born(size);
  EXPECT_EQ(of([&] {
              executor_->leave(weight).value();
              executor_->leave(other).value();
              op({weight, other});
            }),
            0u);
  for (const BlockIndex each : {weight, other}) executor_->release(each);
}

}  // namespace
}  // namespace vedette::testing::place_allocations_test
