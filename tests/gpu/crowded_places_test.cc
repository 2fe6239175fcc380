// Places where nearly all memory is in use: of the device, between operands, and pinned. What fits is found room for.
#include <gmock/gmock.h>

#include "support/places.h"

namespace vedette::testing::crowded_places_test {
namespace {

using BlockIndex = PlaceExecutor::BlockIndex;

class CrowdedPlaces : public SimulatedGpu {};

// 896 KiB of operands in 1 MiB, of which two lie so that no hole takes the third.
TEST_F(CrowdedPlaces, OperandsThatFitOnlySideBySideAreMovedThere) {
  for (const bool may_move : {true, false}) {
    const auto device = open_device();
    Pointed pointed;
    {
      const auto stream = cuda::Stream::create(device).value();
      const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
      std::vector<BlockIndex> operands;
      const auto make = [&](Bytes bytes, PlaceExecutor::Place place) {
        const auto born = executor->allocate(bytes, stream.handle(), place).value();
        pointed.at[born.block.value] = born.address;
        operands.push_back(born.block);
        launch_fill(stream.handle(), born.address, bytes.value / 4, static_cast<std::uint32_t>(operands.size()));
      };
      make(384_KiB, std::nullopt);
      executor->allow_moves(operands[0]);
      executor->leave(operands[0]).value();
      make(256_KiB, 576 << 10);
      executor->allow_moves(operands[1]);
      make(256_KiB, 192 << 10);  // where it has to stay, one of the others does not fit
      if (may_move) executor->allow_moves(operands[2]);
      const auto begun = executor->begin_op(operands, stream.handle());
      ASSERT_EQ(begun.ok(), may_move);
      if (may_move) {
        std::uint32_t sums[3] = {};
        for (std::size_t i = 0; i < 3; ++i) {
          EXPECT_EQ(pointed.at[operands[i].value], executor->address(operands[i]));
          launch_read(stream.handle(), pointed.at[operands[i].value], 1024, &sums[i]);
        }
        executor->end_op(operands, stream.handle());
        stream.synchronize().value();
        EXPECT_THAT(sums, ::testing::ElementsAre(1024, 2048, 3072));
        EXPECT_EQ(executor->counters().misplaced, 1u) << "a plan has them elsewhere";
      } else {
        EXPECT_THAT(begun.error().message, ::testing::HasSubstr("give a larger budget"));
        executor->leave(operands[1]).value();
        EXPECT_EQ(executor->address(operands[1]), 0u) << "an op that was refused holds nothing";
      }
      EXPECT_LE(executor->counters().most_in_use, 1_MiB);
      for (const BlockIndex each : operands) executor->release(each);
    }
    EXPECT_THAT(control().races(), ::testing::IsEmpty());
  }
}

// Two operands that lie so that no hole takes a result as large as one of them, though there is room for it.
TEST_F(CrowdedPlaces, AResultThatHasNoPlaceFindsRoomBesideTheOperands) {
  for (const auto results : {PlaceExecutor::Results::anywhere, PlaceExecutor::Results::placed}) {
    const auto device = open_device();
    Pointed pointed;
    {
      const auto stream = cuda::Stream::create(device).value();
      const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
      std::vector<BlockIndex> operands;
      for (const std::uint64_t offset : {192u << 10, 640u << 10}) {
        const auto born = executor->allocate(256_KiB, stream.handle(), offset).value();
        pointed.at[born.block.value] = born.address;
        operands.push_back(born.block);
        launch_fill(stream.handle(), born.address, 1024, static_cast<std::uint32_t>(operands.size()));
        executor->allow_moves(born.block);
      }
      executor->begin_op(operands, stream.handle(), results).value();
      const auto result = executor->allocate(256_KiB, stream.handle());
      EXPECT_EQ(result.ok(), results == PlaceExecutor::Results::anywhere);
      std::uint32_t sums[2] = {};
      for (std::size_t i = 0; i < 2; ++i) launch_read(stream.handle(), pointed.at[operands[i].value], 1024, &sums[i]);
      executor->end_op(operands, stream.handle());
      stream.synchronize().value();
      EXPECT_THAT(sums, ::testing::ElementsAre(1024, 2048));
      if (result) operands.push_back(result->block);
      for (const BlockIndex each : operands) executor->release(each);
    }
    EXPECT_THAT(control().races(), ::testing::IsEmpty());
  }
}

// Small operands everywhere, and a result that is larger than each of them: it has room in one piece where it is told.
// Where more is told than there is, all that there is is one piece.
TEST_F(CrowdedPlaces, ALargeResultOfSmallOperandsFindsRoomBesideThem) {
  for (const Bytes told : {512_KiB, 1_MiB, Bytes{}}) {
    const auto device = open_device();
    Pointed pointed;
    const auto stream = cuda::Stream::create(device).value();
    const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
    std::vector<BlockIndex> operands;
    for (std::uint64_t i = 0; i < 8; ++i) {
      const auto born = executor->allocate(16_KiB, stream.handle(), i * (128 << 10)).value();
      pointed.at[born.block.value] = born.address;
      operands.push_back(born.block);
      launch_fill(stream.handle(), born.address, 1024, static_cast<std::uint32_t>(i + 1));
      executor->allow_moves(born.block);
    }
    executor->begin_op(operands, stream.handle(), PlaceExecutor::Results::anywhere, PlaceExecutor::Ends::marked, told)
        .value();
    EXPECT_EQ(executor->allocate(512_KiB, stream.handle()).ok(), told != Bytes{}) << told.value;
    std::uint32_t sums[8] = {};
    for (std::size_t i = 0; i < 8; ++i) launch_read(stream.handle(), pointed.at[operands[i].value], 1024, &sums[i]);
    executor->end_op(operands, stream.handle());
    stream.synchronize().value();
    for (std::uint32_t i = 0; i < 8; ++i) EXPECT_EQ(sums[i], 1024 * (i + 1));
    EXPECT_THAT(control().races(), ::testing::IsEmpty());
  }
}

// Pinned memory is full of what comes back from the disk for later ops, when something has to leave now.
TEST_F(CrowdedPlaces, WhatIsReadAheadOfNeedMakesRoomForWhatHasToLeave) {
  const auto device = open_device();
  Pointed pointed;
  {
    const auto stream = cuda::Stream::create(device).value();
    const auto executor =
        PlaceExecutor::make(device, {.budget = 256_KiB, .most_pinned = 256_KiB}, pointed, open_disk()).value();
    std::vector<BlockIndex> far, near;
    const auto make = [&](std::vector<BlockIndex>& list) {
      const auto born = executor->allocate(64_KiB, stream.handle()).value();
      pointed.at[born.block.value] = born.address;
      launch_fill(stream.handle(), born.address, 1024, born.block.value + 1);
      executor->allow_moves(born.block);
      list.push_back(born.block);
    };
    for (int i = 0; i < 4; ++i) make(far);
    for (const BlockIndex each : far) executor->leave(each, true).value();
    while (executor->counters().host.to_disk < 256_KiB) executor->begin_op({}, stream.handle()).value();
    for (int i = 0; i < 4; ++i) make(near);
    for (const BlockIndex each : far) executor->bring(each, std::nullopt, false).value();
    make(near);
    EXPECT_THAT(near, ::testing::Contains(::testing::ResultOf([&](BlockIndex b) { return executor->address(b); }, 0u)));
    for (const auto* list : {&far, &near}) {
      for (const BlockIndex each : *list) {
        std::uint32_t sum = 0;
        executor->begin_op({&each, 1}, stream.handle()).value();
        launch_read(stream.handle(), pointed.at.at(each.value), 1024, &sum);
        executor->end_op({&each, 1}, stream.handle());
        stream.synchronize().value();
        EXPECT_EQ(sum, 1024 * (each.value + 1));
        executor->release(each);
      }
    }
  }
  EXPECT_THAT(control().races(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace vedette::testing::crowded_places_test
