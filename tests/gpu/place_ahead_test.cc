// Ops without a plan on the simulated GPU, told what comes, and blocks that get other places: the numbers of the host,
// without a race, and no more copies than needed.
#include <gmock/gmock.h>

#include "gpu/places_program.h"
#include "support/places.h"

namespace vedette::testing::place_ahead_test {
namespace {

using BlockIndex = PlaceExecutor::BlockIndex;
using NextUses = moves::NextUses<BlockIndex>;

class PlacesAhead : public SimulatedGpu {};

constexpr std::size_t tensors = program_tensors, largest = largest_words;

TEST_F(PlacesAhead, WrongExpectationsCostCopiesAndNoNumbers) {
  Bytes unchanged;
  run_programs(
      12, {2_MiB, 400_KiB, 256_KiB}, 300,
      [](PlacesProgram& program, unsigned seed) {
        program.foresees = true;
        program.planned = seed % 3 == 0;
        program.notes = seed % 2 == 0;
      },
      [&](const PlacesProgram& program) { unchanged += program.counters().unchanged; });
  EXPECT_GT(unchanged, 1_MiB) << "what was only read leaves without a copy";
}

TEST_F(PlacesAhead, TheSameWithADiskBelow) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    PlacesProgram program(seed, 256_KiB, 512_KiB, open_disk());
    program.foresees = program.planned = program.far = true;
    program.run(200, tensors, largest);
    ASSERT_THAT(control().races(), ::testing::IsEmpty()) << "seed " << seed;
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST_F(PlacesAhead, RearrangedBlocksKeepTheHostsNumbers) {
  Bytes shifted;
  run_programs(
      12, {2_MiB, 400_KiB}, 200,
      [](PlacesProgram& program, unsigned seed) {
        program.rearranges = true;
        program.foresees = seed % 2 == 0;
      },
      [&](const PlacesProgram& program) {
        shifted += program.counters().shifted;
        EXPECT_EQ(program.share_in_place(), 1) << "nothing is in an open op";
      });
  EXPECT_GT(shifted, 10_MiB);
}

TEST_F(PlacesAhead, ADriverCallThatFailsOnceLosesNoNumbers) {
  for (const char* call : {"cuMemcpyAsync", "cuEventRecord", "cuStreamWaitEvent"}) {
    for (unsigned nth = 1; nth < 400; nth = nth * 3 / 2 + 1) {
      PlacesProgram program(3, 256_KiB);
      program.foresees = program.rearranges = true;
      control().fail(call, nth, 999);
      program.run(120, tensors, largest);
      control().fail_none();
      ASSERT_THAT(control().races(), ::testing::IsEmpty()) << call << " " << nth;
      if (HasFailure()) FAIL() << call << ", call " << nth;
    }
  }
}

// Four blocks in as much memory, and some of it free or none: each gets the place of the next one.
class InPlace {
 public:
  InPlace(Bytes budget, std::size_t count) {
    executor = PlaceExecutor::make(device, {.budget = budget}, pointed).value();
    for (std::size_t i = 0; i < count; ++i) {
      const auto born = executor->allocate(256_KiB, stream.handle(), i * (256 << 10)).value();
      launch_fill(stream.handle(), born.address, 64 << 10, static_cast<std::uint32_t>(i + 1));
      executor->allow_moves(born.block);
      blocks.push_back(born.block);
    }
  }
  ~InPlace() {
    for (const BlockIndex each : blocks) executor->release(each);
  }
  void use(std::size_t i) {
    executor->begin_op({&blocks[i], 1}, stream.handle(), PlaceExecutor::Results::anywhere).value();
    executor->end_op({&blocks[i], 1}, stream.handle());
  }
  std::uint32_t sum(std::size_t i) {
    std::uint32_t sum = 0;
    executor->begin_op({&blocks[i], 1}, stream.handle()).value();
    launch_read(stream.handle(), executor->address(blocks[i]), 64 << 10, &sum);
    executor->end_op({&blocks[i], 1}, stream.handle());
    stream.synchronize().value();
    return sum;
  }
  void expect_sums() {
    for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(sum(i), (64u << 10) * (i + 1)) << i;
  }

  std::shared_ptr<cuda::Device> device = open_device();
  cuda::Stream stream = cuda::Stream::create(device).value();
  Pointed pointed;
  std::unique_ptr<PlaceExecutor> executor;
  std::vector<BlockIndex> blocks;
};

std::vector<PlaceExecutor::Target> turned(const InPlace& places) {
  std::vector<PlaceExecutor::Target> targets;
  for (std::size_t i = 0; i < places.blocks.size(); ++i)
    targets.push_back({.block = places.blocks[i], .place = (i + 1) % places.blocks.size() * (256 << 10)});
  return targets;
}

TEST_F(PlacesAhead, BlocksThatExchangePlacesStayOnTheDevice) {
  InPlace places(1280_KiB, 4);
  places.executor->rearrange(turned(places)).value();
  for (const auto& [block, place] : turned(places)) EXPECT_EQ(places.executor->place(block), place);
  EXPECT_EQ(places.executor->counters().evictions, 0u);
  EXPECT_EQ(places.executor->counters().shifted, 1280_KiB) << "one goes aside first";
  places.expect_sums();
}

TEST_F(PlacesAhead, WhereNothingIsFreeOneLeavesAndComesBack) {
  InPlace places(1_MiB, 4);
  places.executor->rearrange(turned(places)).value();
  for (const auto& [block, place] : turned(places)) EXPECT_EQ(places.executor->place(block), place);
  EXPECT_EQ(places.executor->counters().evictions, 1u);
  EXPECT_EQ(places.executor->counters().fetches, 1u);
  places.expect_sums();
}

// Of four blocks three are in place. What is used last leaves, where LRU would send away what comes next.
TEST_F(PlacesAhead, WhatIsUsedLastMakesRoomForWhatComesNext) {
  InPlace places(1_MiB, 4);
  places.executor->leave(places.blocks[0]).value();
  for (const std::size_t i : {1u, 2u, 3u}) places.use(i);
  // The next ops use 1 and 0; 2 follows soon, and 3 in the next step.
  const NextUses::Use uses[] = {{.index = places.blocks[0], .tick = 12},
                                {.index = places.blocks[1], .tick = 11},
                                {.index = places.blocks[2], .tick = 13},
                                {.index = places.blocks[3], .tick = 1'000'011}};
  const PlaceExecutor::Expected::Fetch comes[] = {{.block = places.blocks[0], .unchanged = true}};
  places.executor->expect(
      {.now = 10,
       .outlook = {.until = 13, .calendar = {.ends = 15, .next_begins = 1'000'000}, .next_births = 256 << 10},
       .uses = uses,
       .fetches = comes});
  places.use(1);
  places.executor->look_ahead().value();
  EXPECT_NE(places.executor->address(places.blocks[0]), 0u) << "it came ahead of its op";
  EXPECT_EQ(places.executor->address(places.blocks[3]), 0u) << "the furthest use";
  EXPECT_NE(places.executor->address(places.blocks[1]), 0u);
  EXPECT_NE(places.executor->address(places.blocks[2]), 0u);
  const auto evictions = places.executor->counters().evictions;
  places.executor->leave(places.blocks[0]).value();
  EXPECT_EQ(places.executor->counters().evictions, evictions) << "nothing wrote it";
  places.expect_sums();
}

}  // namespace
}  // namespace vedette::testing::place_ahead_test
