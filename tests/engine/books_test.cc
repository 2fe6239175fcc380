// Books alone: random events from printed seeds, each legal where it is called, and what always holds after each. The
// expected figures are counted anew from the chunks, so a counter that drifts is seen at once.
#include "engine/books.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace vedette::books_test {
namespace {

constexpr std::uint32_t chunk_count = 12, frame_count = 6;

class Driver {
 public:
  explicit Driver(std::uint64_t seed) : random_(seed), books_(chunk_count, frame_count) {}

  void step() {
    const ChunkIndex c{below(chunk_count)};
    switch (below(4)) {
      case 0:
        return tensor_event(c);
      case 1:
        return op_event(c);
      case 2:
        return memory_event(c);
      default:
        return store_event(c);
    }
  }

  void check() const {
    check_frames();
    check_counts();
    check_idle_list();
    check_slots();
    check_victims();
  }

 private:
  std::uint32_t below(std::uint32_t n) { return std::uniform_int_distribution<std::uint32_t>(0, n - 1)(random_); }

  void tensor_event(ChunkIndex c) {
    const Books::Chunk& chunk = books_[c];
    switch (below(7)) {
      case 0:
      case 1:
        if (chunk.live < 3) birth(c);
        return;
      case 2:
        if (chunk.live > 0) death(c);
        return;
      case 3:
        if (books_.held() + 2 < frame_count && chunk.live > 0) books_.hold(c);
        return;
      case 4:
        if (chunk.holds > 0) release(c);
        return;
      case 5:
        books_.set_next_use(c, below(4) == 0 ? never : below(50));
        if (below(3) == 0 && chunk.live > 0) books_.fault(c);
        return;
      default:
        if (chunk.live > 0 && below(2) == 0) books_.want(c);
    }
  }

  void op_event(ChunkIndex c) {
    switch (below(5)) {
      case 0:
        if (!books_.in_op()) books_.begin_op(++tick_);
        return;
      case 1:
      case 2:
        if (books_.in_op()) pin(c);
        return;
      case 3:
        if (books_.in_op()) end_op();
        return;
      default:
        if (books_.in_op() && !books_.op_fits()) books_.go_paged();
    }
  }

  void memory_event(ChunkIndex c) {
    const Books::Chunk& chunk = books_[c];
    const bool here = chunk.state == ChunkState::resident || chunk.state == ChunkState::idle;
    switch (below(7)) {
      case 0:
        if (chunk.state == ChunkState::unbacked) back(c);
        return;
      case 5:
        if (books_.may_leave(c)) books_.drop(c);
        return;
      case 6:
        return recompute(c);
      case 1:
        if (chunk.busy) {
          books_.clear_busy(c);
        } else if (here) {
          books_.set_busy(c);
        }
        return;
      case 2:
        if (chunk.state == ChunkState::resident && books_.may_leave(c)) books_.hidden(c);
        return;
      case 3:
        if (chunk.state == ChunkState::resident && books_.operand(chunk) && chunk.holds == 0 && !chunk.busy)
          books_.covered(c);
        return;
      default:
        if (parked(chunk.state)) books_.shown(c);
    }
  }

  void store_event(ChunkIndex c) {
    switch (below(6)) {
      case 0:
      case 1:
        return fetch(c);
      case 2:
        return evict();
      case 3:
      case 4:
        return complete();
      default:
        if (below(4) == 0) books_.forgive_writes();
    }
  }

