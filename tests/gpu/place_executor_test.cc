// Blocks in less device memory than they need, on the simulated GPU. Random programs on two streams have the numbers of
// the same program on the host, without a race. This holds for every link, and for every driver call that fails once.
#include "gpu/place_executor.h"

#include <gmock/gmock.h>

#include "gpu/places_program.h"
#include "support/places.h"

namespace vedette::testing::place_executor_test {
namespace {

using cuda::StreamHandle;
using BlockIndex = PlaceExecutor::BlockIndex;

class Places : public SimulatedGpu {};

constexpr std::size_t tensors = program_tensors, largest = largest_words;

TEST_F(Places, RandomProgramsHaveTheHostsNumbersInLessMemoryThanTheyNeed) {
  std::uint64_t evictions = 0;
  run_programs(
      12, {2_MiB, 400_KiB, 256_KiB}, 300, [](PlacesProgram&, unsigned) {},
      [&](const PlacesProgram& program) { evictions += program.counters().evictions; });
  EXPECT_GT(evictions, 2000u);
}

TEST_F(Places, NumbersDoNotDependOnTheLinkOrItsEngines) {
  for (const simulated::Options& link : {simulated::Options{.latency_us = 100},
                                         {.gbs = 0.5},
                                         {.one_engine = true},
                                         {.copies_wait = true},
                                         {.latency_us = 1000, .one_engine = true}}) {
    control().choose(link);
    PlacesProgram program(7, 256_KiB);
    program.run(60, tensors, largest);
    EXPECT_GT(program.counters().evictions, 20u);
    ASSERT_THAT(control().races(), ::testing::IsEmpty());
  }
}

TEST_F(Places, MovesByAPlanBetweenOpsKeepTheHostsNumbers) {
  std::uint64_t evictions = 0;
  run_programs(
      8, {2_MiB, 400_KiB}, 300,
      [](PlacesProgram& program, unsigned seed) {
        program.planned = true;
        program.notes = seed % 2 == 0;
      },
      [&](const PlacesProgram& program) { evictions += program.counters().evictions; });
  EXPECT_GT(evictions, 1000u);
}

TEST_F(Places, BlocksThatAreDroppedAndMadeAgainKeepTheHostsNumbers) {
  std::uint64_t made_again = 0;
  run_programs(
      8, {2_MiB, 400_KiB}, 300,
      [](PlacesProgram& program, unsigned seed) {
        program.drops = true;
        program.planned = seed % 3 != 0;
        program.notes = seed % 2 == 0;
      },
      [&](const PlacesProgram& program) { made_again += program.made_again; });
  EXPECT_GT(made_again, 700u);
}

TEST_F(Places, AnOpWhoseEndIsNotedRecordsNoEvent) {
  const auto device = open_device();
  Pointed pointed;
  const auto records = [] { return control().calls()["cuEventRecord"]; };
  const auto stream = cuda::Stream::create(device).value();
  const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
  const auto op = [&](BlockIndex block, StreamHandle where) {
    executor->begin_op({&block, 1}, where, PlaceExecutor::Results::placed, PlaceExecutor::Ends::noted).value();
    executor->end_op({&block, 1}, where);
  };
  const BlockIndex block = executor->allocate(64_KiB, nullptr).value().block;
  executor->allow_moves(block);
  const unsigned before = records();
  for (int i = 0; i < 50; ++i) {
    op(block, nullptr);
    const BlockIndex other = executor->allocate(64_KiB, nullptr).value().block;
    op(other, nullptr);
    executor->release(other);
  }
  EXPECT_EQ(records(), before);
  executor->leave(block).value();
  EXPECT_EQ(records(), before + 2) << "one that the copy waits for, and its own end";
  executor->bring(block, std::nullopt, false).value();
  const unsigned back = records();
  op(block, stream.handle());
  EXPECT_EQ(records(), back + 1) << "a stream that may be destroyed has its event at once";
  executor->release(block);
}

TEST_F(Places, WhatPinnedMemoryHasNoRoomForGoesToTheDiskAndComesBack) {
  std::uint64_t to_disk = 0, from_far = 0;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    for (const bool planned : {false, true}) {
      PlacesProgram program(seed, 320_KiB, 256_KiB, open_disk());
      program.planned = program.far = planned;
      program.run(200, tensors, largest);
      const auto counters = program.counters();
      EXPECT_LE(counters.most_in_use, 320_KiB);
      EXPECT_LE(counters.host.pinned, 256_KiB);
      to_disk += counters.host.to_disk.value;
      from_far += counters.from_far.value;
      ASSERT_THAT(control().races(), ::testing::IsEmpty()) << "seed " << seed;
      if (HasFailure()) FAIL() << "seed " << seed << ", planned " << planned;
    }
  }
  EXPECT_GT(to_disk, (8_MiB).value);
  EXPECT_GT(from_far, (8_MiB).value);
}

TEST_F(Places, WhatDoesNotFitIntoPinnedMemoryIsASentence) {
  const auto device = open_device();
  Pointed pointed;
  {
    const auto stream = cuda::Stream::create(device).value();
    const auto executor =
        PlaceExecutor::make(device, {.budget = 1_MiB, .most_pinned = 256_KiB}, pointed, open_disk()).value();
    const auto born = executor->allocate(512_KiB, stream.handle()).value();
    executor->allow_moves(born.block);
    const auto left = executor->leave(born.block);
    ASSERT_FALSE(left);
    EXPECT_THAT(left.error().message, ::testing::HasSubstr("raise the host's budget"));
    EXPECT_NE(executor->address(born.block), 0u) << "it stays where it is";
    executor->release(born.block);
  }
}

TEST_F(Places, WhatComesBackUnchangedLeavesWithoutACopy) {
  const auto device = open_device();
  Pointed pointed;
  {
    const auto stream = cuda::Stream::create(device).value();
    const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
    const auto born = executor->allocate(64_KiB, stream.handle()).value();
    launch_fill(stream.handle(), born.address, 1024, 3);
    executor->allow_moves(born.block);
    executor->leave(born.block).value();
    EXPECT_EQ(pointed.at.at(born.block.value), 0u);
    const auto sum = [&] {
      const BlockIndex operands[] = {born.block};
      executor->begin_op(operands, stream.handle()).value();
      std::uint32_t found = 0;
      launch_read(stream.handle(), pointed.at.at(born.block.value), 1024, &found);
      executor->end_op(operands, stream.handle());
      stream.synchronize().value();
      return found;
    };
    executor->bring(born.block, 128 << 10, true).value();
    EXPECT_EQ(executor->place(born.block), 128u << 10) << "where the plan has it";
    EXPECT_EQ(sum(), 3u * 1024);
    executor->leave(born.block).value();
    EXPECT_EQ(executor->counters().evicted, 64_KiB) << "the second time nothing is copied";
    EXPECT_EQ(executor->counters().unchanged, 64_KiB);
    executor->bring(born.block, std::nullopt, true).value();
    executor->forget_plan();  // another op than the plan's may have written it
    EXPECT_EQ(sum(), 3u * 1024);
    executor->leave(born.block).value();
    EXPECT_EQ(executor->counters().evicted, 128_KiB);
    executor->release(born.block);
  }
}

TEST_F(Places, APlaceThatIsLeftWithoutACopyIsWrittenBehindItsLastUse) {
  for (const bool used : {true, false}) {
    const auto device = open_device();
    Pointed pointed;
    {
      const auto stream = cuda::Stream::create(device).value(), other = cuda::Stream::create(device).value();
      const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
      const auto first = executor->allocate(64_KiB, stream.handle()).value();
      launch_fill(stream.handle(), first.address, 1024, 3);
      executor->allow_moves(first.block);
      executor->leave(first.block).value();
      executor->bring(first.block, 0, true).value();
      std::uint32_t sum = 3 * 1024;
      if (used) {
        executor->begin_op({&first.block, 1}, stream.handle()).value();
        launch_read(stream.handle(), pointed.at.at(first.block.value), 1024, &sum);
        executor->end_op({&first.block, 1}, stream.handle());
      }
      executor->leave(first.block).value();
      EXPECT_EQ(executor->counters().unchanged, 64_KiB);
      const auto second = executor->allocate(64_KiB, other.handle(), 0).value();
      launch_fill(other.handle(), second.address, 1024, 4);
      other.synchronize().value();
      EXPECT_EQ(sum, 3u * 1024);
      executor->release(first.block);
      executor->release(second.block);
    }
    EXPECT_THAT(control().races(), ::testing::IsEmpty()) << "used: " << used;
  }
}

TEST_F(Places, APlaceIsWrittenBehindTheLastUseOfEachStream) {
  const auto device = open_device();
  Pointed pointed;
  {
    const auto stream = cuda::Stream::create(device).value(), other = cuda::Stream::create(device).value();
    const auto event = cuda::Event::create(device).value();
    const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
    const auto first = executor->allocate(64_KiB, stream.handle()).value();
    launch_fill(stream.handle(), first.address, 1024, 3);
    event.record(stream.handle()).value();
    event.let_wait(other.handle()).value();
    std::uint32_t sums[2] = {};
    for (const auto* each : {&stream, &other}) {  // neither waits for the other
      executor->begin_op({&first.block, 1}, each->handle()).value();
      launch_read(each->handle(), first.address, 1024, each == &stream ? &sums[0] : &sums[1]);
      executor->end_op({&first.block, 1}, each->handle());
    }
    executor->release(first.block);
    const auto second = executor->allocate(64_KiB, other.handle()).value();
    EXPECT_EQ(second.address, first.address);
    launch_fill(other.handle(), second.address, 1024, 4);
    other.synchronize().value();
    EXPECT_THAT(sums, ::testing::Each(3u * 1024));
    executor->release(second.block);
  }
  EXPECT_THAT(control().races(), ::testing::IsEmpty());
}

TEST_F(Places, APlannedPlaceIsClearedOrGivenUp) {
  const auto device = open_device();
  Pointed pointed;
  {
    const auto stream = cuda::Stream::create(device).value();
    const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
    const auto first = executor->allocate(256_KiB, stream.handle(), 0).value();
    const auto beside = executor->allocate(256_KiB, stream.handle(), 0).value();
    EXPECT_EQ(executor->place(beside.block), 256u << 10) << "the first may not leave yet";
    EXPECT_EQ(executor->counters().misplaced, 1u);
    executor->allow_moves(first.block);
    const auto second = executor->allocate(128_KiB, stream.handle(), 64 << 10).value();
    EXPECT_EQ(executor->place(second.block), 64u << 10);
    EXPECT_EQ(executor->address(first.block), 0u) << "it was in the way";
    EXPECT_EQ(executor->counters().misplaced, 1u);
    for (const auto& each : {first, beside, second}) executor->release(each.block);
  }
}

TEST_F(Places, ADriverCallThatFailsOnceIsAnErrorThatCanBeTriedAgainOrNone) {
  struct Call {
    const char* name;
    bool has_another_way;  // the host waits for the work, or the driver allocates what it does not register
  };
  for (const auto& [call, has_another_way] :
       {Call{"cuMemcpyAsync", false}, Call{"cuMemcpyBatchAsync", true}, Call{"cuEventRecord", false},
        Call{"cuEventCreate", false}, Call{"cuMemHostRegister_v2", true}, Call{"cuStreamWaitEvent", true},
        Call{"cuEventQuery", true}, Call{"cuEventSynchronize", true}}) {
    std::size_t failures = 0;
    for (unsigned nth = 1; nth < 400; nth = nth * 3 / 2 + 1) {
      PlacesProgram program(3, 256_KiB);
      control().fail(call, nth, 999);
      program.run(120, tensors, largest);
      control().fail_none();
      failures += program.failures;
      ASSERT_THAT(control().races(), ::testing::IsEmpty()) << call << " " << nth;
      if (HasFailure()) FAIL() << call << ", call " << nth;
    }
    EXPECT_TRUE(failures > 0 || has_another_way) << call << " never failed";
  }
}

TEST_F(Places, MemoryStaysUntilItsLastUseThoughAWaitIsRefused) {
  for (const char* const call : {"cuEventSynchronize", "cuStreamSynchronize", "cuEventRecord"}) {
    const auto device = open_device();
    Pointed pointed;
    const auto stream = cuda::Stream::create(device).value();
    auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
    const auto dead = executor->allocate(64_KiB, stream.handle()).value();
    const auto living = executor->allocate(64_KiB, stream.handle()).value();
    for (const auto& each : {dead, living}) launch_fill(stream.handle(), each.address, 16 << 10, 1);
    executor->release(dead.block);
    launch_fill(stream.handle(), living.address, 16 << 10, 2);
    control().fail(call, 1, 999);
    executor.reset();  // the simulated device ends the process where memory goes too early
    control().fail_none();
    stream.synchronize().value();
  }
}

TEST_F(Places, MemoryThatIsUsedUpIsASentence) {
  const auto device = open_device();
  Pointed pointed;
  {
    const auto stream = cuda::Stream::create(device).value();
    const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
    const auto first = executor->allocate(768_KiB, stream.handle()).value();
    const auto refused = executor->allocate(512_KiB, stream.handle());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().cause, Cause::out_of_memory);
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr("give a larger budget, or a smaller batch"));
    executor->allow_moves(first.block);
    const auto second = executor->allocate(512_KiB, stream.handle());
    ASSERT_TRUE(second) << "the first may leave now";
    EXPECT_EQ(executor->address(first.block), 0u);
    executor->release(first.block);
    executor->release(second->block);
  }
}

