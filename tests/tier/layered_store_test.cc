// Near slots over far ones: which level has which bytes, and that no order of transfers, moves between the levels and
// failures of either loses any. Both levels are watched by a store that ends the test where two transfers of one slot
// overlap, unless both are reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>

#include "base/mapping.h"
#include "support/faulty_store.h"
#include "tier/store.h"

namespace vedette::layered_store_test {
namespace {

using Direction = StoreRequest::Direction;

constexpr Bytes slot_bytes = 4_KiB;
constexpr std::uint32_t depth = 6, inner_depth = depth + layered_extra_depth;
constexpr Nanoseconds long_time{20'000'000'000};
constexpr TierIndex near_tier{1}, far_tier{2};

class StrictStore final : public StoreWrapper {
 public:
  StrictStore(std::unique_ptr<Store> inner, std::uint32_t slots) : StoreWrapper(std::move(inner)), slots_(slots) {}
  void submit(std::span<const StoreRequest> requests) noexcept override {
    for (const StoreRequest& request : requests) {
      EXPECT_LT(request.slot.value, slots_);
      const bool write = request.direction == Direction::write;
      for (const auto& [token, other] : in_flight_)
        EXPECT_FALSE(other.slot == request.slot && (write || other.direction == Direction::write))
            << "slot " << request.slot.value;
      in_flight_[request.token] = request;
      ++(write ? writes : reads);
    }
    inner_->submit(requests);
  }
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override {
    const std::size_t count = inner_->wait(out, timeout);
    for (std::size_t i = 0; i < count; ++i) in_flight_.erase(out[i].token);
    return count;
  }
  std::uint32_t reads = 0, writes = 0;

 private:
  const std::uint32_t slots_;
  std::map<std::uint64_t, StoreRequest> in_flight_;
};

struct Levels {
  StrictStore* near = nullptr;
  StrictStore* far = nullptr;
  std::unique_ptr<Store> store;
};

Levels levels(std::uint32_t near_slots, const FaultyStoreOptions& near_faults = {},
              const FaultyStoreOptions& far_faults = {}) {
  const auto level = [](std::uint32_t slots, const FaultyStoreOptions& faults) {
    return std::make_unique<StrictStore>(
        std::make_unique<FaultyStore>(open_host_store(slot_bytes, inner_depth, slots).value(), faults), slots);
  };
  auto near = level(near_slots, near_faults), far = level(unlimited_slots, far_faults);
  Levels made{.near = near.get(), .far = far.get(), .store = nullptr};
  made.store = layered(std::move(near), near_slots, std::move(far)).value();
  made.store->reserve(64).value();
  return made;
}

// One request at a time.
class Pen {
 public:
  explicit Pen(Store& store) : store_(store), memory_(Mapping::reserve(slot_bytes, {4096}).value()) {}
  // `meanwhile`: before its end is asked for.
  StoreCompletion write(std::uint32_t slot, int value, TierIndex tier = {},
                        const std::function<void()>& meanwhile = {}) {
    std::memset(memory_.data(), value, slot_bytes.value);
    return go({.direction = Direction::write, .slot = {slot}, .memory = memory_.data(), .token = 5, .tier = tier},
              meanwhile);
  }
  // The tier that it came from.
  std::optional<std::uint32_t> holds(std::uint32_t slot, int value) {
    std::memset(memory_.data(), ~value, slot_bytes.value);
    const StoreCompletion done = go({.slot = {slot}, .memory = memory_.data(), .token = 5});
    EXPECT_EQ(std::count(memory_.data(), memory_.data() + slot_bytes.value, static_cast<std::byte>(value)),
              slot_bytes.value)
        << "slot " << slot;
    return done.error == 0 ? std::optional(done.tier.value) : std::nullopt;
  }
  // The tier that it came from.
  std::uint32_t read(std::uint32_t slot) {
    return go({.slot = {slot}, .memory = memory_.data(), .token = 5}).tier.value;
  }
  std::byte* memory() { return memory_.data(); }
  void idle() {
    StoreCompletion none;
    EXPECT_EQ(store_.wait({&none, 1}, {1'000'000}), 0U);
  }

 private:
  StoreCompletion go(const StoreRequest& request, const std::function<void()>& meanwhile = {}) {
    store_.submit({&request, 1});
    if (meanwhile) meanwhile();
    StoreCompletion done;
    EXPECT_EQ(store_.wait({&done, 1}, long_time), 1U);
    EXPECT_EQ(done.token, 5U);
    return done;
  }
  Store& store_;
  Mapping memory_;
};

TEST(LayeredStore, WritesGoNearUntilWhatWasUsedLongestAgoHasToLeave) {
  const Levels l = levels(8);
  Pen pen(*l.store);
  for (std::uint32_t s = 0; s < 8; ++s) EXPECT_EQ(pen.write(s, static_cast<int>(s)).tier, near_tier);
  pen.idle();
  EXPECT_EQ(l.store->bytes_between_tiers(), slot_bytes.value) << "one is spare: slot 0 has a copy far";
  EXPECT_EQ(pen.holds(0, 0), 1U) << "until its room is needed";
  EXPECT_EQ(pen.holds(1, 1), 1U);
  EXPECT_EQ(pen.write(8, 8).tier, near_tier);
  pen.idle();
  EXPECT_EQ(pen.holds(0, 0), 2U);
  EXPECT_EQ(pen.write(9, 9).tier, near_tier);
  EXPECT_EQ(pen.holds(1, 1), 1U) << "it was read meanwhile";
  EXPECT_EQ(pen.holds(2, 2), 2U);
  for (std::uint32_t s = 3; s < 10; ++s) EXPECT_EQ(pen.holds(s, static_cast<int>(s)), 1U);
}

TEST(LayeredStore, AWriteGoesWhereThePlanSays) {
  const Levels l = levels(8);
  Pen pen(*l.store);
  EXPECT_EQ(pen.write(3, 1, far_tier).tier, far_tier);
  EXPECT_EQ(pen.holds(3, 1), 2U);
  EXPECT_EQ(pen.write(3, 2, near_tier).tier, near_tier);
  EXPECT_EQ(pen.holds(3, 2), 1U);
  EXPECT_EQ(pen.write(3, 3, far_tier).tier, far_tier);
  EXPECT_EQ(pen.holds(3, 3), 2U);
  EXPECT_EQ(l.store->bytes_between_tiers(), 0U);
}

TEST(LayeredStore, APlannedMoveGoesFarWithoutTheCallersMemory) {
  const Levels l = levels(8);
  Pen pen(*l.store);
  pen.write(3, 1);
  pen.write(4, 2);
  l.store->settle({3}, far_tier);
  pen.idle();
  EXPECT_EQ(l.store->bytes_between_tiers(), slot_bytes.value);
  EXPECT_EQ(l.far->writes, 1U);
  for (std::uint32_t s = 5; s < 12; ++s) pen.write(s, static_cast<int>(s));
  EXPECT_EQ(pen.holds(3, 1), 2U) << "its room was the first to be taken";
  EXPECT_EQ(pen.holds(4, 2), 1U);
}

TEST(LayeredStore, AMoveThatIsPlannedWhileItsBytesAreStillWrittenFollowsTheWrite) {
  const Levels l = levels(8);
  Pen pen(*l.store);
  pen.write(3, 1, {}, [&] { l.store->settle({3}, far_tier); });
  pen.idle();
  EXPECT_EQ(l.store->bytes_between_tiers(), slot_bytes.value);
}

TEST(LayeredStore, WhatIsDiscardedTakesNoRoomAndIsNotMoved) {
  const Levels l = levels(8);
  Pen pen(*l.store);
  for (std::uint32_t round = 0; round < 20; ++round) {
    std::vector<SlotIndex> slots;
    for (std::uint32_t s = 0; s < 6; ++s) {
      EXPECT_EQ(pen.write(round + s, static_cast<int>(s)).tier, near_tier);
      slots.push_back({round + s});
    }
    l.store->discard(slots);
  }
  pen.idle();
  EXPECT_EQ(l.store->bytes_between_tiers(), 0U);
  EXPECT_EQ(l.far->writes, 0U);
}

TEST(LayeredStore, ANearStoreThatFailsIsPassedOver) {
  const Levels l = levels(8, {.script = {}, .fail_one_in = 1});
  Pen pen(*l.store);
  for (std::uint32_t s = 0; s < 20; ++s) {
    const StoreCompletion done = pen.write(s, static_cast<int>(s));
    EXPECT_EQ(done.error, 0);
    EXPECT_EQ(done.tier, far_tier);
  }
  for (std::uint32_t s = 0; s < 20; ++s) EXPECT_EQ(pen.holds(s, static_cast<int>(s)), 2U);
}

TEST(LayeredStore, AMoveThatFailsLeavesTheBytesNear) {
  const Levels l = levels(8, {}, {.script = {}, .fail_one_in = 1});
  Pen pen(*l.store);
  for (std::uint32_t s = 0; s < 8; ++s) EXPECT_EQ(pen.write(s, static_cast<int>(s)).error, 0);
  pen.idle();
  EXPECT_EQ(l.far->writes, 1U) << "and it rests before it tries again";
  EXPECT_EQ(pen.write(8, 8).error, EIO) << "no room near, and the far store fails: the caller keeps its bytes";
  for (std::uint32_t s = 0; s < 8; ++s) EXPECT_EQ(pen.holds(s, static_cast<int>(s)), 1U);
}

TEST(LayeredStore, WhatIsLentStaysNearUntilTheLoanEnds) {
  const Levels l = levels(8);
  Pen pen(*l.store);
  for (std::uint32_t s = 0; s < 7; ++s) pen.write(s, static_cast<int>(s));
  ASSERT_TRUE(l.store->is_memory());
  ASSERT_TRUE(l.store->lend({0}));
  std::byte* const there = l.store->memory_of({0});
  EXPECT_EQ(there[5], std::byte{0});
  there[5] = std::byte{77};
  l.store->settle({0}, far_tier);
  for (std::uint32_t s = 7; s < 40; ++s) pen.write(s, static_cast<int>(s));
  pen.idle();
  EXPECT_EQ(l.store->memory_of({0}), there);
  EXPECT_EQ(there[5], std::byte{77});
  l.store->end_loan({0});
  for (std::uint32_t s = 40; s < 50; ++s) pen.write(s, static_cast<int>(s));
  pen.idle();
  EXPECT_FALSE(l.store->lend({0})) << "its turn to leave has come";
  std::byte* const slot = pen.memory();
  EXPECT_EQ(pen.read(0), 2U);
  EXPECT_EQ(slot[5], std::byte{77}) << "what was changed there has gone with it";
  EXPECT_EQ(slot[6], std::byte{0});
}

// A copy far away, from before the loan, is none of the newest bytes.
TEST(LayeredStore, WhatIsChangedInALoanIsMovedAnew) {
  const Levels l = levels(8);
  Pen pen(*l.store);
  pen.write(0, 3);
  l.store->settle({0}, far_tier);
  pen.idle();
  ASSERT_EQ(l.far->writes, 1U);
  ASSERT_TRUE(l.store->lend({0}));
  std::memset(l.store->memory_of({0}), 4, slot_bytes.value);
  l.store->end_loan({0});
  for (std::uint32_t s = 1; s < 30; ++s) pen.write(s, static_cast<int>(s));
  pen.idle();
  EXPECT_EQ(pen.holds(0, 4), 2U);
}

TEST(LayeredStore, LendsNothingThatIsFarOrMoves) {
  const StoreFault slow_read{.kind = StoreFault::Kind::delay, .direction = Direction::read, .delay = {100'000'000}};
  const Levels l = levels(8, {.script = {slow_read}});
  Pen pen(*l.store);
  pen.write(3, 1, far_tier);
  EXPECT_FALSE(l.store->lend({3}));
  EXPECT_FALSE(l.store->lend({4})) << "nothing was written there";
  pen.write(5, 2);
  l.store->settle({5}, far_tier);
  EXPECT_FALSE(l.store->lend({5})) << "it is read, to go far";
  EXPECT_EQ(pen.holds(5, 2), 1U);
}

// Random transfers, moves, discards, shrinks, loans and failures; every slot that was written holds its last bytes.
class RandomUse {
 public:
  explicit RandomUse(std::uint64_t seed)
      : random_(seed),
        faults_(below(2) == 0),
        levels_(levels(2 + below(7), options(), options())),
        memory_(Mapping::reserve({slot_bytes.value * depth}, {4096}).value()) {
    for (std::uint32_t f = 0; f < depth; ++f) free_.push_back(f);
  }

  int loans() const noexcept { return loans_; }
  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) step();
    while (!lent_.empty()) end_loan(lent_.begin()->first);
    while (!in_flight_.empty()) finish();
    read_well_ = {};
    for (std::uint32_t s = 0; s < slots && !::testing::Test::HasFailure(); ++s) {
      for (int tries = 0; versions_[s] && !read_well_[s]; ++tries) {
        ASSERT_LT(tries, 200) << "slot " << s << " cannot be read";
        start(Direction::read, s);
        while (!in_flight_.empty()) finish();
      }
    }
  }

