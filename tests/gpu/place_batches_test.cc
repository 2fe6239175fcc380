// Small blocks that leave or come back at one op, on the simulated GPU: few calls of the driver, the host's numbers,
// and no race, whatever the driver has or refuses.
#include <gmock/gmock.h>

#include "gpu/places_program.h"
#include "support/places.h"

namespace vedette::testing::place_batches_test {
namespace {

using BlockIndex = PlaceExecutor::BlockIndex;
using ::testing::IsEmpty;

class PlaceBatches : public SimulatedGpu {};

unsigned made(const std::string& call) {
  const auto calls = control().calls();
  const auto found = calls.find(call);
  return found == calls.end() ? 0 : found->second;
}

struct Calls {
  unsigned copies = made("cuMemcpyAsync"), batches = made("cuMemcpyBatchAsync"), records = made("cuEventRecord");
  Calls since(const Calls& before) const {
    return {copies - before.copies, batches - before.batches, records - before.records};
  }
};

// Blocks that hold their number, in a budget that takes all of them.
class Blocks {
 public:
  // `pinned`: with a disk below it; 0: all of the host's memory.
  explicit Blocks(const std::vector<Bytes>& sizes, Bytes pinned = {}) {
    std::uint64_t all = 0;
    for (const Bytes bytes : sizes) all += bytes.value;
    executor = PlaceExecutor::make(device, {.budget = {all}, .most_pinned = pinned}, pointed_,
                                   pinned.value > 0 ? open_disk() : nullptr)
                   .value();
    for (const Bytes bytes : sizes) {
      const auto born = executor->allocate(bytes, stream.handle()).value();
      words_.push_back(bytes.value / 4);
      blocks.push_back(born.block);
      places_.push_back(*executor->place(born.block));
      launch_fill(stream.handle(), born.address, words_.back(), number());
      executor->allow_moves(born.block);
    }
  }
  ~Blocks() {
    for (const BlockIndex each : blocks) executor->release(each);
  }
  Calls leave() {
    const Calls before;
    std::vector<PlaceExecutor::Leaving> all;
    for (const BlockIndex each : blocks) all.push_back({.block = each});
    executor->leave_all(all).value();
    for (const BlockIndex each : blocks) EXPECT_EQ(executor->address(each), 0u);
    return Calls().since(before);
  }
  Calls come() {
    const Calls before;
    std::vector<PlaceExecutor::Coming> all;
    for (std::size_t i = 0; i < blocks.size(); ++i) all.push_back({.block = blocks[i], .place = places_[i]});
    executor->bring_all(all).value();
    for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(executor->place(blocks[i]), places_[i]);
    return Calls().since(before);
  }
  // The first `count` are used by the next ops, the others far later.
  Calls look_ahead(std::size_t count) {
    const Calls before;
    std::vector<moves::NextUses<BlockIndex>::Use> uses;
    std::vector<PlaceExecutor::Expected::Fetch> fetches;
    for (std::size_t i = 0; i < blocks.size(); ++i)
      uses.push_back({.index = blocks[i], .tick = i < count ? 10 + i : 1'000'000 + i});
    for (std::size_t i = 0; i < count; ++i) fetches.push_back({.block = blocks[i], .unchanged = false});
    executor->expect({.now = 10,
                      .outlook = {.until = 10 + count, .calendar = {.ends = 500, .next_begins = 1'000'000}},
                      .uses = uses,
                      .fetches = fetches});
    executor->look_ahead().value();
    for (std::size_t i = 0; i < count; ++i) EXPECT_NE(executor->address(blocks[i]), 0u) << i;
    return Calls().since(before);
  }
  void use_all() {
    std::vector<std::uint32_t> sums(blocks.size());
    executor->begin_op(blocks, stream.handle()).value();
    for (std::size_t i = 0; i < blocks.size(); ++i)
      launch_read(stream.handle(), executor->address(blocks[i]), words_[i], &sums[i]);
    executor->end_op(blocks, stream.handle());
    stream.synchronize().value();
    for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(sums[i], words_[i] * (i + 1)) << i;
    EXPECT_THAT(control().races(), IsEmpty());
  }