// An op of the same stream ends before the program queues the work that it has recorded the stream for.
TEST_F(Places, ARecordedStreamStaysSoThoughAnOpOnItEnds) {
  const auto device = open_device();
  Pointed pointed;
  const auto stream = cuda::Stream::create(device).value(), other = cuda::Stream::create(device).value();
  const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
  const auto first = executor->allocate(768_KiB, stream.handle()).value();
  launch_fill(stream.handle(), first.address, 1024, 1);
  executor->record_stream(first.block, other.handle());
  executor->begin_op({&first.block, 1}, other.handle()).value();
  executor->end_op({&first.block, 1}, other.handle());
  const auto event = cuda::Event::create(device).value();
  event.record(stream.handle()).value();
  event.let_wait(other.handle()).value();
  std::uint32_t sum = 0;
  launch_read(other.handle(), first.address, 1024, &sum);
  executor->release(first.block);
  const auto second = executor->allocate(768_KiB, stream.handle()).value();
  launch_fill(stream.handle(), second.address, 1024, 2);
  EXPECT_EQ(control().races().size(), 0u);
  other.synchronize().value();
  executor->release(second.block);
  control().forget_races();
}

// A block of 64 KiB at the range's beginning that holds `value`, was away, and has come back.
BlockIndex back_again(PlaceExecutor& executor, const cuda::Stream& stream, std::uint32_t value, bool unchanged) {
  const auto born = executor.allocate(64_KiB, stream.handle(), 0).value();
  launch_fill(stream.handle(), born.address, 16 << 10, value);
  executor.allow_moves(born.block);
  executor.leave(born.block).value();
  executor.bring(born.block, 0, unchanged).value();
  return born.block;
}