  void birth(ChunkIndex c) {
    const ChunkState before = books_[c].state;
    books_.birth(c);
    if (before == ChunkState::empty) {
      EXPECT_EQ(books_[c].state, ChunkState::unbacked);
    }
    if (before == ChunkState::idle) {
      EXPECT_EQ(books_[c].state, ChunkState::resident);
    }
    if (books_.in_op()) pin(c);
  }
  void death(ChunkIndex c) {
    const bool last = books_[c].live == 1;
    EXPECT_EQ(books_.death(c), last);
    if (last) {
      EXPECT_TRUE(books_[c].state == ChunkState::empty || books_[c].state == ChunkState::idle);
    }
  }
  void release(ChunkIndex c) {
    const bool last = books_[c].holds == 1;
    EXPECT_EQ(books_.release(c), last);
  }
  void pin(ChunkIndex c) {
    if (books_[c].live == 0) return;
    if (parked(books_[c].state)) books_.shown(c);
    books_.pin(c);
  }
  void end_op() {
    for (ChunkIndex c; c.value < chunk_count; ++c.value)
      if (books_[c].state == ChunkState::covered) books_.shown(c);
    const std::uint32_t chunks = books_.op_chunks(), largest = books_.largest_op_chunks();
    books_.end_op();
    EXPECT_EQ(books_.largest_op_chunks(), std::max(chunks, largest));
  }
  void back(ChunkIndex c) {
    if (const auto frame = books_.take_free()) return books_.back(c, *frame);
    if (const auto from = books_.longest_idle()) books_.back(c, books_.take_from_idle(*from));
  }
  void recompute(ChunkIndex c) {  // in whatever chunk lives: its own bytes are dropped then
    if (books_[c].state != ChunkState::dropped) return;
    for (ChunkIndex from; from.value < chunk_count; ++from.value) {
      if (books_[from].state != ChunkState::resident || books_[from].busy || books_[from].slot_busy) continue;
      books_.adopt(from, c);
      EXPECT_EQ(books_[from].state, ChunkState::dropped);
      return;
    }
  }
  void fetch(ChunkIndex c) {
    if (books_[c].state != ChunkState::away || books_[c].slot_busy) return;
    const auto frame = books_.take_free();
    if (!frame) return;
    books_.start_fetch(c, *frame);
    io_[frame->value] = c;
  }
  void evict() {
    const auto leaving = books_.victims(1);
    if (leaving.empty()) return;
    const ChunkIndex c = leaving[0];
    if (books_[c].state == ChunkState::arrived) return books_.evicted(c);
    const FrameIndex frame = books_[c].frame;
    books_.start_eviction(c);
    io_[frame.value] = c;
  }
  void complete() {
    if (io_.empty()) return;
    auto at = io_.begin();
    std::advance(at, below(static_cast<std::uint32_t>(io_.size())));
    const auto [frame, c] = *at;
    io_.erase(at);
    const bool dead = books_[c].state != ChunkState::fetching && books_[c].state != ChunkState::evicting;
    const bool reads = books_[c].state == ChunkState::fetching;
    const Books::Ended ended = books_.end_io({frame});
    EXPECT_EQ(ended.chunk, c);
    EXPECT_FALSE(books_[c].slot_busy);
    EXPECT_EQ(ended.orphan, dead);
    if (ended.orphan) return;
    EXPECT_EQ(ended.read, reads);
    const bool failed = below(4) == 0;
    if (ended.read && failed) {
      EXPECT_GE(books_.fetch_failed(c), 1);
    } else if (ended.read) {
      books_.fetched(c);
    } else if (failed || books_[c].wanted) {
      books_.stays(c, failed);
      EXPECT_EQ(books_.may_leave(c) && failed, false) << "a chunk whose write failed is no victim";
    } else {
      books_.evicted(c);
    }
  }

  // Each frame belongs to one chunk, or to an I/O, or is free; and none to two.
  void check_frames() const {
    std::map<std::uint32_t, ChunkIndex> owners;
    std::uint32_t owned = 0, orphans = 0;
    for (ChunkIndex c; c.value < chunk_count; ++c.value) {
      const ChunkState state = books_[c].state;
      if (state == ChunkState::empty || state == ChunkState::unbacked || state == ChunkState::away) continue;
      if (state == ChunkState::dropped) continue;
      ++owned;
      EXPECT_TRUE(owners.emplace(books_[c].frame.value, c).second) << "a frame of two chunks";
      EXPECT_EQ(books_.owner(books_[c].frame), c);
    }
    for (const auto& [frame, c] : io_) {
      const ChunkState state = books_[c].state;
      const bool moves = state == ChunkState::fetching || state == ChunkState::evicting;
      if (moves && books_[c].frame.value == frame) continue;
      ++orphans;
      EXPECT_EQ(books_.owner({frame}), std::nullopt);
      EXPECT_EQ(owners.count(frame), 0u) << "the frame of an I/O was given to a chunk";
    }
    Books copy = books_;
    std::uint32_t free = 0;
    while (const auto frame = copy.take_free()) {
      ++free;
      EXPECT_EQ(owners.count(frame->value), 0u) << "a free frame of a chunk";
      EXPECT_EQ(io_.count(frame->value), 0u) << "a free frame in I/O";
      EXPECT_EQ(books_.owner(*frame), std::nullopt);
      owners.emplace(frame->value, ChunkIndex{chunk_count});
    }
    EXPECT_EQ(owned + orphans + free, frame_count);
  }