 private:
  static constexpr std::uint32_t slots = 24;
  struct Flight {
    Direction direction{};
    std::uint32_t slot = 0;
    std::uint64_t version = 0;
  };
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  FaultyStoreOptions options() {
    return {.script = {},
            .seed = random_(),
            .fail_one_in = faults_ ? 3 + below(8) : 0,
            .delay_one_in = below(3) == 0 ? 2 + below(4) : 0};
  }
  bool busy(std::uint32_t slot) const {
    for (const auto& [frame, flight] : in_flight_)
      if (flight.slot == slot) return true;
    return lent_.contains(slot);
  }

  void step() {
    const std::uint32_t slot = below(slots);
    switch (below(14)) {
      case 0:
        if (!busy(slot)) {
          const SlotIndex dead{slot};
          levels_.store->discard({&dead, 1});
          versions_[slot].reset();
        }
        return;
      case 1:
        return levels_.store->settle({slot}, below(8) == 0 ? near_tier : far_tier);
      case 2:
        return below(10) == 0 ? shrink(1 + below(slots)) : void();
      case 3:
        return finish();
      case 4:
        if (versions_[slot] && !busy(slot)) lend(slot);
        return;
      case 5:
        if (lent_.contains(slot)) end_loan(slot);
        return;
      default:
        if (busy(slot)) return;
        while (free_.empty()) finish();
        start(versions_[slot] && below(2) == 0 ? Direction::read : Direction::write, slot);
    }
  }
  std::uint64_t wrong_words(const std::uint64_t* words, std::uint64_t version) {
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < slot_bytes.value / 8; ++i) wrong += words[i] != version * 1'000'003 + i;
    return wrong;
  }
  void lend(std::uint32_t slot) {
    if (!levels_.store->lend({slot})) return;
    ++loans_;
    auto* const words = reinterpret_cast<std::uint64_t*>(levels_.store->memory_of({slot}));
    EXPECT_EQ(wrong_words(words, *versions_[slot]), 0U) << "slot " << slot << " as it was lent";
    lent_[slot] = words;
    if (below(2) == 0) return;
    versions_[slot] = ++version_;
    for (std::uint64_t i = 0; i < slot_bytes.value / 8; ++i) words[i] = version_ * 1'000'003 + i;
  }
  void end_loan(std::uint32_t slot) {
    EXPECT_EQ(wrong_words(lent_[slot], *versions_[slot]), 0U) << "slot " << slot << " as its loan ended";
    lent_.erase(slot);
    levels_.store->end_loan({slot});
  }
  void shrink(std::uint32_t to) {
    while (!in_flight_.empty()) finish();
    while (!lent_.empty() && lent_.rbegin()->first >= to) end_loan(lent_.rbegin()->first);
    levels_.store->shrink(to);
    for (std::uint32_t s = to; s < slots; ++s) versions_[s].reset();
    ASSERT_TRUE(levels_.store->reserve(slots));
  }
  std::uint64_t* words(std::uint32_t frame) {
    return reinterpret_cast<std::uint64_t*>(memory_.data() + frame * slot_bytes.value);
  }
  void start(Direction direction, std::uint32_t slot) {
    const std::uint32_t frame = free_.back();
    free_.pop_back();
    const bool write = direction == Direction::write;
    if (write) versions_[slot] = ++version_;
    const std::uint64_t pattern = write ? version_ : ~std::uint64_t{0};
    for (std::uint64_t i = 0; i < slot_bytes.value / 8; ++i) words(frame)[i] = pattern * 1'000'003 + i;
    in_flight_[frame] = {direction, slot, *versions_[slot]};
    const StoreRequest request{.direction = direction,
                               .slot = {slot},
                               .memory = memory_.data() + frame * slot_bytes.value,
                               .token = frame,
                               .tier = {below(3)}};
    levels_.store->submit({&request, 1});
  }
  void finish() {
    std::array<StoreCompletion, 2> done;
    const std::size_t count = levels_.store->wait(done, {below(2) == 0 ? 0 : 3'000'000});
    for (std::size_t i = 0; i < count; ++i) check(done[i]);
  }
  void check(const StoreCompletion& done) {
    const auto frame = static_cast<std::uint32_t>(done.token);
    ASSERT_TRUE(in_flight_.contains(frame)) << "completed twice";
    const Flight flight = in_flight_[frame];
    in_flight_.erase(frame);
    free_.push_back(frame);
    const bool read = flight.direction == Direction::read;
    if (done.error != 0) {
      EXPECT_TRUE(faults_);
      if (!read) versions_[flight.slot].reset();  // the caller still has the bytes
      return;
    }
    read_well_[flight.slot] = read;
    if (!read) return;
    EXPECT_EQ(wrong_words(words(frame), flight.version), 0U)
        << "slot " << flight.slot << " from tier " << done.tier.value;
  }

  std::mt19937_64 random_;
  const bool faults_;
  Levels levels_;
  Mapping memory_;
  std::vector<std::uint32_t> free_;
  std::map<std::uint32_t, Flight> in_flight_;     // by frame
  std::map<std::uint32_t, std::uint64_t*> lent_;  // by slot
  int loans_ = 0;
  std::array<std::optional<std::uint64_t>, slots> versions_;
  std::array<bool, slots> read_well_{};
  std::uint64_t version_ = 0;
};

TEST(LayeredStore, LosesNoByteUnderRandomUseAndFailures) {
  int loans = 0;
  for (std::uint64_t seed = 1; seed <= 150 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomUse use(seed);
    use.run(1200);
    loans += use.loans();
  }
  EXPECT_GT(loans, 100) << "a slot in transfer or far is not lent, and that is a matter of time";
}

}  // namespace
}  // namespace vedette::layered_store_test
