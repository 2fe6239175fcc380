// The whole engine without threads, kernel memory or clock: a random program from a printed seed, over a memory and a
// store that are arrays. After every step each chunk is in a state that fits what memory shows, no frame is in two
// places, and every chunk holds the bytes that the program wrote last.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>
#include <random>

#include "engine/array_memory.h"
#include "engine/engine.h"
#include "support/manual_program.h"

namespace vedette::by_hand_test {
namespace {

using testing::ArrayMemory;

constexpr Bytes chunk_bytes = 4_KiB;

// Completes one request of those in flight at some calls of wait(), in random order; bytes move only then.
class ArrayStore final : public OneTierStore {
 public:
  ArrayStore(std::mt19937_64& random, ManualProgram& program) : random_(random), program_(program) {}

  Result<void> reserve(std::uint32_t slots) override {
    if (slots > slots_.size()) slots_.resize(slots);
    return {};
  }
  void shrink(std::uint32_t slots) noexcept override {
    VEDETTE_ASSERT(in_flight_.empty());
    slots_.resize(std::min<std::size_t>(slots, slots_.size()));
  }
  void discard(std::span<const SlotIndex> slots) noexcept override {
    for (const SlotIndex slot : slots) {
      for (const StoreRequest& request : in_flight_) VEDETTE_ASSERT(request.slot != slot);
      if (slot.value < slots_.size()) slots_[slot.value] = ~std::uint64_t{0};  // whoever needs it still will see
    }
  }
  void register_memory(std::byte*, Bytes) override {}
  void submit(std::span<const StoreRequest> requests) noexcept override {
    for (const StoreRequest& request : requests) {
      for (const StoreRequest& other : in_flight_) VEDETTE_ASSERT(other.slot != request.slot);
      VEDETTE_ASSERT(request.slot.value < slots_.size());
      in_flight_.push_back(request);
    }
    VEDETTE_ASSERT(in_flight_.size() <= depth());
  }
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override {
    if (in_flight_.empty()) {
      program_.advance(timeout);
      VEDETTE_ASSERT(++idle_waits_ < 10'000);  // a call waits for a move that never starts
      return 0;
    }
    idle_waits_ = 0;
    program_.advance({1'000});
    if (random_() % 4 != 0) return 0;  // a chunk may die and be born again before its write ends
    const auto chosen = in_flight_.begin() + static_cast<std::ptrdiff_t>(random_() % in_flight_.size());
    const StoreRequest request = *chosen;
    in_flight_.erase(chosen);
    auto* const word = reinterpret_cast<std::uint64_t*>(request.memory);
    const bool read = request.direction == StoreRequest::Direction::read;
    // Reads fail once in a row at most, or the engine ends the program.
    if (fail_every_ != 0 && !(read && read_failed_) && random_() % fail_every_ == 0) {
      if (read) read_failed_ = true;
      out[0] = {.token = request.token, .error = EIO};
      return 1;
    }
    if (read) read_failed_ = false;
    read ? void(*word = slots_[request.slot.value]) : void(slots_[request.slot.value] = *word);
    out[0] = {.token = request.token};
    return 1;
  }
  void wake() noexcept override {}
  std::uint32_t depth() const noexcept override { return 8; }
  Bytes slot_bytes() const noexcept override { return chunk_bytes; }
  std::string_view mechanism() const noexcept override { return "array"; }
  std::size_t size() const noexcept { return slots_.size(); }
  void fail_every(std::uint64_t nth) { fail_every_ = nth; }  // transfer; 0: never

 private:
  std::mt19937_64& random_;
  ManualProgram& program_;
  std::vector<std::uint64_t> slots_;
  std::vector<StoreRequest> in_flight_;
  std::uint64_t fail_every_ = 0, idle_waits_ = 0;
  bool read_failed_ = false;
};

class RandomProgram {
 public:
  enum class World { bad, good };  // good: no page is pinned, no transfer fails
  explicit RandomProgram(std::uint64_t seed, std::uint32_t most_frames = 0, World world = World::bad)
      : random_(seed), live_(chunks, 0), marks_(chunks, 0) {
    frames_ = 6 + below(6);
    auto store = std::make_unique<ArrayStore>(random_, program_);
    store_ = store.get();
    engine_.emplace(EngineOptions{.chunks = chunks,
                                  .frames = frames_,
                                  .most_frames = most_budget,
                                  .chunk_bytes = chunk_bytes,
                                  .store = std::move(store),
                                  .program = &program_,
                                  .habits = LinkHabits{.speed = {}, .reads_in_flight = 2 + 2 * below(3)},
                                  .by_hand = true,
                                  .on_message = [this](std::string_view sentence) { said_.emplace_back(sentence); }});
    most_allowed_ = frames_;
    auto memory = std::make_unique<ArrayMemory>(chunks, most_budget, random_);
    memory_ = memory.get();
    if (most_frames > 0) memory->allow_at_most(most_frames);
    engine_->start(std::move(memory));
    if (world == World::good) return;
    if (below(3) == 0) memory_->refuse_every(2 + below(6));
    if (below(4) == 0) store_->fail_every(50);
  }
  ~RandomProgram() {
    memory_->refuse_every(0);
    engine_.reset();
  }

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      step();
      check();
    }
  }

  std::ptrdiff_t said(std::string_view part) const {
    return std::count_if(said_.begin(), said_.end(), [&](const std::string& s) { return s.find(part) != s.npos; });
  }
  std::uint32_t most_frames_made() const { return memory_->most_made(); }  // at once
  Nanoseconds longest_call() const noexcept { return longest_call_; }      // of begin_op() and birth()

  // Every call of step() may be one for another budget from now on.
  void change_budgets() { budget_changes_ = true; }
  std::uint64_t budgets_met() const noexcept { return budgets_met_; }

  void wind_down() {
    if (held_) engine_->release_hold(*held_);
    memory_->refuse_every(0);
    store_->fail_every(0);
    engine_->begin_step(++steps_);
    for (int i = 0; i < 30; ++i) engine_->run_once();  // nothing is busy any more
    for (std::uint32_t most : {frames_, frames_, frames_ / 2, 2u}) {
      const std::uint32_t left = engine_->wind_down(most);
      const std::uint32_t living =
          static_cast<std::uint32_t>(std::count_if(live_.begin(), live_.end(), [](auto n) { return n > 0; }));
      EXPECT_LE(left, std::max(std::min(std::max(most, 4u), living), 1u));
      for (int i = 0; i < 30 && !::testing::Test::HasFailure(); ++i) {
        touch({below(chunks)});
        EXPECT_LE(memory_->frames_made(), left);
        check();
      }
      for (int i = 0; i < 3; ++i) let_die({below(chunks)});
    }
    for (ChunkIndex c; c.value < chunks; ++c.value)
      while (live_[c] > 0) let_die(c);
    for (int i = 0; i < 100; ++i) engine_->run_once();  // what is in flight ends
    EXPECT_EQ(memory_->frames_made(), 0u);
  }

 private:
  static constexpr std::uint32_t chunks = 24, most_budget = 16;

  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }
  ChunkRange some() {
    const std::uint32_t first = below(chunks);
    return ChunkRange::of({first}, 1 + below(std::min(3u, chunks - first)));
  }