  void check_counts() const {
    std::uint32_t evicting = 0, reads = 0, held = 0, pinned = 0;
    for (ChunkIndex c; c.value < chunk_count; ++c.value) {
      const Books::Chunk& chunk = books_[c];
      evicting += chunk.state == ChunkState::evicting ? 1 : 0;
      held += chunk.holds > 0 ? 1 : 0;
      pinned += books_.operand(chunk) && chunk.holds == 0 ? 1 : 0;
      EXPECT_EQ(chunk.live == 0, chunk.state == ChunkState::empty || chunk.state == ChunkState::idle);
      EXPECT_EQ(chunk.slot_busy, std::any_of(io_.begin(), io_.end(), [&](const auto& io) { return io.second == c; }));
      if (chunk.state == ChunkState::fetching) ++reads;
    }
    EXPECT_EQ(books_.evicting(), evicting);
    EXPECT_EQ(books_.held(), held);
    EXPECT_EQ(books_.in_flight(), io_.size());
    EXPECT_GE(books_.reads_in_flight(), reads);
    EXPECT_GE(books_.writes_in_flight(), evicting);
    EXPECT_EQ(books_.op_fits(), pinned <= frame_count - held);
    EXPECT_GE(books_.op_chunks(), pinned + held);
  }

  // A slot belongs to one chunk, which lives or has an I/O in flight there.
  void check_slots() const {
    std::set<std::uint32_t> used;
    std::uint32_t living = 0;
    for (ChunkIndex c; c.value < chunk_count; ++c.value) {
      const Books::Chunk& chunk = books_[c];
      living += chunk.live > 0 ? 1 : 0;
      const bool needs_one = chunk.state == ChunkState::away || chunk.slot_busy;
      EXPECT_TRUE(chunk.slot.has_value() || !needs_one);
      if (!chunk.slot) continue;
      EXPECT_TRUE(used.insert(chunk.slot->value).second) << "a slot of two chunks";
      EXPECT_TRUE(chunk.live > 0 || chunk.slot_busy) << "a dead chunk keeps its slot";
    }
    EXPECT_EQ(books_.slots().used(), used.size());
    EXPECT_EQ(books_.slots().limit(), used.empty() ? 0 : *used.rbegin() + 1);
    EXPECT_EQ(books_.live_chunks(), living);
  }

  void check_idle_list() const {
    std::set<std::uint32_t> idle;
    for (ChunkIndex c; c.value < chunk_count; ++c.value)
      if (books_[c].state == ChunkState::idle && !books_[c].busy) idle.insert(c.value);
    Books copy = books_;
    std::uint32_t free = 0;
    while (copy.take_free()) ++free;
    EXPECT_EQ(books_.available(), free + idle.size());
    while (const auto c = copy.longest_idle()) {
      EXPECT_EQ(idle.erase(c->value), 1u);
      copy.take_from_idle(*c);
    }
    EXPECT_TRUE(idle.empty());
  }

  void check_victims() const {
    const std::vector<ChunkIndex> all = books_.victims(chunk_count);
    EXPECT_EQ(books_.has_victim(), !all.empty());
    std::set<std::uint32_t> leaving;
    for (const ChunkIndex c : all) {
      leaving.insert(c.value);
      const Books::Chunk& chunk = books_[c];
      EXPECT_TRUE(chunk.state == ChunkState::resident || parked(chunk.state));
      EXPECT_TRUE(chunk.live > 0 && chunk.holds == 0 && !chunk.busy && !chunk.slot_busy && !chunk.write_failed);
      EXPECT_TRUE(books_.paged() || !books_.operand(chunk)) << "an operand of the running op";
    }
    for (ChunkIndex c; c.value < chunk_count; ++c.value)
      EXPECT_EQ(leaving.count(c.value) == 1, books_.may_leave(c)) << "chunk " << c.value;
    const std::vector<ChunkIndex> one = books_.victims(1);
    if (!all.empty()) {
      EXPECT_EQ(one, std::vector<ChunkIndex>{all[0]});
    }
  }