// No op has used it since it came, so that nothing but the copy itself is behind.
TEST_F(Places, APlaceOfADroppedBlockIsWrittenBehindTheCopyThatBroughtIt) {
  const auto device = open_device();
  Pointed pointed;
  {
    const auto stream = cuda::Stream::create(device).value(), other = cuda::Stream::create(device).value();
    const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
    const BlockIndex dropped = back_again(*executor, stream, 3, false);
    ASSERT_TRUE(executor->drop(dropped));
    const auto second = executor->allocate(64_KiB, other.handle(), 0).value();
    launch_fill(other.handle(), second.address, 16 << 10, 4);
    other.synchronize().value();
    executor->release(dropped);
    executor->release(second.block);
  }
  EXPECT_THAT(control().races(), ::testing::IsEmpty());
}

// It came back to be read alone. Dropped, it has lost its slot, and with it the promise that the slot has its bytes.
TEST_F(Places, ABlockThatIsMadeAgainLeavesByACopyThoughItWasUnchanged) {
  const auto device = open_device();
  Pointed pointed;
  const auto stream = cuda::Stream::create(device).value();
  const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
  const BlockIndex block = back_again(*executor, stream, 3, true);
  const Bytes evicted = executor->counters().evicted;
  ASSERT_TRUE(executor->drop(block));
  EXPECT_FALSE(executor->has_slot(block));
  const auto scratch = executor->allocate(64_KiB, stream.handle()).value();
  launch_fill(stream.handle(), scratch.address, 16 << 10, 5);
  executor->adopt(scratch.block, block);
  executor->release(scratch.block);
  executor->leave(block).value();
  ASSERT_EQ(executor->counters().evicted, evicted + 64_KiB);
  EXPECT_EQ(executor->counters().unchanged, 0_KiB);
  executor->begin_op({&block, 1}, stream.handle()).value();
  std::uint32_t sum = 0;
  launch_read(stream.handle(), pointed.at.at(block.value), 16 << 10, &sum);
  executor->end_op({&block, 1}, stream.handle());
  stream.synchronize().value();
  EXPECT_EQ(sum, 5u * (16 << 10));
  executor->release(block);
}