  std::shared_ptr<cuda::Device> device = open_device();
  cuda::Stream stream = cuda::Stream::create(device).value();
  std::unique_ptr<PlaceExecutor> executor;
  std::vector<BlockIndex> blocks;

 private:
  std::uint32_t number() const { return static_cast<std::uint32_t>(blocks.size()); }
  Pointed pointed_;
  std::vector<std::size_t> words_;
  std::vector<std::uint64_t> places_;
};

std::vector<Bytes> many_small_and_one_large() {
  std::vector<Bytes> sizes(40, 64_KiB);
  sizes[7] = 2_MiB;
  return sizes;
}

TEST_F(PlaceBatches, SmallBlocksMoveInOneCallEachWay) {
  Blocks blocks(many_small_and_one_large());
  const Calls out = blocks.leave(), in = blocks.come();
  EXPECT_EQ(out.batches, 1u);
  EXPECT_EQ(out.copies, 1u) << "the large one";
  EXPECT_EQ(out.records, 3u) << "the last use of all, and two ends";
  EXPECT_EQ(in.batches, 1u);
  EXPECT_EQ(in.copies, 1u);
  EXPECT_EQ(in.records, 2u);
  EXPECT_EQ(blocks.executor->counters().batched, 78u);
  blocks.use_all();
}

// A copy that waits for its call keeps its slot in pinned memory, which has room for four.
TEST_F(PlaceBatches, MoreThanPinnedMemoryTakesLeaveAtOneOpByWayOfTheDisk) {
  Blocks blocks(std::vector<Bytes>(16, 64_KiB), 256_KiB);
  EXPECT_GE(blocks.leave().batches, 1u);
  EXPECT_LE(blocks.executor->counters().host.most_pinned, 256_KiB);
  EXPECT_GT(blocks.executor->counters().host.to_disk, 0_KiB);
  blocks.use_all();
}

TEST_F(PlaceBatches, OperandsThatAreAwayComeInOneCall) {
  Blocks blocks(std::vector<Bytes>(40, 64_KiB));
  blocks.leave();
  const Calls before;
  blocks.use_all();
  const Calls came = Calls().since(before);
  EXPECT_EQ(came.batches, 1u);
  EXPECT_EQ(came.copies, 0u);
}

TEST_F(PlaceBatches, FetchesAheadOfTheirOpsGoInOneCallBetweenLargeOnes) {
  Blocks blocks(many_small_and_one_large());
  blocks.leave();
  const Calls came = blocks.look_ahead(blocks.blocks.size());
  EXPECT_EQ(came.batches, 2u) << "7 before the large one, and 32 behind it";
  EXPECT_EQ(came.copies, 1u);
  blocks.use_all();
}

// The first two come where there is room, and hold two slots. The last one's room is that of a large block, for which
// pinned memory has no other slot.
TEST_F(PlaceBatches, SlotsOfFetchesThatWaitForTheirCallMakeRoomForWhatLeaves) {
  Blocks blocks({256_KiB, 256_KiB, 64_KiB, 256_KiB}, 576_KiB);
  const auto place = *blocks.executor->place(blocks.blocks[2]);
  const PlaceExecutor::Leaving away[] = {{blocks.blocks[0]}, {blocks.blocks[1]}, {blocks.blocks[2]}};
  blocks.executor->leave_all(away).value();
  const auto other = blocks.executor->allocate(64_KiB, blocks.stream.handle(), place).value();
  EXPECT_EQ(other.address, blocks.executor->address(other.block));
  blocks.look_ahead(3);
  EXPECT_EQ(blocks.executor->address(blocks.blocks[3]), 0u);
  EXPECT_LE(blocks.executor->counters().host.most_pinned, 576_KiB);
  blocks.executor->release(other.block);
  blocks.use_all();
}

TEST_F(PlaceBatches, ACallHasNoMoreThanItMayHave) {
  Blocks many(std::vector<Bytes>(100, Bytes{512})), large(std::vector<Bytes>(10, 1_MiB));
  EXPECT_EQ(many.leave().batches, 2u) << "64 copies, and 36";
  const Calls out = large.leave();
  EXPECT_EQ(out.batches, 3u) << "4 MiB, 4 and 2";
  EXPECT_EQ(out.copies, 0u);
  large.come();
  many.use_all();
  large.use_all();
}

TEST_F(PlaceBatches, ADriverWithoutThatFunctionCopiesOneByOne) {
  simulated::Options lacks = options(), older = options();
  lacks.batched_copies = false;
  older.cuda = 12040;
  for (const simulated::Options& driver : {lacks, older}) {
    control().choose(driver);
    Blocks blocks(many_small_and_one_large());
    const Calls out = blocks.leave(), in = blocks.come();
    EXPECT_EQ(out.batches + in.batches, 0u);
    EXPECT_EQ(out.copies, 40u);
    EXPECT_EQ(in.copies, 40u);
    blocks.use_all();
  }
}

TEST_F(PlaceBatches, TheFunctionOfCuda128HasAParameterMore) {
  simulated::Options driver = options();
  driver.cuda = 12080;
  control().choose(driver);
  Blocks blocks(many_small_and_one_large());
  EXPECT_EQ(blocks.leave().batches, 1u);
  EXPECT_EQ(blocks.come().batches, 1u);
  blocks.use_all();
}

TEST_F(PlaceBatches, ACallThatIsRefusedIsMadeAgainOneByOneAndIsTheLast) {
  Blocks blocks(many_small_and_one_large());
  control().fail("cuMemcpyBatchAsync", 1, 999);
  const Calls out = blocks.leave();
  control().fail_none();
  EXPECT_EQ(out.batches, 1u);
  EXPECT_EQ(out.copies, 40u);
  EXPECT_EQ(blocks.come().batches, 0u);
  blocks.use_all();
}

// Behind one of them a place is still in use: the others do not wait for that.
TEST_F(PlaceBatches, ACopyThatHasToWaitForMoreBeginsAnotherCall) {
  Blocks blocks(std::vector<Bytes>(8, 64_KiB));
  const auto other = cuda::Stream::create(blocks.device).value();
  blocks.leave();
  const auto born = blocks.executor->allocate(64_KiB, other.handle(), 4 * (64 << 10)).value();
  launch_fill(other.handle(), born.address, 16 << 10, 9);
  blocks.executor->release(born.block);
  const Calls in = blocks.come();
  EXPECT_EQ(in.batches, 2u) << "4 before the block in that place, and 4 with it";
  blocks.use_all();
}

TEST_F(PlaceBatches, RandomMovesOfSeveralKeepTheHostsNumbers) {
  std::uint64_t batched = 0;
  run_programs(
      10, {2_MiB, 400_KiB, 256_KiB}, 200,
      [](PlacesProgram& program, unsigned seed) {
        program.planned = program.several = true;
        program.notes = seed % 2 == 0;
        program.drops = seed % 3 == 0;
        program.rearranges = seed % 4 == 0;
      },
      [&](const PlacesProgram& program) { batched += program.counters().batched; });
  EXPECT_GT(batched, 5000u);
}

TEST_F(PlaceBatches, TheSameWithADiskBelowOrLittlePinnedMemory) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    PlacesProgram program(seed, 256_KiB, 384_KiB, open_disk());
    program.planned = program.several = program.far = true;
    program.run(200, program_tensors, largest_words);
    EXPECT_GT(program.counters().batched, 50u);
    ASSERT_THAT(control().races(), IsEmpty()) << "seed " << seed;
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST_F(PlaceBatches, ADriverCallThatFailsOnceLosesNoNumbers) {
  for (const char* call :
       {"cuMemcpyBatchAsync", "cuMemcpyAsync", "cuEventRecord", "cuStreamWaitEvent", "cuMemHostRegister_v2"}) {
    for (unsigned nth = 1; nth < 300; nth = nth * 3 / 2 + 1) {
      PlacesProgram program(5, 256_KiB);
      program.planned = program.several = program.rearranges = true;
      control().fail(call, nth, 999);
      program.run(80, program_tensors, largest_words);
      control().fail_none();
      ASSERT_THAT(control().races(), IsEmpty()) << call << " " << nth;
      if (HasFailure()) FAIL() << call << ", call " << nth;
    }
  }
}

}  // namespace
}  // namespace vedette::testing::place_batches_test
