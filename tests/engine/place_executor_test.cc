// Blocks in less device memory than they need, on the simulated GPU. Random programs on two streams have the numbers of
// the same program on the host, without a race. This holds for every link, and for every driver call that fails once.
#include "engine/place_executor.h"

#include <gmock/gmock.h>

#include <random>

#include "support/places.h"

namespace vedette::testing {
namespace {

using cuda::Address;
using cuda::StreamHandle;
using BlockIndex = PlaceExecutor::BlockIndex;

std::uint32_t mixed(std::uint32_t a, std::uint32_t b) { return (a ^ (b + 0x9e3779b9u)) * 2654435761u + (a >> 15); }

class Program {
 public:
  struct Tensor {
    BlockIndex block;
    std::vector<std::uint32_t> words;  // what it should hold
  };

  Program(unsigned seed, Bytes budget, Bytes pinned = {}, std::unique_ptr<DiskThread> disk = nullptr)
      : random_(seed),
        executor_(PlaceExecutor::make(device_, {.budget = budget, .most_pinned = pinned}, pointed_, std::move(disk))
                      .value()) {}
  ~Program() {
    for (const Tensor& each : tensors_) executor_->release(each.block);
  }

  void run(int ops, std::size_t tensors, std::size_t largest) {
    largest_ = largest;
    for (int i = 0; i < ops; ++i) {
      const cuda::Stream& stream = random_() % 5 == 0 ? second_ : first_;
      if (&stream != last_) order(stream);
      last_ = &stream;
      if (tensors_.size() < tensors || random_() % 8 == 0) birth(stream);
      if (tensors_.size() > tensors) death();
      if (planned) move_by_plan();
      op(stream);
      for (const Tensor& each : tensors_) ASSERT_EQ(pointed_.at.at(each.block.value), executor_->address(each.block));
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i) check(i);
  }
  PlaceExecutor::Counters counters() const { return executor_->counters(); }
  std::size_t failures = 0;
  bool planned = false;  // blocks leave and come to places between ops, too
  bool far = false;      // and go on to the disk
  bool notes = false;    // the first stream is the default one, and half of the ops' ends are only noted

 private:
  StreamHandle handle(const cuda::Stream& stream) const {
    return notes && &stream == &first_ ? nullptr : stream.handle();
  }
  PlaceExecutor::Ends ends() {
    return notes && random_() % 2 == 0 ? PlaceExecutor::Ends::noted : PlaceExecutor::Ends::marked;
  }
  // A call of the driver fails once: what was asked for is asked for again.
  template <class Ask>
  auto again(const Ask& ask) {
    auto answer = ask();
    for (int tries = 0; !answer && tries < 3; ++tries) {
      EXPECT_THAT(answer.error().message, ::testing::HasSubstr("; "));
      ++failures;
      answer = ask();
    }
    return answer;
  }
  void order(const cuda::Stream& next) {
    if (last_ == nullptr) return;
    again([&] { return event_.record(handle(*last_)); }).value();
    again([&] { return event_.let_wait(handle(next)); }).value();
  }
  void birth(const cuda::Stream& stream) {
    const std::size_t words = 1 + random_() % largest_;
    const auto born = again([&] { return executor_->allocate({words * 4}, handle(stream)); });
    ASSERT_TRUE(born) << born.error().message;
    pointed_.at[born->block.value] = born->address;
    const auto value = static_cast<std::uint32_t>(random_());
    launch_fill(handle(stream), born->address, words, value);
    tensors_.push_back({born->block, std::vector<std::uint32_t>(words, value)});
    executor_->allow_moves(born->block);
  }
  void move_by_plan() {
    const BlockIndex block = tensors_[random_() % tensors_.size()].block;
    if (random_() % 2 == 0) {
      again([&] { return executor_->leave(block, far && random_() % 2 == 0); }).value();
      return;
    }
    // Where there is no room for it, it comes when an op needs it.
    static_cast<void>(executor_->bring(block, random_() % 256 * 512, false));
  }
  void death() {
    const std::size_t gone = random_() % tensors_.size();
    executor_->release(tensors_[gone].block);
    tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(gone));
  }
  // to[i] = mixed(to[i], from[i])
  void op(const cuda::Stream& stream) {
    Tensor& to = tensors_[random_() % tensors_.size()];
    const Tensor& from = tensors_[random_() % tensors_.size()];
    const BlockIndex operands[] = {to.block, from.block};
    const PlaceExecutor::Ends ended = ends();
    again([&] { return executor_->begin_op(operands, handle(stream), PlaceExecutor::Results::placed, ended); }).value();
    const Address into = pointed_.at.at(to.block.value), other = pointed_.at.at(from.block.value);
    ASSERT_EQ(into, executor_->address(to.block));
    const std::size_t words = std::min(to.words.size(), from.words.size());
    void* const written = reinterpret_cast<void*>(into);
    const void* const read = reinterpret_cast<const void*>(other);
    control().launch(handle(stream), "mix", {{.at = read, .bytes = words * 4}, {written, words * 4, true}}, [=] {
      auto* const a = static_cast<std::uint32_t*>(control().reach(written));
      const auto* const b = static_cast<const std::uint32_t*>(control().reach(read));
      for (std::size_t i = 0; i < words; ++i) a[i] = mixed(a[i], b[i]);
    });
    executor_->end_op(operands, handle(stream));
    const std::vector<std::uint32_t> before = from.words;
    for (std::size_t i = 0; i < words; ++i) to.words[i] = mixed(to.words[i], before[i]);
  }
  void check(std::size_t which) {
    const Tensor& tensor = tensors_[which];
    const BlockIndex operands[] = {tensor.block};
    order(first_);
    last_ = &first_;
    again([&] { return executor_->begin_op(operands, handle(first_)); }).value();
    std::vector<std::uint32_t> found(tensor.words.size());
    const void* const at = reinterpret_cast<const void*>(pointed_.at.at(tensor.block.value));
    control().launch(handle(first_), "check", {{.at = at, .bytes = found.size() * 4}},
                     [&] { std::memcpy(found.data(), control().reach(at), found.size() * 4); });
    executor_->end_op(operands, handle(first_));
    again([&] { return device_->synchronize(); }).value();
    EXPECT_EQ(found, tensor.words) << "tensor " << which;
  }