// Work that no op announces, on another stream, goes on in a place that has another block by then.
TEST_F(Places, ARecordedStreamGoesWithThePlaceThatABlockAdopts) {
  const auto device = open_device();
  Pointed pointed;
  {
    const auto stream = cuda::Stream::create(device).value(), other = cuda::Stream::create(device).value();
    const auto event = cuda::Event::create(device).value();
    const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
    const BlockIndex block = back_again(*executor, stream, 3, false);
    ASSERT_TRUE(executor->drop(block));
    const auto scratch = executor->allocate(64_KiB, stream.handle(), 0).value();
    launch_fill(stream.handle(), scratch.address, 16 << 10, 5);
    event.record(stream.handle()).value();
    event.let_wait(other.handle()).value();
    executor->record_stream(scratch.block, other.handle());
    executor->adopt(scratch.block, block);
    executor->release(scratch.block);
    std::uint32_t sum = 0;
    launch_read(other.handle(), pointed.at.at(block.value), 16 << 10, &sum);
    executor->release(block);
    const auto next = executor->allocate(64_KiB, stream.handle(), 0).value();
    launch_fill(stream.handle(), next.address, 16 << 10, 6);
    stream.synchronize().value();
    other.synchronize().value();
    EXPECT_EQ(sum, 5u * (16 << 10));
    executor->release(next.block);
  }
  EXPECT_THAT(control().races(), ::testing::IsEmpty());
}

