// What is resident follows what is used downwards, too: an engine without threads, under a clock that the test sets.
// And upwards ahead of need: an engine with its threads.
#include "engine/unused_frames.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "engine/array_memory.h"
#include "engine/engine.h"
#include "support/manual_program.h"

namespace vedette::unused_frames_test {
namespace {

using testing::ArrayMemory;

constexpr std::int64_t second = 1'000'000'000;
constexpr Nanoseconds seconds(std::int64_t count) { return {count * second}; }

// Everything fits, so nothing is moved.
class NoStore final : public OneTierStore {
 public:
  Result<void> reserve(std::uint32_t) override { return {}; }
  void shrink(std::uint32_t) noexcept override {}
  void discard(std::span<const SlotIndex>) noexcept override {}
  void register_memory(std::byte*, Bytes) override {}
  void submit(std::span<const StoreRequest> requests) noexcept override { VEDETTE_ASSERT(requests.empty()); }
  std::size_t wait(std::span<StoreCompletion>, Nanoseconds) noexcept override { return 0; }
  void wake() noexcept override {}
  std::uint32_t depth() const noexcept override { return 8; }
  Bytes slot_bytes() const noexcept override { return 4_KiB; }
  std::string_view mechanism() const noexcept override { return "none"; }
};

class Steps {
 public:
  Steps()
      : engine_({.chunks = chunks,
                 .frames = 100,
                 .chunk_bytes = 4_KiB,
                 .store = std::make_unique<NoStore>(),
                 .program = &program_,
                 .by_hand = true,
                 .on_message = {}}) {
    auto memory = std::make_unique<ArrayMemory>(chunks, 100, random_);
    memory_ = memory.get();
    engine_.start(std::move(memory));
  }

  // So many chunks from `first` on live in its first second.
  void step(std::uint32_t used, std::int64_t lasts = 1, std::uint32_t first = 0) {
    engine_.begin_step(++step_);
    for (std::uint32_t c = first; c < first + used; ++c) {
      ASSERT_TRUE(engine_.born(ChunkRange::one({c})));
      *memory_->word({c}) = step_ + c;
    }
    pass(1);
    for (std::uint32_t c = first; c < first + used; ++c) {
      EXPECT_EQ(*memory_->word({c}), step_ + c);
      engine_.died(ChunkRange::one({c}));
    }
    pass(lasts - 1);
  }
  void pass(std::int64_t count) {  // the migrator wakes each second
    for (std::int64_t s = 0; s < count; ++s) {
      program_.advance(seconds(1));
      for (int turns = 0; turns < 4; ++turns) engine_.run_once();
    }
  }
  Engine& engine() { return engine_; }
  std::uint32_t frames() const { return memory_->frames_made(); }
  std::uint64_t times_made() const { return memory_->times_made(); }