  std::mt19937 random_;
  std::shared_ptr<cuda::Device> device_ = open_device();
  Pointed pointed_;
  cuda::Stream first_ = cuda::Stream::create(device_).value(), second_ = cuda::Stream::create(device_).value();
  cuda::Event event_ = cuda::Event::create(device_).value();
  std::unique_ptr<PlaceExecutor> executor_;
  const cuda::Stream* last_ = nullptr;
  std::vector<Tensor> tensors_;
  std::size_t largest_ = 1;
};

class Places : public SimulatedGpu {};

constexpr std::size_t tensors = 24, largest = 16 << 10;  // 24 of up to 64 KiB: about 780 KiB live

TEST_F(Places, RandomProgramsHaveTheHostsNumbersInLessMemoryThanTheyNeed) {
  std::uint64_t evictions = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    for (const Bytes budget : {2_MiB, 400_KiB, 256_KiB}) {
      Program program(seed, budget);
      program.run(300, tensors, largest);
      evictions += program.counters().evictions;
      EXPECT_LE(program.counters().most_in_use, budget);
      ASSERT_THAT(control().races(), ::testing::IsEmpty()) << "seed " << seed;
      if (HasFailure()) FAIL() << "seed " << seed << ", " << budget.value << " bytes";
    }
  }
  EXPECT_GT(evictions, 2000u);
}

TEST_F(Places, NumbersDoNotDependOnTheLinkOrItsEngines) {
  for (const simulated::Options& link : {simulated::Options{.latency_us = 100},
                                         {.gbs = 0.5},
                                         {.one_engine = true},
                                         {.copies_wait = true},
                                         {.latency_us = 1000, .one_engine = true}}) {
    control().choose(link);
    Program program(7, 256_KiB);
    program.run(60, tensors, largest);
    EXPECT_GT(program.counters().evictions, 20u);
    ASSERT_THAT(control().races(), ::testing::IsEmpty());
  }
}

TEST_F(Places, MovesByAPlanBetweenOpsKeepTheHostsNumbers) {
  std::uint64_t evictions = 0;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    for (const Bytes budget : {2_MiB, 400_KiB}) {
      Program program(seed, budget);
      program.planned = true;
      program.notes = seed % 2 == 0;
      program.run(300, tensors, largest);
      evictions += program.counters().evictions;
      EXPECT_LE(program.counters().most_in_use, budget);
      ASSERT_THAT(control().races(), ::testing::IsEmpty()) << "seed " << seed;
      if (HasFailure()) FAIL() << "seed " << seed << ", " << budget.value << " bytes";
    }
  }
  EXPECT_GT(evictions, 1000u);
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
      Program program(seed, 320_KiB, 256_KiB, open_disk());
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
       {Call{"cuMemcpyAsync", false}, Call{"cuEventRecord", false}, Call{"cuEventCreate", false},
        Call{"cuMemHostRegister_v2", true}, Call{"cuStreamWaitEvent", true}, Call{"cuEventQuery", true},
        Call{"cuEventSynchronize", true}}) {
    std::size_t failures = 0;
    for (unsigned nth = 1; nth < 400; nth = nth * 3 / 2 + 1) {
      Program program(3, 256_KiB);
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

}  // namespace
}  // namespace vedette::testing