// Two operands that are away fit one by one, but not both: the first has come when the second is refused.
TEST_F(Places, AnOpThatIsRefusedHoldsNoneOfItsOperands) {
  const auto device = open_device();
  Pointed pointed;
  const auto stream = cuda::Stream::create(device).value();
  const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
  std::vector<BlockIndex> operands;
  for (int i = 0; i < 2; ++i) {
    operands.push_back(executor->allocate(512_KiB, stream.handle()).value().block);
    executor->allow_moves(operands.back());
    executor->leave(operands.back()).value();
  }
  const auto stays = executor->allocate(256_KiB, stream.handle()).value().block;
  const auto refused = executor->begin_op(operands, stream.handle());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().cause, Cause::out_of_memory);
  const auto next = executor->allocate(768_KiB, stream.handle());
  ASSERT_TRUE(next) << next.error().message;
  for (const BlockIndex each : operands) EXPECT_EQ(executor->address(each), 0u);
  for (const BlockIndex each : {operands[0], operands[1], stays, next->block}) executor->release(each);
}

// More streams than a block's lists hold in place.
TEST_F(Places, ABlockIsUsedByManyStreams) {
  const auto device = open_device();
  Pointed pointed;
  const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
  std::vector<cuda::Stream> streams;
  for (int i = 0; i < 7; ++i) streams.push_back(cuda::Stream::create(device).value());
  const auto block = executor->allocate(768_KiB, streams[0].handle()).value().block;
  for (const cuda::Stream& each : streams) executor->begin_op({&block, 1}, each.handle()).value();
  for (const cuda::Stream& each : streams) executor->end_op({&block, 1}, each.handle());
  executor->release(block);
  const auto next = executor->allocate(768_KiB, streams[0].handle()).value();
  launch_fill(streams[0].handle(), next.address, 1024, 2);
  EXPECT_EQ(control().races().size(), 0u);
  executor->release(next.block);
}

