// The wrappers do what they say: the throttled store keeps its bandwidth and latency, the faulty one breaks exactly its
// script, the hashed one spares exactly the writes that would change nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "support/faulty_store.h"
#include "tier/store.h"

namespace vedette::wrapped_store_test {
namespace {

using Direction = StoreRequest::Direction;
using Clock = std::chrono::steady_clock;
using Kind = StoreFault::Kind;

constexpr Bytes slot = 64_KiB;
constexpr std::uint32_t depth = 8;
constexpr Nanoseconds long_time{20'000'000'000};

struct Buffer {
  std::unique_ptr<std::byte, void (*)(void*)> owner{static_cast<std::byte*>(std::aligned_alloc(4096, slot.value)),
                                                    std::free};
  std::byte* data() const { return owner.get(); }
  void fill(int value) { std::memset(data(), value, slot.value); }
  std::size_t count(int value) const {
    return static_cast<std::size_t>(std::count(data(), data() + slot.value, static_cast<std::byte>(value)));
  }
};

std::unique_ptr<Store> host() {
  auto store = open_host_store(slot, depth).value();
  store->reserve(64).value();
  return store;
}

StoreCompletion completed(Store& store, Direction direction, std::uint32_t index, const Buffer& buffer,
                          bool remember = false) {
  const StoreRequest request{
      .direction = direction, .slot = {index}, .memory = buffer.data(), .token = 7, .remember = remember};
  store.submit({&request, 1});
  StoreCompletion completion;
  EXPECT_EQ(store.wait({&completion, 1}, long_time), 1U);
  EXPECT_EQ(completion.token, 7U);
  return completion;
}

int transfer(Store& store, Direction direction, std::uint32_t index, const Buffer& buffer) {
  return completed(store, direction, index, buffer).error;
}

double seconds_for(Store& store, Direction direction, std::uint32_t count) {
  Buffer buffer;
  buffer.fill(1);
  const auto begin = Clock::now();
  std::uint32_t submitted = 0, completed = 0;
  while (completed < count) {
    while (submitted < count && submitted - completed < depth) {
      const StoreRequest request{.direction = direction, .slot = {submitted % 64}, .memory = buffer.data()};
      store.submit({&request, 1});
      ++submitted;
    }
    StoreCompletion done[depth];
    completed += static_cast<std::uint32_t>(store.wait(done, long_time));
  }
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

TEST(ThrottledStore, MovesBytesAtItsBandwidthEachWayApart) {
  auto store = throttled(host(), {.read_bytes_per_s = 64 << 20, .write_bytes_per_s = 32 << 20, .latency = {}});
  const double read_s = seconds_for(*store, Direction::read, 64), write_s = seconds_for(*store, Direction::write, 64);
  EXPECT_GE(read_s, 64.0 / 1024) << "64 slots of 64 KiB at 64 MiB/s";
  EXPECT_GE(write_s, 64.0 / 512) << "64 slots of 64 KiB at 32 MiB/s";
  EXPECT_LT(read_s, 2.0);
  EXPECT_LT(write_s, 2.0);
}

TEST(ThrottledStore, OfOneBusMovesBothDirectionsInTurn) {
  constexpr std::uint64_t slots_a_second = 400;
  auto store = throttled(host(), {.read_bytes_per_s = slots_a_second * slot.value,
                                  .write_bytes_per_s = slots_a_second * slot.value,
                                  .latency = {},
                                  .one_bus = true});
  Buffer buffer;
  buffer.fill(1);
  const auto begin = Clock::now();
  for (std::uint32_t i = 0; i < depth; ++i) {
    const StoreRequest request{
        .direction = i % 2 == 0 ? Direction::read : Direction::write, .slot = {i}, .memory = buffer.data()};
    store->submit({&request, 1});
  }
  StoreCompletion done[depth];
  for (std::size_t completed = 0; completed < depth;) completed += store->wait(done, long_time);
  EXPECT_GE(std::chrono::duration<double>(Clock::now() - begin).count(), double{depth} / slots_a_second);
  EXPECT_NE(store->mechanism().find("throttled to one bus, read 26 MB/s"), std::string::npos) << store->mechanism();
}

TEST(ThrottledStore, AddsItsLatencyToEveryRequestButOnlyOnceToAQueueOfThem) {
  auto store = throttled(host(), {.latency = {20'000'000}});
  EXPECT_GE(seconds_for(*store, Direction::read, 1), 0.020);
  const double together_s = seconds_for(*store, Direction::read, depth);
  EXPECT_GE(together_s, 0.020);
  EXPECT_LT(together_s, depth * 0.020) << "requests in flight share the wait";
}

TEST(ThrottledStore, HasWhatItMaySaveUpAtOnceAndThenItsBandwidth) {
  constexpr std::uint64_t slots_a_second = 100;
  auto store = throttled(host(), {.write_bytes_per_s = slots_a_second * slot.value,
                                  .latency = {},
                                  .saved_up = {16 * 1'000'000'000LL / slots_a_second}});
  EXPECT_LT(seconds_for(*store, Direction::write, 16), 0.1) << "16 slots were saved up";
  EXPECT_GE(seconds_for(*store, Direction::write, 16), 0.15) << "none is left, and what the first took is at most one";
  EXPECT_LT(seconds_for(*store, Direction::read, 64), 0.1) << "reads have no bound";
}

TEST(ThrottledStore, SavesNothingUpWhileIdle) {
  auto store = throttled(host(), {.read_bytes_per_s = 6'553'600, .latency = {}});  // 10 ms a slot
  StoreCompletion none;
  EXPECT_EQ(store->wait({&none, 1}, {30'000'000}), 0U);
  EXPECT_GE(seconds_for(*store, Direction::read, 3), 0.030);
}

TEST(ThrottledStore, SaysWhatItDoes) {
  auto store = throttled(host(), {.read_bytes_per_s = 800'000'000, .latency = {100'000}});
  EXPECT_EQ(store->mechanism(), "memory, copied at once, throttled to read 800 MB/s, write unlimited, latency 100 us");
}

class HashedStore : public ::testing::TestWithParam<Hashing> {
 protected:
  // The store, over one whose requests are counted.
  std::unique_ptr<Store> store_over(FaultyStoreOptions faults = {}) {
    auto below = std::make_unique<FaultyStore>(host(), faults);
    below_ = below.get();
    return hashed(std::move(below), GetParam());
  }
  FaultyStore* below_ = nullptr;
};

TEST_P(HashedStore, SparesTheWriteOfWhatWasRememberedUntilItChanges) {
  const auto store = store_over();
  Buffer buffer;
  buffer.fill(1);
  EXPECT_FALSE(completed(*store, Direction::write, 3, buffer).spared);
  EXPECT_FALSE(completed(*store, Direction::write, 3, buffer).spared) << "nobody asked for it to be remembered";
  completed(*store, Direction::read, 3, buffer, true);
  EXPECT_EQ(below_->requests(), 3U);
  EXPECT_TRUE(completed(*store, Direction::write, 3, buffer).spared);
  EXPECT_TRUE(completed(*store, Direction::write, 3, buffer).spared);
  EXPECT_EQ(below_->requests(), 3U);
  buffer.data()[slot.value - 1] ^= std::byte{1};
  EXPECT_FALSE(completed(*store, Direction::write, 3, buffer).spared);
  EXPECT_FALSE(completed(*store, Direction::write, 3, buffer).spared) << "what is written is not remembered";
  Buffer back;
  EXPECT_EQ(transfer(*store, Direction::read, 3, back), 0);
  EXPECT_EQ(std::memcmp(back.data(), buffer.data(), slot.value), 0);
}

TEST_P(HashedStore, SparesOnlyWhatItsLastReadAskedFor) {
  auto store = hashed(host(), GetParam());
  Buffer buffer;
  buffer.fill(1);
  EXPECT_FALSE(completed(*store, Direction::write, 3, buffer).spared);
  for (int time = 0; time < 2; ++time) {
    completed(*store, Direction::read, 3, buffer, true);
    EXPECT_TRUE(completed(*store, Direction::write, 3, buffer).spared);
  }
  completed(*store, Direction::read, 3, buffer, false);
  EXPECT_FALSE(completed(*store, Direction::write, 3, buffer).spared)
      << "what is read to be written is not hashed for nothing";
  buffer.fill(2);
  EXPECT_FALSE(completed(*store, Direction::write, 3, buffer).spared);
  buffer.fill(0);
  completed(*store, Direction::read, 3, buffer, true);
  EXPECT_EQ(buffer.count(2), slot.value);
  EXPECT_TRUE(completed(*store, Direction::write, 3, buffer).spared);
}

TEST_P(HashedStore, RemembersNothingOfAReadOrAWriteThatFailed) {
  const auto store = store_over(
      {.script = {{.kind = Kind::fail, .nth = 1, .error = EIO}, {.kind = Kind::fail, .nth = 3, .error = ENOSPC}}});
  Buffer buffer;
  buffer.fill(1);
  EXPECT_EQ(transfer(*store, Direction::write, 0, buffer), 0);
  EXPECT_EQ(completed(*store, Direction::read, 0, buffer, true).error, EIO);
  EXPECT_FALSE(completed(*store, Direction::write, 0, buffer).spared);
  EXPECT_EQ(transfer(*store, Direction::write, 0, buffer), ENOSPC);
  completed(*store, Direction::read, 0, buffer, true);
  buffer.fill(2);
  EXPECT_FALSE(completed(*store, Direction::write, 0, buffer).spared);
}

// The slot has half of other bytes by then: a write of what it held before must not be spared.
TEST_P(HashedStore, ForgetsWhatLayInASlotWhoseWriteFailedHalfWay) {
  const auto store = store_over({.script = {{.kind = Kind::torn, .nth = 1, .direction = Direction::write}}});
  Buffer buffer;
  buffer.fill(1);
  EXPECT_EQ(transfer(*store, Direction::write, 0, buffer), 0);
  EXPECT_EQ(completed(*store, Direction::read, 0, buffer, true).error, 0);
  buffer.fill(2);
  EXPECT_EQ(transfer(*store, Direction::write, 0, buffer), EIO);
  buffer.fill(1);
  EXPECT_FALSE(completed(*store, Direction::write, 0, buffer).spared);
  Buffer back;
  EXPECT_EQ(transfer(*store, Direction::read, 0, back), 0);
  EXPECT_EQ(back.count(1), slot.value);
}

TEST_P(HashedStore, ForgetsWhatLayInSlotsThatAreDiscarded) {
  auto store = hashed(host(), GetParam());
  Buffer buffer;
  buffer.fill(1);
  completed(*store, Direction::write, 3, buffer);
  completed(*store, Direction::read, 3, buffer, true);
  const SlotIndex gone{3};
  store->discard({&gone, 1});
  EXPECT_FALSE(completed(*store, Direction::write, 3, buffer).spared);
}

TEST_P(HashedStore, ForgetsWhatLayInSlotsThatAreGone) {
  auto store = hashed(host(), GetParam());
  Buffer buffer;
  buffer.fill(1);
  completed(*store, Direction::write, 3, buffer);
  completed(*store, Direction::read, 3, buffer, true);
  store->shrink(0);
  ASSERT_TRUE(store->reserve(64).ok());
  EXPECT_FALSE(completed(*store, Direction::write, 3, buffer).spared);
  Buffer back;
  EXPECT_EQ(transfer(*store, Direction::read, 3, back), 0);
  EXPECT_EQ(back.count(1), slot.value);
}

TEST_P(HashedStore, TellsOfSparedWritesBesideOthersOnceEach) {
  const auto store = store_over();
  Buffer buffers[depth];
  for (std::uint32_t i = 0; i < depth; ++i) {
    buffers[i].fill(static_cast<int>(i));
    transfer(*store, Direction::write, i, buffers[i]);
    completed(*store, Direction::read, i, buffers[i], i % 2 == 0);
  }
  std::vector<StoreRequest> requests;
  for (std::uint32_t i = 0; i < depth; ++i)
    requests.push_back({.direction = Direction::write, .slot = {i}, .memory = buffers[i].data(), .token = i});
  store->submit(requests);
  std::vector<int> told(depth);
  for (std::uint32_t count = 0; count < depth;) {
    StoreCompletion done[3];
    const std::size_t some = store->wait(done, long_time);
    for (std::size_t k = 0; k < some; ++k) {
      ++told[done[k].token];
      EXPECT_EQ(done[k].spared, done[k].token % 2 == 0) << done[k].token;
    }
    count += static_cast<std::uint32_t>(some);
  }
  EXPECT_THAT(told, ::testing::Each(1));
}

INSTANTIATE_TEST_SUITE_P(Hashings, HashedStore, ::testing::Values(Hashing::remembered, Hashing::verify),
                         [](const auto& hashing) {
                           return hashing.param == Hashing::verify ? "Verify" : "Remembered";
                         });

TEST(HostStore, HasNoRoomBeyondItsBound) {
  const auto store = open_host_store(slot, depth, 70).value();
  ASSERT_TRUE(store->reserve(64));
  ASSERT_TRUE(store->reserve(70)) << "the last block is a part of one";
  const auto refused = store->reserve(71);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "a host store of 4.4 MiB (4587520 bytes) has no room for 4.4 MiB (4653056 bytes); make it larger");
  Buffer buffer, back;
  buffer.fill(9);
  EXPECT_EQ(transfer(*store, Direction::write, 69, buffer), 0);
  EXPECT_EQ(transfer(*store, Direction::read, 69, back), 0);
  EXPECT_EQ(back.count(9), slot.value);
}

TEST(FaultyStore, FailsTheNthRequestAndNoOther) {
  for (std::uint64_t nth = 0; nth < 6; ++nth) {
    FaultyStore store(host(), {.script = {{.kind = Kind::fail, .nth = nth, .error = ENOSPC}}});
    Buffer buffer;
    buffer.fill(3);
    for (std::uint64_t i = 0; i < 6; ++i) {
      const auto direction = i % 2 == 0 ? Direction::write : Direction::read;
      EXPECT_EQ(transfer(store, direction, 0, buffer), i == nth ? ENOSPC : 0) << "request " << i << ", nth " << nth;
    }
    EXPECT_EQ(store.requests(), 6U);
    EXPECT_EQ(store.faults(), 1U);
  }
}

TEST(FaultyStore, MovesNoByteOfAFailedRequest) {
  FaultyStore store(host(), {.script = {{.nth = 1, .direction = Direction::write}}});
  Buffer buffer, back;
  buffer.fill(1);
  EXPECT_EQ(transfer(store, Direction::write, 5, buffer), 0);
  buffer.fill(2);
  EXPECT_EQ(transfer(store, Direction::write, 5, buffer), EIO);
  EXPECT_EQ(transfer(store, Direction::read, 5, back), 0);
  EXPECT_EQ(back.count(1), slot.value);
}

TEST(FaultyStore, TearsAWriteInTheMiddleAndLeavesTheCallersBytes) {
  FaultyStore store(host(), {.script = {{.kind = Kind::torn, .nth = 0}}});
  Buffer buffer, back;
  buffer.fill(2);
  EXPECT_EQ(transfer(store, Direction::write, 0, buffer), EIO);
  EXPECT_EQ(buffer.count(2), slot.value);
  EXPECT_EQ(transfer(store, Direction::read, 0, back), 0);
  EXPECT_EQ(back.count(2), slot.value / 2);
}

TEST(FaultyStore, CorruptsOneBitSilentlyAndTheSameOneForTheSameSeed) {
  Buffer first, again;
  for (Buffer* back : {&first, &again}) {
    FaultyStore store(host(), {.script = {{.kind = Kind::corrupt, .nth = 0, .direction = Direction::read}}, .seed = 9});
    Buffer buffer;
    buffer.fill(0);
    EXPECT_EQ(transfer(store, Direction::write, 0, buffer), 0);
    EXPECT_EQ(transfer(store, Direction::read, 0, *back), 0);
    EXPECT_EQ(back->count(0), slot.value - 1);
  }
  EXPECT_EQ(std::memcmp(first.data(), again.data(), slot.value), 0);
}

TEST(FaultyStore, DelaysACompletionWithoutHoldingTheOthers) {
  FaultyStore store(host(), {.script = {{.kind = Kind::delay, .nth = 0, .delay = {50'000'000}}}});
  Buffer buffer;
  const auto begin = Clock::now();
  const StoreRequest requests[] = {{.slot = {0}, .memory = buffer.data(), .token = 10},
                                   {.slot = {1}, .memory = buffer.data(), .token = 11}};
  store.submit(requests);
  StoreCompletion completion;
  ASSERT_EQ(store.wait({&completion, 1}, long_time), 1U);
  EXPECT_EQ(completion.token, 11U);
  ASSERT_EQ(store.wait({&completion, 1}, long_time), 1U);
  EXPECT_EQ(completion.token, 10U);
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(50));
}

}  // namespace
}  // namespace vedette::wrapped_store_test