  std::mt19937_64 random_;
  Books books_;
  Ticks tick_ = 0;
  std::map<std::uint32_t, ChunkIndex> io_;  // by frame
};

TEST(Books, HoldThroughRandomEvents) {
  for (std::uint64_t seed = 1; seed <= 200 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Driver driver(seed);
    for (int i = 0; i < 1500 && !::testing::Test::HasFailure(); ++i) {
      driver.step();
      driver.check();
    }
  }
}

// Three chunks are resident, of different next uses.
Books three_resident() {
  Books books(4, 3);
  for (ChunkIndex c; c.value < 3; ++c.value) {
    books.birth(c);
    books.back(c, *books.take_free());
    books.set_next_use(c, 10 + c.value);
  }
  return books;
}

std::vector<ChunkIndex> chunks(std::vector<std::uint32_t> values) {
  std::vector<ChunkIndex> made;
  for (const std::uint32_t value : values) made.push_back({value});
  return made;
}

TEST(Books, TheFurthestNextUseLeavesFirst) {
  Books books = three_resident();
  EXPECT_EQ(books.victims(3), chunks({2, 1, 0}));
  books.set_next_use({0}, never);
  EXPECT_EQ(books.victims(2), chunks({0, 2}));
}

TEST(Books, OfEqualNextUsesTheLongestUnusedLeavesFirst) {
  Books books = three_resident();
  books.forget_next_uses();
  for (const std::uint32_t used : {2u, 0u, 1u}) {
    books.begin_op(5 + (used == 2 ? 0 : used + 1));
    books.pin({used});
    books.end_op();
  }
  EXPECT_EQ(books.victims(3), chunks({2, 0, 1}));
}

TEST(Books, WhatHasArrivedLeavesLast) {
  Books books = three_resident();
  const FrameIndex frame = books[{2}].frame;
  books.start_eviction({2});
  books.end_io(frame);
  books.evicted({2});
  books.start_fetch({2}, *books.take_free());
  books.end_io(frame);
  books.fetched({2});
  EXPECT_EQ(books.victims(3), chunks({1, 0, 2}));  // though its next use is the furthest
}

TEST(Books, FaultsMakeFirstInFirstOut) {
  Books books = three_resident();
  for (const std::uint32_t c : {2u, 1u, 0u}) books.fault({c});
  EXPECT_EQ(books.victims(3), chunks({0, 1, 2}));  // by their arrival, not by their next use
}

TEST(Books, AnOperandWhoseHoldEndsInItsOpStaysAnOperand) {
  Books books = three_resident();
  books.begin_op(1);
  books.pin({0});
  books.hold({0});
  EXPECT_EQ(books.op_chunks(), 2u);  // at most: one pinned before it was held, and one held
  books.release({0});
  EXPECT_FALSE(books.may_leave({0}));
  books.end_op();
  EXPECT_TRUE(books.may_leave({0}));
}

TEST(Books, AnOperandThatWasHeldBeforeItsOpStaysAnOperand) {
  Books books = three_resident();
  books.hold({0});
  books.begin_op(1);
  books.pin({0});
  books.release({0});
  EXPECT_FALSE(books.may_leave({0}));
  EXPECT_EQ(books.op_chunks(), 1u);
}

TEST(Books, AChunkThatIsHeldStaysThoughItsPlanEvictsIt) {
  Books books = three_resident();
  books.hold({1});
  books.plan_to_leave({1});
  EXPECT_FALSE(books.may_leave({1}));
  EXPECT_EQ(books.victims(3), chunks({2, 0}));
}

TEST(Books, ASlotStaysBusyUntilItsOwnTransferEnds) {
  Books books = three_resident();
  const FrameIndex frame = books[{2}].frame;
  books.start_eviction({2});
  books.death({2});  // while its write is in flight
  EXPECT_TRUE(books[{2}].slot_busy);
  EXPECT_EQ(books.available(), 0u) << "the frame is still read by the write";
  books.birth({2});
  EXPECT_EQ(books[{2}].state, ChunkState::unbacked);
  books.death({1});
  books.back({2}, books.take_from_idle({1}));
  EXPECT_FALSE(books.may_leave({2})) << "two writes of one slot";
  EXPECT_TRUE(books.end_io(frame).orphan);
  EXPECT_TRUE(books.may_leave({2}));
  EXPECT_EQ(books.available(), 1u);
}

TEST(Books, EverNewChunksTakeTheSlotsOfTheDead) {
  Books books(1000, 2);
  for (ChunkIndex c; c.value < 1000; ++c.value) {
    books.birth(c);
    if (const auto frame = books.take_free()) {
      books.back(c, *frame);
    } else {
      books.back(c, books.take_from_idle(*books.longest_idle()));
    }
    const FrameIndex frame = books[c].frame;
    books.start_eviction(c);
    books.end_io(frame);
    books.evicted(c);
    if (c.value >= 3) books.death({c.value - 3});
    EXPECT_LE(books.slots().limit(), 4u);
  }
}

TEST(Slots, GiveTheLowestAndKnowTheHighest) {
  Slots slots;
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(slots.take(), SlotIndex{i});
  EXPECT_FALSE(slots.sparse());
  for (std::uint32_t i = 0; i < 99; ++i) slots.give_back({i});
  EXPECT_EQ(slots.used(), 1u);
  EXPECT_EQ(slots.limit(), 100u);
  EXPECT_TRUE(slots.sparse());
  EXPECT_EQ(slots.take(), SlotIndex{0});
  slots.give_back({99});
  EXPECT_EQ(slots.limit(), 1u);
  EXPECT_EQ(slots.take(), SlotIndex{1});
}

TEST(Books, AReadThatFailedGivesItsFrameBackOnce) {
  Books books = three_resident();
  const FrameIndex frame = books[{2}].frame;
  books.start_eviction({2});
  books.end_io(frame);
  books.evicted({2});
  for (std::uint8_t round = 1; round <= 3; ++round) {
    books.start_fetch({2}, *books.take_free());
    books.end_io(frame);
    EXPECT_EQ(books.fetch_failed({2}), round);
    EXPECT_EQ(books.available(), 1u);
    EXPECT_EQ(books.owner(frame), std::nullopt);
  }
  books.start_fetch({2}, *books.take_free());
  books.end_io(frame);
  books.fetched({2});
  EXPECT_EQ(books[{2}].failed_reads, 0);
}

// A chunk that was fetched to be read, and is shown.
void bring_unchanged(Books& books, ChunkIndex c) {
  books.birth(c);
  books.back(c, *books.take_free());
  books.start_eviction(c);
  books.end_io(books[c].frame);
  books.evicted(c);
  books.expect_unchanged(c, true);
  books.start_fetch(c, *books.take_free());
  books.end_io(books[c].frame);
  books.fetched(c);
  books.shown(c);
}

TEST(Books, AChunkThatIsWantedDuringItsWriteIsNoLongerPlannedToLeave) {
  Books books = three_resident();
  books.plan_to_leave({1});
  books.start_eviction({1});
  books.end_io(books[{1}].frame);
  books.stays({1}, false);
  EXPECT_FALSE(books[{1}].leaving);
}

TEST(Books, ReadsThatFailedCountForTheTensorsThatLivedThere) {
  Books books(chunk_count, frame_count);
  for (int i = 0; i < 2; ++i) {
    books.birth({0});
    if (books[{0}].state == ChunkState::unbacked) books.back({0}, *books.take_free());
    const FrameIndex frame = books[{0}].frame;
    books.start_eviction({0});
    books.end_io(frame);
    books.evicted({0});
    books.start_fetch({0}, *books.take_free());
    books.end_io(books[{0}].frame);
    EXPECT_EQ(books.fetch_failed({0}), 1u) << "of what lives there now";
    books.death({0});
  }
}

TEST(Books, ABirthOrAWriteEndsThatAChunkIsUnchanged) {
  Books books(chunk_count, frame_count);
  for (const ChunkIndex c : {ChunkIndex{0}, ChunkIndex{1}, ChunkIndex{2}}) {
    bring_unchanged(books, c);
    EXPECT_TRUE(books[c].unchanged && books[c].slot);
  }
  books.birth({0});
  books.may_change({1});
  EXPECT_FALSE(books[{0}].unchanged || books[{0}].slot) << "another tensor is written there";
  EXPECT_FALSE(books[{1}].unchanged || books[{1}].slot);
  EXPECT_TRUE(books[{2}].unchanged && books[{2}].slot);
}

TEST(Books, RoomOfWhatLeavesForNothingIsCheaper) {
  Books books(chunk_count, frame_count);
  bring_unchanged(books, {0});
  for (const ChunkIndex c : {ChunkIndex{1}, ChunkIndex{2}, ChunkIndex{3}}) {
    books.birth(c);
    books.back(c, *books.take_free());
  }
  books.begin_op(1);
  books.birth({4});
  books.back({4}, *books.take_free());
  books.expect_use({0}, 11);
  books.expect_use({1}, 16);
  books.expect_use({2}, 26);
  books.expect_use({3}, 40, 14);  // dead before: written, and not read again
  const Books::Calendar step = {.ends = 100, .next_begins = 1000};
  EXPECT_EQ(books.victims(5, step), chunks({3, 2, 0, 1, 4})) << "of what was just born nothing is known";
  EXPECT_EQ(books.victims_unused_until(12, step, 5), chunks({3, 2, 1}));
}

}  // namespace
}  // namespace vedette::books_test