TEST_F(Places, AStreamThatWasNotAnnouncedIsARaceAndARecordedOneIsNone) {
  for (const bool recorded : {true, false}) {
    const auto device = open_device();
    Pointed pointed;
    {
      const auto stream = cuda::Stream::create(device).value(), other = cuda::Stream::create(device).value();
      const auto event = cuda::Event::create(device).value();
      const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
      const auto first = executor->allocate(768_KiB, stream.handle()).value();
      launch_fill(stream.handle(), first.address, 1024, 1);
      event.record(stream.handle()).value();
      event.let_wait(other.handle()).value();
      std::uint32_t sum = 0;
      launch_read(other.handle(), first.address, 1024, &sum);
      if (recorded) executor->record_stream(first.block, other.handle());
      executor->release(first.block);
      const auto second = executor->allocate(768_KiB, stream.handle()).value();
      launch_fill(stream.handle(), second.address, 1024, 2);
      EXPECT_EQ(control().races().size(), recorded ? 0u : 1u);
      other.synchronize().value();
      executor->release(second.block);
    }
    control().forget_races();
  }
}

// Behind what fills them, and before what writes there next.
TEST_F(Places, BytesAreCopiedFromWhereverTheyLie) {
  for (const bool released : {true, false}) {
    const auto device = open_device();
    Pointed pointed;
    {
      const auto stream = cuda::Stream::create(device).value(), other = cuda::Stream::create(device).value();
      const auto target = cuda::DeviceRange::make(device, {.bytes = 2_MiB}).value();
      const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB, .most_pinned = 256_KiB}, pointed).value();
      const auto born = executor->allocate(256_KiB, stream.handle()).value();
      launch_fill(stream.handle(), born.address, 1024, 3);
      executor->allow_moves(born.block);
      std::uint32_t in_place = 0, away = 0;
      executor->copy_to(born.block, target.address(), other.handle()).value();
      launch_read(other.handle(), target.address(), 1024, &in_place);
      executor->leave(born.block).value();
      executor->copy_to(born.block, target.address() + (256 << 10), other.handle()).value();
      launch_read(other.handle(), target.address() + (256 << 10), 1024, &away);
      BlockIndex next = born.block;
      if (released) {
        executor->release(born.block);
        next = executor->allocate(256_KiB, stream.handle()).value().block;
        executor->allow_moves(next);
      } else {
        executor->bring(next, std::nullopt, false).value();
      }
      executor->begin_op({&next, 1}, stream.handle()).value();
      launch_fill(stream.handle(), executor->address(next), 1024, 4);
      executor->end_op({&next, 1}, stream.handle());
      executor->leave(next).value();  // into the same slot
      other.synchronize().value();
      EXPECT_EQ(in_place, 3u * 1024);
      EXPECT_EQ(away, 3u * 1024);
      executor->release(next);
    }
    EXPECT_THAT(control().races(), ::testing::IsEmpty()) << "released: " << released;
    control().forget_races();
  }
}