 private:
  static constexpr std::uint32_t chunks = 200;
  std::mt19937_64 random_{1};
  ManualProgram program_;
  Engine engine_;
  ArrayMemory* memory_ = nullptr;
  std::uint64_t step_ = 0;
};

TEST(UnusedFrames, GoWhenTheNeedFallsAndComeWhenItRises) {
  Steps steps;
  for (int s = 0; s < 10; ++s) steps.step(60);
  EXPECT_EQ(steps.frames(), 60u);
  for (int s = 0; s < 20; ++s) steps.step(8);
  EXPECT_EQ(steps.frames(), 8u);
  for (int s = 0; s < 10; ++s) steps.step(60);
  EXPECT_EQ(steps.frames(), 60u);
}

TEST(UnusedFrames, GoWhereNoStepRunsAnyMore) {
  Steps steps;
  for (int s = 0; s < 10; ++s) steps.step(60);
  steps.pass(20);
  EXPECT_EQ(steps.frames(), 0u);
}

TEST(UnusedFrames, SteadyStepsKeepAllThatTheyTakeHoweverLongTheyLast) {
  for (const std::int64_t lasts : {1, 3, 10, 100}) {
    SCOPED_TRACE(lasts);
    Steps steps;
    for (int s = 0; s < 3; ++s) steps.step(60, lasts);  // of the first it is not known how long it lasts
    const std::uint64_t made = steps.times_made();
    for (int s = 0; s < 40; ++s) steps.step(60, lasts);
    EXPECT_EQ(steps.times_made(), made);
    EXPECT_EQ(steps.frames(), 60u);
  }
}

// Two kinds of steps whose chunks are others, or fewer: each finds the frames that it had.
TEST(UnusedFrames, StepsInTurnsKeepThem) {
  Steps steps;
  for (int s = 0; s < 3; ++s) steps.step(60);
  const std::uint64_t made = steps.times_made();
  for (std::uint32_t s = 0; s < 60; ++s) steps.step(s % 2 == 0 ? 60 : 5, 1, s % 2 * 90);
  EXPECT_EQ(steps.times_made(), made);
}

// What lives stays, whether an op uses it or not, and so do the frames of chunks that die and are born again.
TEST(UnusedFrames, NoLivingChunkLosesItsFrame) {
  Steps steps;
  for (int s = 0; s < 3; ++s) steps.step(60);
  for (std::uint32_t c = 150; c < 170; ++c) ASSERT_TRUE(steps.engine().born(ChunkRange::one({c})));
  for (int s = 0; s < 30; ++s) steps.step(8);
  EXPECT_EQ(steps.frames(), 28u);
  for (std::uint32_t c = 150; c < 170; ++c) EXPECT_EQ(steps.engine().state({c}), ChunkState::resident);
  EXPECT_EQ(steps.engine().counters().faults, 0u);
}

// 20 seconds of large steps, 20 of small ones, for an hour and more.
TEST(UnusedFrames, PhasesInTurnsPayForThatAFewTimesOnly) {
  Steps steps;
  for (int s = 0; s < 4000; ++s) steps.step(s / 20 % 2 == 0 ? 60 : 8);
  constexpr std::uint64_t at_first = 60 - ArrayMemory::made_at_first, again = 60 - 8;
  EXPECT_GE(steps.times_made(), at_first + again) << "small steps give frames back";
  EXPECT_LE(steps.times_made(), at_first + 3 * again);
  EXPECT_EQ(steps.frames(), 60u);
}

TEST(UnusedFrames, AreThoseThatNothingTookInAWholeWindow) {
  UnusedFrames unused;
  EXPECT_FALSE(unused.window_ends({}));
  unused.note(7);
  unused.note(3);
  unused.note(9);
  EXPECT_FALSE(unused.window_ends(seconds(4)));
  EXPECT_TRUE(unused.window_ends(seconds(5)));
  EXPECT_EQ(unused.due(9), 3u);
  unused.found(2);
  EXPECT_EQ(unused.due(11), 5u);
  unused.note(4);  // one more was taken before they were given back
  EXPECT_EQ(unused.due(11), 4u);
  unused.given(4, seconds(5));
  EXPECT_EQ(unused.due(11), 0u);
  EXPECT_TRUE(unused.window_ends(seconds(10)));
}

TEST(UnusedFrames, MadeAgainSoonMakeWindowsLonger) {
  UnusedFrames unused;
  EXPECT_FALSE(unused.window_ends({}));
  EXPECT_TRUE(unused.window_ends(seconds(5)));
  EXPECT_EQ(unused.due(10), 10u);
  unused.given(10, seconds(5));
  unused.made(4, seconds(6));
  EXPECT_TRUE(unused.window_ends(seconds(10))) << "four of ten";
  unused.made(1, seconds(11));
  EXPECT_FALSE(unused.window_ends(seconds(19)));
  EXPECT_TRUE(unused.window_ends(seconds(20)));
}

// --- ahead of need ---------------------------------------------------------------------------------------------------

// Frames without bytes, counted by the thread that makes them.
class CountedMemory final : public ChunkMemory, private Faults {
 public:
  std::uint32_t made() const noexcept override { return 0; }
  int make(FrameIndex, std::uint32_t count, FrameKind) noexcept override {
    (std::this_thread::get_id() == program_ ? by_program_ : in_background_) += count;
    return 0;
  }
  void give_back(FrameIndex) noexcept override {}
  void show(FrameIndex, ChunkIndex) noexcept override {}
  bool hide(ChunkIndex, FrameIndex) noexcept override { return true; }
  bool shift(ChunkIndex, ChunkIndex, FrameIndex) noexcept override { return true; }
  std::byte* parked(FrameIndex) const noexcept override { return nullptr; }
  Reach reach() const noexcept override { return {}; }
  Faults* faults() noexcept override { return this; }
  Trackable* trackable() noexcept override { return nullptr; }
  std::string_view mechanism() const noexcept override { return "counted"; }

  std::uint32_t by_program() const { return by_program_; }
  std::uint32_t all() const { return by_program_ + in_background_; }
  bool come_to(std::uint32_t frames) const {
    for (int tries = 0; tries < 5'000 && all() < frames; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return all() >= frames;
  }

 private:
  void wake(ChunkIndex) noexcept override {}

  const std::thread::id program_ = std::this_thread::get_id();
  std::atomic<std::uint32_t> by_program_ = 0, in_background_ = 0;
};

// Of chunks of 1 MiB. No less than 8 MiB are ready, or an eighth of what is used.
TEST(FramesAhead, AreMadeInTheBackgroundBeforeTheyAreNeeded) {
  constexpr std::uint32_t chunks = 600, least = 8, used = 400;
  Engine engine({.chunks = chunks,
                 .frames = chunks,
                 .chunk_bytes = 1_MiB,
                 .store = open_host_store(1_MiB, 4).value(),
                 .habits = LinkHabits{},
                 .on_message = {}});
  auto made = std::make_unique<CountedMemory>();
  const CountedMemory& memory = *made;
  engine.start(std::move(made));
  EXPECT_TRUE(memory.come_to(least)) << memory.all() << " frames";
  ASSERT_TRUE(engine.born(ChunkRange::of({0}, least)));
  EXPECT_EQ(memory.by_program(), 0u) << "a birth waited, though frames had time to be made";
  EXPECT_TRUE(memory.come_to(2 * least)) << memory.all() << " frames";
  ASSERT_TRUE(engine.born(ChunkRange::of({least}, used - least)));
  EXPECT_TRUE(memory.come_to(used + used / 8)) << memory.all() << " frames";
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(memory.all(), used + used / 8 + 16) << "16 MiB are the most that is made at once";
}

}  // namespace
}  // namespace vedette::unused_frames_test