  void resize(bool in_op) {
    const std::uint32_t asked = 5 + below(most_budget - 4);
    const auto resized = engine_->resize({asked * chunk_bytes.value}, in_op ? detail::Executor::Caller::in_its_op
                                                                            : detail::Executor::Caller::between_ops);
    ASSERT_TRUE(resized.ok());
    EXPECT_EQ(resized->now.value > asked * chunk_bytes.value, !resized->holds.empty()) << resized->holds;
    EXPECT_LE(memory_->frames_made() * chunk_bytes.value, resized->now.value);
    frames_ = static_cast<std::uint32_t>(resized->now.value / chunk_bytes.value);
    most_allowed_ = std::max(most_allowed_, frames_);
    if (resized->holds.empty()) ++budgets_met_;
  }

  void step() {
    if (budget_changes_ && below(8) == 0) return resize(false);
    switch (below(10)) {
      case 0:
      case 1:
        return give_birth(some());
      case 2:
        return let_die({below(chunks)});
      case 3:
        return hold(some());
      case 4:
        if (below(4) == 0) program_.advance({6'000'000'000});  // what was not used meanwhile goes back to the system
        for (int i = 0; i < 3; ++i) engine_->run_once();
        return;
      case 5:
        return below(8) == 0 ? engine_->forget_plan() : engine_->begin_step(++steps_);
      case 6:
        return below(2) == 0 ? touch({below(chunks)}) : touch_both({below(chunks - 1)});
      default:
        return op();
    }
  }

  void give_birth(ChunkRange range) {
    const Nanoseconds began = program_.now();
    const bool born = engine_->born(range).ok();
    longest_call_ = std::max(longest_call_, program_.now() - began);
    if (!born) return;
    for (const ChunkIndex c : range)
      if (live_[c]++ == 0) write(c);
  }
  void let_die(ChunkIndex c) {
    if (live_[c] == 0) return;
    engine_->died(ChunkRange::one(c));
    --live_[c];
  }
  void hold(ChunkRange range) {
    for (const ChunkIndex c : range)
      if (live_[c] == 0) return;
    if (held_) engine_->release_hold(*held_);
    held_.reset();
    if (engine_->hold(range)) held_ = range;
    for (const ChunkIndex c : held_.value_or(ChunkRange())) EXPECT_EQ(engine_->state(c), ChunkState::resident);
  }
  OpSchedule some_schedule() {
    if (below(3) == 0) return {};
    auto begins = std::make_shared<std::vector<Nanoseconds>>(1);
    for (std::uint32_t n = below(40); n > 0; --n) begins->push_back(begins->back() + Nanoseconds{below(3'000'000)});
    const std::size_t running = begins->size() - 1 - std::min<std::size_t>(begins->size() - 1, below(40));
    return {.begins = std::move(begins), .op = running, .longer = 0.5 + below(3)};
  }
  void op() {
    std::vector<ChunkRange> operands, evictions;
    std::vector<detail::OpMoves::Fetch> fetches;
    std::vector<detail::OpMoves::NextUse> uses;
    const auto now = static_cast<std::uint32_t>(tick_);
    for (std::uint32_t n = below(below(10) == 0 ? 12 : 3); n > 0; --n) operands.push_back(some());
    for (std::uint32_t n = below(3); n > 0; --n) evictions.push_back(some());
    for (std::uint32_t n = below(3); n > 0; --n) fetches.push_back({.chunks = some()});
    for (std::uint32_t n = below(4); n > 0; --n) uses.push_back({.chunks = some(), .after = now + below(40)});
    detail::StepStart start;
    for (std::uint32_t n = below(6) == 0 ? below(8) : 0; n > 0; --n)
      (below(2) == 0 ? start.near : start.away).push_back({.chunks = some(), .first_use = now + below(40)});
    std::optional<detail::Ahead> ahead;
    if (below(3) == 0)
      ahead = {.fetches = fetches,
               .next_uses = uses,
               .births = below(4),
               .until = now + below(20),
               .schedule = some_schedule()};
    const Nanoseconds began = program_.now();
    engine_->begin_op({0}, "op",
                      {.tick = ++tick_,
                       .operands = operands,
                       .moves = {.fetches = fetches, .next_uses = uses},
                       .ahead = ahead ? &*ahead : nullptr,
                       .start = &start,
                       .planned = true});
    longest_call_ = std::max(longest_call_, program_.now() - began);
    if (below(3) == 0) engine_->observe(operands);
    for (const ChunkRange range : operands)
      for (const ChunkIndex c : range)
        if (below(2) == 0) touch(c);
    for (std::uint32_t n = below(3); n > 0; --n) give_birth(some());
    for (std::uint32_t n = below(3); n > 0; --n) let_die({below(chunks)});
    if (budget_changes_ && below(8) == 0) resize(true);
    check();
    std::vector<detail::OpMoves::Departure> leaving;
    for (const ChunkRange range : evictions) leaving.push_back({.chunks = range});
    engine_->end_op(leaving);
    if (below(2) != 0) return;
    for (int i = 0; i < 2; ++i) engine_->run_once();
    for (const ChunkRange range : evictions)
      for (const ChunkIndex c : range) die_and_be_born(c);
  }
  // Perhaps while its write is in flight.
  void die_and_be_born(ChunkIndex c) {
    const bool lived = live_[c] > 0;
    while (live_[c] > 0) let_die(c);
    if (lived) give_birth(ChunkRange::one(c));
  }

  void bring(ChunkIndex c) {
    for (int turns = 0; memory_->word(c) == nullptr; ++turns) {
      ASSERT_LT(turns, 10'000) << "chunk " << c.value << " does not come";
      engine_->fault({.chunk = c, .page = 0, .write = false, .address = nullptr});
      if (memory_->word(c) == nullptr) engine_->run_once();
    }
  }
  void write(ChunkIndex c) {
    bring(c);
    if (auto* const word = memory_->word(c)) *word = marks_[c] = random_();
  }
  void touch(ChunkIndex c) {
    if (live_[c] == 0) return;
    bring(c);
    if (memory_->word(c) == nullptr) return;
    EXPECT_EQ(*memory_->word(c), marks_[c]) << "chunk " << c.value;
    if (below(2) == 0) write(c);
  }

  // One instruction over the edge of two chunks: it is done when both are there at once.
  void touch_both(ChunkIndex first) {
    const ChunkIndex second{first.value + 1};
    if (live_[first] == 0 || live_[second] == 0) return;
    for (int turns = 0; memory_->word(first) == nullptr || memory_->word(second) == nullptr; ++turns) {
      ASSERT_LT(turns, 1'000) << "chunks " << first.value << " and the next do not come both";
      bring(first);
      bring(second);
    }
  }

  void check() {
    std::uint32_t backed = 0;
    for (const ChunkIndex c : ChunkRange::of({0}, chunks)) {
      const ChunkState state = engine_->state(c);
      EXPECT_EQ(memory_->shown_at(c).has_value(), shown(state)) << "chunk " << c.value;
      EXPECT_EQ(live_[c] == 0, state == ChunkState::empty || state == ChunkState::idle) << "chunk " << c.value;
      if (live_[c] > 0 && shown(state)) {
        EXPECT_EQ(*memory_->word(c), marks_[c]) << "chunk " << c.value;
      }
      backed += memory_->shown_at(c).has_value() ? 1 : 0;
    }
    EXPECT_LE(backed, frames_);
    EXPECT_LE(engine_->budget().value, frames_ * chunk_bytes.value);
    EXPECT_LE(memory_->frames_made() * chunk_bytes.value, engine_->budget().value);
    EXPECT_LE(engine_->counters().resident_max_bytes.value, most_allowed_ * chunk_bytes.value);
  }

  std::mt19937_64 random_;
  ManualProgram program_;
  std::uint32_t frames_ = 0, most_allowed_ = 0;
  bool budget_changes_ = false;
  std::uint64_t budgets_met_ = 0;
  ArrayStore* store_ = nullptr;
  ArrayMemory* memory_ = nullptr;
  std::optional<Engine> engine_;
  Indexed<ChunkIndex, std::uint32_t> live_;
  Indexed<ChunkIndex, std::uint64_t> marks_;
  std::optional<ChunkRange> held_;
  Ticks tick_ = 0;
  std::uint64_t steps_ = 0;
  Nanoseconds longest_call_;
  std::vector<std::string> said_;
};

TEST(EngineByHand, KeepsEveryByteAndEveryStateUnderRandomPrograms) {
  for (std::uint64_t seed = 1; seed <= 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram(seed).run(300);
  }
}

// A wait with nothing in flight lasts a second: then the migrator slept though it could have started something.
TEST(EngineByHand, NoCallWaitsWhileNothingMoves) {
  for (std::uint64_t seed = 1; seed <= 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram program(seed, 0, RandomProgram::World::good);
    program.run(300);
    EXPECT_LT(program.longest_call().value, 1'000'000'000);
  }
}

// Up and down, between ops and inside of them: memory is never more than the budget, and every byte stays.
TEST(EngineByHand, FollowsABudgetThatChanges) {
  std::uint64_t met = 0;
  for (std::uint64_t seed = 1; seed <= 400 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto world = seed % 2 == 0 ? RandomProgram::World::good : RandomProgram::World::bad;
    RandomProgram program(seed, 0, world);
    program.change_budgets();
    program.run(300);
    met += program.budgets_met();
    if (seed % 4 == 0) program.wind_down();
  }
  EXPECT_GT(met, 10'000u);
}

// The system has no memory for more than five frames of a budget of six to eleven.
TEST(EngineByHand, GoesOnWithTheFramesThatCanBeMade) {
  for (std::uint64_t seed = 1; seed <= 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram program(seed, 5);
    program.run(200);
    EXPECT_EQ(program.most_frames_made(), 5u);
    EXPECT_EQ(program.said("no more than 20.0 KiB of fast memory can be allocated (Cannot allocate memory)"), 1);
  }
}

// Tensors outlive the program's ops: their bytes stay, the dead give their memory back, and no more frames are there
// than chunks live, or than are allowed.
TEST(EngineByHand, AfterTheProgramWhatIsResidentFollowsWhatLives) {
  for (std::uint64_t seed = 1; seed <= 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram program(seed);
    program.run(100);
    program.wind_down();
  }
}

// 40 chunks of 1,000 live at a time; then 400, and 4 again: the store follows what lives, down after a while.
TEST(EngineByHand, TheStoreFollowsWhatLives) {
  constexpr std::uint32_t all = 1000, fast = 8;
  std::mt19937_64 random(1);
  ManualProgram program;
  auto made = std::make_unique<ArrayStore>(random, program);
  ArrayStore& store = *made;
  Engine engine({.chunks = all,
                 .frames = fast,
                 .chunk_bytes = chunk_bytes,
                 .store = std::move(made),
                 .program = &program,
                 .by_hand = true,
                 .on_message = {}});
  auto memory_made = std::make_unique<ArrayMemory>(all, fast, random);
  ArrayMemory& memory = *memory_made;
  engine.start(std::move(memory_made));
  const auto birth = [&](std::uint32_t c) {
    ASSERT_TRUE(engine.born(ChunkRange::one({c})));
    *memory.word({c}) = c;
  };
  const auto idle = [&] {
    for (int i = 0; i < 100; ++i) engine.run_once();
  };
  for (std::uint32_t c = 0; c < all; ++c) {
    birth(c);
    if (c >= 40) engine.died(ChunkRange::one({c - 40}));
  }
  EXPECT_LE(store.size(), 64u);
  for (std::uint32_t c = 0; c < 400; ++c) birth(c);
  EXPECT_GE(store.size(), 440u);
  for (std::uint32_t c = 4; c < 400; ++c) engine.died(ChunkRange::one({c}));
  for (std::uint32_t c = all - 40; c < all; ++c) engine.died(ChunkRange::one({c}));
  idle();
  EXPECT_LE(store.size(), 128u);
  for (std::uint32_t c = 4; c < 400; ++c) birth(c);
  for (std::uint32_t c = 0; c < 400; ++c) {
    engine.fault({.chunk = {c}, .page = 0, .write = false, .address = nullptr});
    for (int i = 0; i < 1000 && memory.word({c}) == nullptr; ++i) engine.run_once();
    ASSERT_NE(memory.word({c}), nullptr);
    EXPECT_EQ(*memory.word({c}), c);
  }
}

TEST(ChunkStates, OnlyOneStateIsEnteredByABirthAndEveryLivingOneEndsByADeath) {
  using enum ChunkState;
  for (const ChunkState state : {unbacked, covered, hidden, evicting, away, fetching, arrived, dropped})
    EXPECT_TRUE(may_become(state, empty));
  EXPECT_TRUE(may_become(resident, idle) && may_become(idle, empty) && may_become(idle, resident));
  EXPECT_FALSE(may_become(resident, empty));
  for (const ChunkState state : {resident, idle, covered, hidden, evicting, away, fetching, arrived, dropped, empty})
    EXPECT_FALSE(may_become(empty, state));
  EXPECT_FALSE(may_become(arrived, evicting)) << "its slot has the bytes";
  EXPECT_FALSE(may_become(dropped, fetching) || may_become(dropped, unbacked)) << "its bytes are nowhere";
}

}  // namespace
}  // namespace vedette::by_hand_test