TEST_F(Places, NothingMovesWhileOpsAreNotAnnounced) {
  const auto device = open_device();
  Pointed pointed;
  const auto stream = cuda::Stream::create(device).value(), other = cuda::Stream::create(device).value();
  const auto executor = PlaceExecutor::make(device, {.budget = 1_MiB}, pointed).value();
  const auto first = executor->allocate(512_KiB, stream.handle()).value();
  const auto second = executor->allocate(256_KiB, stream.handle()).value();
  for (const BlockIndex each : {first.block, second.block}) executor->allow_moves(each);
  executor->leave(second.block).value();
  EXPECT_FALSE(executor->all_in_place());
  executor->bring(second.block, 512 << 10, true).value();
  EXPECT_TRUE(executor->all_in_place());
  executor->begin_op({&first.block, 1}, stream.handle()).value();
  executor->end_op({&first.block, 1}, stream.handle());
  executor->keep_still(stream.handle()).value();
  EXPECT_FALSE(executor->allocate(512_KiB, stream.handle()));
  EXPECT_FALSE(executor->allocate(512_KiB, stream.handle(), 0));
  EXPECT_NE(executor->address(first.block), 0u);
  launch_fill(stream.handle(), first.address, 1024, 1);  // no op says so
  launch_fill(stream.handle(), executor->address(second.block), 1024, 5);
  executor->release(first.block);
  const auto next = executor->allocate(512_KiB, other.handle()).value();
  EXPECT_EQ(next.address, first.address);
  launch_fill(other.handle(), next.address, 1024, 2);
  device->synchronize().value();
  executor->move_again();
  const auto most = executor->allocate(512_KiB, stream.handle());  // the unchanged block is copied: it was written
  ASSERT_TRUE(most) << most.error().message;
  executor->release(most->block);
  executor->begin_op({&second.block, 1}, stream.handle()).value();
  std::uint32_t sum = 0;
  launch_read(stream.handle(), pointed.at.at(second.block.value), 1024, &sum);
  executor->end_op({&second.block, 1}, stream.handle());
  stream.synchronize().value();
  EXPECT_EQ(sum, 5u * 1024);
  for (const BlockIndex each : {second.block, next.block}) executor->release(each);
  EXPECT_THAT(control().races(), ::testing::IsEmpty());
}

// As many copies as fit stay, and nothing leaves for the others.
TEST_F(Places, ACopyThatIsBornHasTheBytesInPlaceOrAway) {
  constexpr std::size_t words = 16 << 10;
  const auto device = open_device();
  Pointed pointed;
  const auto stream = cuda::Stream::create(device).value();
  const auto source = cuda::DeviceRange::make(device, {.bytes = 2_MiB}).value();
  for (const char* const failing : {"", "cuMemcpyAsync", "cuEventRecord", "cuStreamWaitEvent", "cuEventSynchronize"}) {
    SCOPED_TRACE(failing);
    const auto executor = PlaceExecutor::make(device, {.budget = 256_KiB}, pointed).value();
    std::vector<BlockIndex> born;
    for (std::uint32_t i = 0; i < 8; ++i) {
      launch_fill(stream.handle(), source.address(), words, i + 7);  // the copy before has ended
      if (*failing != 0) control().fail(failing, 1 + i % 2, 999);
      auto made = executor->allocate_copy({words * 4}, source.address(), stream.handle());
      if (!made) {
        EXPECT_THAT(made.error().message, ::testing::HasSubstr("; "));
        made = executor->allocate_copy({words * 4}, source.address(), stream.handle());
      }
      control().fail_none();
      ASSERT_TRUE(made) << made.error().message;
      EXPECT_EQ(made->address == 0, i >= 4) << i;
      born.push_back(made->block);
      pointed.at[made->block.value] = made->address;
      executor->allow_moves(made->block);
    }
    EXPECT_EQ(executor->counters().evictions, 0u);
    EXPECT_EQ(executor->counters().most_in_use, 256_KiB);
    EXPECT_EQ(executor->counters().live, 512_KiB);
    executor->begin_op({&born[7], 1}, stream.handle()).value();
    EXPECT_NE(executor->address(born[0]), 0u);
    EXPECT_EQ(executor->address(born[3]), 0u) << "the latest makes room";
    executor->end_op({&born[7], 1}, stream.handle());
    for (std::uint32_t i = 0; i < 8; ++i) {
      executor->begin_op({&born[i], 1}, stream.handle()).value();
      std::uint32_t sum = 0;
      launch_read(stream.handle(), pointed.at.at(born[i].value), words, &sum);
      executor->end_op({&born[i], 1}, stream.handle());
      stream.synchronize().value();
      EXPECT_EQ(sum, words * (i + 7)) << i;
    }
    for (const BlockIndex each : born) executor->release(each);
  }
}

}  // namespace
}  // namespace vedette::testing::place_executor_test
