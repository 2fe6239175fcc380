// What src/tier/store.h promises, asked of every store: bytes survive, completions come exactly once, wake() ends
// wait(), failures arrive as an errno or as one sentence. The disk stores are asked on the file system of the test's
// temporary folder.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <random>
#include <set>
#include <thread>

#include "base/mapping.h"
#include "support/child.h"
#include "support/faulty_store.h"
#include "support/nobody.h"
#include "support/sanitized.h"
#include "support/store_file.h"
#include "support/thread_masks.h"
#include "tier/store.h"

namespace vedette::store_conformance_test {
namespace {

using Direction = StoreRequest::Direction;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr Bytes slot = 64_KiB;
constexpr std::uint32_t depth = 8;
constexpr Nanoseconds long_time{30'000'000'000};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct StoreCase {
  const char* name;
  std::function<Result<std::unique_ptr<Store>>()> open;
};

Result<std::unique_ptr<Store>> open_disk(IoMechanism mechanism, const std::string& directory = ::testing::TempDir(),
                                         std::uint32_t requests = depth) {
  return open_nvme_store({.directory = directory, .slot_bytes = slot, .depth = requests, .mechanism = mechanism});
}

Result<std::unique_ptr<Store>> open_throttled() {
  auto inner = open_disk(IoMechanism::best);
  if (!inner) return inner;
  return throttled(std::move(*inner),
                   {.read_bytes_per_s = 1'000'000'000, .write_bytes_per_s = 500'000'000, .latency = {50'000}});
}

Result<std::unique_ptr<Store>> open_delaying() {
  auto inner = open_host_store(slot, depth);
  if (!inner) return inner;
  return std::unique_ptr<Store>(
      std::make_unique<FaultyStore>(std::move(*inner), FaultyStoreOptions{.script = {}, .delay_one_in = 3}));
}

constexpr std::uint32_t inner_depth = depth + layered_extra_depth;

// A near tier that holds a part of what the tests write.
Result<std::unique_ptr<Store>> open_layered() {
  constexpr std::uint32_t near_slots = 16;
  auto far = open_disk(IoMechanism::best, ::testing::TempDir(), inner_depth);
  if (!far) return far;
  return layered(open_host_store(slot, inner_depth, near_slots).value(), near_slots, std::move(*far));
}

Result<std::unique_ptr<Store>> open_layered_delaying() {
  constexpr std::uint32_t near_slots = 3;
  const auto level = [](std::uint32_t slots) {
    return std::make_unique<FaultyStore>(open_host_store(slot, inner_depth, slots).value(),
                                         FaultyStoreOptions{.script = {}, .delay_one_in = 3});
  };
  return layered(level(near_slots), near_slots, level(unlimited_slots));
}

// Requests in flight, one for each of depth() frames, and what they must have done when they come back.
class Frames {
 public:
  explicit Frames(Store& store) : store_(store) {
    memory_ = Mapping::reserve({slot.value * depth}, slot).value();
    for (std::uint32_t i = 0; i < depth; ++i) free_.push_back(i);
  }
  bool full() const { return free_.empty(); }
  std::size_t in_flight() const { return depth - free_.size(); }
  bool busy(std::uint32_t index) const { return slots_in_flight_.contains(index); }
  std::byte* memory() const { return memory_.data(); }

  void start(Direction direction, std::uint32_t index, std::uint64_t version) {
    const std::uint32_t frame = free_.back();
    free_.pop_back();
    slots_in_flight_.insert(index);
    flights_[frame] = {direction, index, version};
    fill(frame, direction == Direction::write ? pattern(index, version) : ~std::uint64_t{0});
    const StoreRequest request{direction, {index}, memory_.data() + frame * slot.value, token(frame)};
    store_.submit({&request, 1});
  }
  std::size_t finish(Nanoseconds timeout = long_time) {
    std::array<StoreCompletion, 3> done;  // fewer than may be there
    const std::size_t count = store_.wait(done, timeout);
    for (std::size_t i = 0; i < count; ++i) check(done[i]);
    return count;
  }

 private:
  struct Flight {
    Direction direction{};
    std::uint32_t index = 0;
    std::uint64_t version = 0;
  };
  static std::uint64_t pattern(std::uint32_t index, std::uint64_t version) {
    return index * 0x9E3779B97F4A7C15U + version;
  }
  static std::uint64_t token(std::uint32_t frame) { return 0xFFFF'FFFF'FFFF'0000U + frame; }
  std::uint64_t* words(std::uint32_t frame) const {
    return reinterpret_cast<std::uint64_t*>(memory_.data() + frame * slot.value);
  }
  void fill(std::uint32_t frame, std::uint64_t seed) {
    for (std::uint64_t i = 0; i < slot.value / 8; ++i) words(frame)[i] = seed ^ (i << 20);
  }
  void check(const StoreCompletion& completion) {
    EXPECT_EQ(completion.error, 0);
    const auto frame = static_cast<std::uint32_t>(completion.token & 0xFFFF);
    ASSERT_EQ(completion.token, token(frame));
    ASSERT_EQ(std::count(free_.begin(), free_.end(), frame), 0) << "completed twice";
    const Flight flight = flights_[frame];
    std::uint64_t wrong = 0;
    const std::uint64_t seed = pattern(flight.index, flight.version);
    for (std::uint64_t i = 0; i < slot.value / 8; ++i) wrong += words(frame)[i] != (seed ^ (i << 20));
    EXPECT_EQ(wrong, 0U) << "slot " << flight.index << ", version " << flight.version;
    slots_in_flight_.erase(flight.index);
    free_.push_back(frame);
  }

  Store& store_;
  Mapping memory_;
  std::vector<std::uint32_t> free_;
  std::array<Flight, depth> flights_;
  std::set<std::uint32_t> slots_in_flight_;
};

class StoreConformance : public ::testing::TestWithParam<StoreCase> {
 protected:
  void SetUp() override {
    auto opened = GetParam().open();
    if (!opened) GTEST_SKIP() << opened.error().message;
    store_ = std::move(*opened);
  }
  std::unique_ptr<Store> store_;
};

TEST_P(StoreConformance, BytesSurviveRandomWritesAndReadsAtFullDepth) {
  constexpr std::uint32_t slots = 128;
  store_->reserve(slots).value();
  Frames frames(*store_);
  store_->register_memory(frames.memory(), {slot.value * depth});
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> version(slots, 0);
  for (std::uint64_t step = 1; step <= 3000; ++step) {
    const auto index = static_cast<std::uint32_t>(random() % slots);
    if (!frames.busy(index)) {
      const bool write = version[index] == 0 || random() % 2 == 0;
      if (write) version[index] = step;
      frames.start(write ? Direction::write : Direction::read, index, version[index]);
    }
    while (frames.full()) ASSERT_GT(frames.finish(), 0U);
  }
  while (frames.in_flight() > 0) ASSERT_GT(frames.finish(), 0U);
}

TEST_P(StoreConformance, CompletesARoundOfRequestsExactlyOnceInAnyOrder) {
  store_->reserve(depth).value();
  Frames frames(*store_);
  for (std::uint64_t round = 1; round <= 50; ++round) {
    for (std::uint32_t i = 0; i < depth; ++i) frames.start(Direction::write, i, round);
    while (frames.in_flight() > 0) ASSERT_GT(frames.finish(), 0U);
    EXPECT_EQ(frames.finish({0}), 0U) << "nothing is left over";
  }
}

TEST_P(StoreConformance, TakesASpanOfRequestsAtOnce) {
  store_->reserve(depth).value();
  auto memory = Mapping::reserve({slot.value * depth}, slot).value();
  std::vector<StoreRequest> requests;
  for (std::uint32_t i = 0; i < depth; ++i)
    requests.push_back({Direction::write, {i}, memory.data() + i * slot.value, i});
  store_->submit(requests);
  std::set<std::uint64_t> tokens;
  std::array<StoreCompletion, depth> done;
  while (tokens.size() < depth) {
    const std::size_t count = store_->wait(done, long_time);
    ASSERT_GT(count, 0U);
    for (std::size_t i = 0; i < count; ++i) EXPECT_TRUE(tokens.insert(done[i].token).second);
  }
}

TEST_P(StoreConformance, WakeFromAnotherThreadEndsWait) {
  StoreCompletion none;
  const auto begin = Clock::now();
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    store_->wake();
  });
  EXPECT_EQ(store_->wait({&none, 1}, long_time), 0U);
  EXPECT_LT(seconds_since(begin), 10.0);
}

TEST_P(StoreConformance, WakeBeforeWaitEndsTheNextOneAndOnlyThat) {
  StoreCompletion none;
  const auto begin = Clock::now();
  store_->wake();
  store_->wake();
  EXPECT_EQ(store_->wait({&none, 1}, long_time), 0U);
  EXPECT_LT(seconds_since(begin), 10.0);
  const auto again = Clock::now();
  EXPECT_EQ(store_->wait({&none, 1}, {30'000'000}), 0U);
  EXPECT_GE(seconds_since(again), 0.029);
}

// Two threads take turns; a wake-up lost at any instant stops the game until wait() times out. The other thread's pause
// varies, so that its wake() falls before, into and after the waiter's way to sleep.
TEST_P(StoreConformance, LosesNoWakeUpAtAnyInstant) {
  constexpr int rounds = 5000;
  std::atomic<int> asked{0}, answered{0};
  std::jthread other([&] {
    for (int i = 1; i <= rounds; ++i) {
      for (int pause = i % 512; pause > 0; --pause) std::atomic_signal_fence(std::memory_order_seq_cst);
      asked.store(i);
      store_->wake();
      while (answered.load() < i) std::this_thread::yield();
    }
  });
  StoreCompletion none;
  const auto begin = Clock::now();
  while (answered.load() < rounds) {
    while (asked.load() == answered.load()) {
      EXPECT_EQ(store_->wait({&none, 1}, {5'000'000'000}), 0U);
      ASSERT_LT(seconds_since(begin), 40.0);
    }
    answered.store(asked.load());
  }
}

TEST_P(StoreConformance, WaitEndsAtItsTimeout) {
  StoreCompletion none;
  const auto begin = Clock::now();
  EXPECT_EQ(store_->wait({&none, 1}, {20'000'000}), 0U);
  EXPECT_GE(seconds_since(begin), 0.019);
  EXPECT_LT(seconds_since(begin), 10.0);
}

TEST_P(StoreConformance, ReserveGrowsFromAnotherThreadWhileRequestsFly) {
  store_->reserve(16).value();
  Frames frames(*store_);
  std::atomic<std::uint32_t> room{16};
  std::jthread grower([&] {
    for (std::uint32_t slots = 32; slots <= 4096; slots *= 2) {
      if (!store_->reserve(slots)) return;
      room = slots;
    }
  });
  std::mt19937_64 random(2);
  for (std::uint64_t step = 1; step <= 1000; ++step) {
    const auto index = static_cast<std::uint32_t>(random() % room);
    if (!frames.busy(index)) frames.start(Direction::write, index, step);
    while (frames.full()) ASSERT_GT(frames.finish(), 0U);
  }
  while (frames.in_flight() > 0) ASSERT_GT(frames.finish(), 0U);
  grower.join();
  EXPECT_EQ(room, 4096U);
}

TEST_P(StoreConformance, ReservingLessThanIsThereChangesNothing) {
  store_->reserve(8).value();
  Frames frames(*store_);
  frames.start(Direction::write, 7, 1);
  while (frames.in_flight() > 0) ASSERT_GT(frames.finish(), 0U);
  EXPECT_TRUE(store_->reserve(1).ok());
  frames.start(Direction::read, 7, 1);
  while (frames.in_flight() > 0) ASSERT_GT(frames.finish(), 0U);
}

// The hashed store must forget what lay in slots that are gone: a write of the same bytes is written again.
TEST_P(StoreConformance, ShrinksAndGrowsAgainWithTheSlotsBelow) {
  const std::uint32_t large = static_cast<std::uint32_t>((1_GiB).value / slot.value);
  if (!store_->reserve(large)) GTEST_SKIP() << "no room for 1 GiB";
  Frames frames(*store_);
  const auto one = [&](Direction direction, std::uint32_t index) {
    frames.start(direction, index, 7);
    while (frames.in_flight() > 0) ASSERT_GT(frames.finish(), 0U);
  };
  for (const std::uint32_t index : {1u, large - 1}) one(Direction::write, index);
  for (const std::uint32_t index : {1u, large - 1}) one(Direction::read, index);
  store_->shrink(2);
  one(Direction::read, 1);
  ASSERT_TRUE(store_->reserve(large).ok());
  one(Direction::write, large - 1);
  one(Direction::read, large - 1);
  one(Direction::read, 1);
}

TEST_P(StoreConformance, SaysWhatItIs) {
  EXPECT_EQ(store_->depth(), depth);
  EXPECT_EQ(store_->slot_bytes(), slot);
  EXPECT_FALSE(store_->mechanism().empty());
}

INSTANTIATE_TEST_SUITE_P(
    Every, StoreConformance,
    ::testing::Values(StoreCase{"UringRegistered", [] { return open_disk(IoMechanism::uring_registered); }},
                      StoreCase{"Uring", [] { return open_disk(IoMechanism::uring); }},
                      StoreCase{"Threads", [] { return open_disk(IoMechanism::threads); }},
                      StoreCase{"Best", [] { return open_disk(IoMechanism::best); }},
                      StoreCase{"Host", [] { return open_host_store(slot, depth); }},
                      StoreCase{"Throttled", open_throttled}, StoreCase{"Delaying", open_delaying},
                      StoreCase{"Layered", open_layered}, StoreCase{"LayeredDelaying", open_layered_delaying}),
    [](const auto& test) { return std::string(test.param.name); });

// A file system of its own for one test; needs the right to mount.
class Mounted {
 public:
  Mounted(const char* type, const char* options) {
    std::string name = ::testing::TempDir() + "/vedette-mount-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) return;
    path_ = name;
    mounted_ = ::mount("none", path_.c_str(), type, 0, options) == 0;
    error_ = mounted_ ? 0 : errno;
  }
  ~Mounted() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  Mounted(const Mounted&) = delete;
  bool ok() const { return mounted_; }
  std::string why() const { return std::string("mounting a small file system: ") + std::strerror(error_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool mounted_ = false;
  int error_ = 0;
};

class DiskStore : public ::testing::TestWithParam<IoMechanism> {
 protected:
  void open(const std::string& directory = ::testing::TempDir()) {
    auto opened = open_disk(GetParam(), directory);
    if (!opened && opened.error().cause == Cause::unavailable) GTEST_SKIP() << opened.error().message;
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    store_ = std::move(*opened);
  }
  StoreCompletion one(Direction direction, std::uint32_t index, std::byte* memory) {
    const StoreRequest request{direction, {index}, memory, 42};
    store_->submit({&request, 1});
    StoreCompletion done, again;
    EXPECT_EQ(store_->wait({&done, 1}, long_time), 1U);
    EXPECT_EQ(store_->wait({&again, 1}, {0}), 0U);
    EXPECT_EQ(done.token, 42U);
    return done;
  }
  void write_and_read_back(std::uint32_t index) {
    Frames frames(*store_);
    for (const Direction direction : {Direction::write, Direction::read}) {
      frames.start(direction, index, 5);
      while (frames.in_flight() > 0) ASSERT_GT(frames.finish(), 0U);
    }
  }
  std::unique_ptr<Store> store_;
};

TEST_P(DiskStore, TellsTheErrnoOfMemoryItCannotReach) {
  open();
  if (!store_) return;
  store_->reserve(4).value();
  auto memory = Mapping::reserve({slot.value}, slot).value();
  std::memset(memory.data(), 1, slot.value);
  EXPECT_EQ(one(Direction::write, 0, memory.data()).error, 0);
  ASSERT_EQ(::mprotect(memory.data() + slot.value / 2, slot.value / 2, PROT_NONE), 0);
  EXPECT_EQ(one(Direction::read, 0, memory.data()).error, EFAULT) << "half of it: a short transfer, then the errno";
  ASSERT_EQ(::mprotect(memory.data(), slot.value, PROT_NONE), 0);
  EXPECT_EQ(one(Direction::write, 0, memory.data()).error, EFAULT);
  write_and_read_back(1);
}

TEST_P(DiskStore, CallsAReadBeyondItsRoomAnError) {
  open();
  if (!store_) return;
  auto memory = Mapping::reserve({slot.value}, slot).value();
  EXPECT_EQ(one(Direction::read, 1'000'000, memory.data()).error, EIO);
}

TEST_P(DiskStore, SaysDiskFullInOneSentenceAndGoesOnWithTheRoomItHas) {
  const Mounted small("tmpfs", "size=8m");
  if (!small.ok()) GTEST_SKIP() << small.why();
  open(small.path());
  if (!store_) return;
  store_->reserve(64).value();  // 4 of 8 MiB: the generous step does not fit, the bare need does
  const auto grown = store_->reserve(256);
  ASSERT_FALSE(grown.ok());
  EXPECT_EQ(grown.error().cause, Cause::out_of_memory);
  EXPECT_EQ(grown.error().errno_value, ENOSPC);
  EXPECT_THAT(grown.error().message, HasSubstr("disk full"));
  EXPECT_THAT(grown.error().message, HasSubstr("16777216 bytes"));
  EXPECT_THAT(grown.error().message, HasSubstr(small.path()));
  write_and_read_back(63);
  EXPECT_TRUE(store_->reserve(96).ok()) << "what the failed attempt took was given back";
  store_.reset();
}

TEST_P(DiskStore, GoesBufferedAndSparseWhereTheFileSystemKnowsNoBetter) {
  const Mounted simple("ramfs", "");
  if (!simple.ok()) GTEST_SKIP() << simple.why();
  open(simple.path());
  if (!store_) return;
  EXPECT_THAT(std::string(store_->mechanism()), HasSubstr("buffered (this file system refuses O_DIRECT)"));
  store_->reserve(8).value();
  write_and_read_back(7);
  store_.reset();
}

TEST_P(DiskStore, LeavesNoNameInItsDirectory) {
  std::string name = ::testing::TempDir() + "/vedette-dir-XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  open(name);
  if (store_) {
    store_->reserve(4).value();
    EXPECT_TRUE(std::filesystem::is_empty(name));
  }
  store_.reset();
  std::filesystem::remove(name);
}

TEST_P(DiskStore, NamesTheDirectoryThatIsNotThere) {
  const auto opened = open_disk(GetParam(), "/no/such/place");
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("/no/such/place: No such file or directory"));
}

std::string mechanism_name(IoMechanism mechanism) {
  constexpr std::array names{"Best", "UringRegistered", "Uring", "Threads"};
  return names[static_cast<std::size_t>(mechanism)];
}

INSTANTIATE_TEST_SUITE_P(Every, DiskStore,
                         ::testing::Values(IoMechanism::uring_registered, IoMechanism::uring, IoMechanism::threads),
                         [](const auto& test) { return mechanism_name(test.param); });

TEST(NvmeStore, RefusesSlotsThatDirectIoCannotMove) {
  for (const std::uint64_t bytes : {0ULL, 512ULL, 65537ULL, 2ULL << 30}) {
    const auto opened = open_nvme_store({.directory = ::testing::TempDir(), .slot_bytes = {bytes}});
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().cause, Cause::malformed_input);
  }
  EXPECT_FALSE(open_nvme_store({.directory = ::testing::TempDir(), .depth = 0}).ok());
}

TEST(NvmeStore, SaysWhetherItRegisteredAndDoesNotWhenAskedForPlain) {
  auto memory = Mapping::reserve({slot.value * depth}, slot).value();
  for (const auto& [mechanism, says] : {std::pair{IoMechanism::uring_registered, true}, {IoMechanism::uring, false}}) {
    auto store = open_disk(mechanism);
    if (!store) GTEST_SKIP() << store.error().message;
    (*store)->register_memory(memory.data(), memory.bytes());
    EXPECT_EQ((*store)->mechanism().find("registered") != std::string_view::npos, says) << (*store)->mechanism();
  }
}

TEST(NvmeStore, RegistersSeveralRangesAndOneBeyondAGiB) {
  struct sysinfo info {};
  ::sysinfo(&info);
  if (info.freeram * info.mem_unit < (std::uint64_t{4} << 30)) GTEST_SKIP() << "less than 4 GiB of free memory";
  auto opened = open_nvme_store({.directory = ::testing::TempDir(), .mechanism = IoMechanism::uring_registered});
  if (!opened) GTEST_SKIP() << opened.error().message;
  Store& store = **opened;
  store.reserve(4).value();
  auto small = Mapping::reserve(4_MiB, 2_MiB).value();
  auto large = Mapping::reserve({(1_GiB).value + (4_MiB).value}, 2_MiB).value();
  ::madvise(large.data(), large.bytes().value, MADV_HUGEPAGE);
  store.register_memory(small.data(), small.bytes());
  store.register_memory(large.data(), large.bytes());
  if (store.mechanism().find("not registered") != std::string_view::npos) GTEST_SKIP() << store.mechanism();
  std::byte* const places[] = {small.data(), large.data(), large.data() + (1_GiB).value - (1_MiB).value,
                               large.data() + (1_GiB).value + (2_MiB).value};  // the third lies across two pieces
  std::uint32_t index = 0;
  for (std::byte* place : places) {
    std::memset(place, static_cast<int>(index + 1), (2_MiB).value);
    const StoreRequest write{Direction::write, {index}, place, index};
    store.submit({&write, 1});
    StoreCompletion done;
    ASSERT_EQ(store.wait({&done, 1}, long_time), 1U);
    EXPECT_EQ(done.error, 0);
    std::memset(place, 0, (2_MiB).value);
    const StoreRequest read{Direction::read, {index}, place, index};
    store.submit({&read, 1});
    ASSERT_EQ(store.wait({&done, 1}, long_time), 1U);
    EXPECT_EQ(done.error, 0);
    ++index;
    EXPECT_EQ(std::count(place, place + (2_MiB).value, static_cast<std::byte>(index)), (2_MiB).value);
  }
}

// In a child: an ordinary user who may lock 64 KiB. Exit 0: went on plain and said why; 2: io_uring is missing.
[[noreturn]] void go_without_registration() {
  const rlimit limit{65536, 65536};
  if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (::getuid() == 0 && ::setresuid(65534, 65534, 65534) != 0))
    std::_Exit(3);
  auto opened = open_disk(IoMechanism::uring_registered, "/tmp");
  if (!opened) std::_Exit(2);
  auto memory = Mapping::reserve({slot.value * depth}, slot).value();
  (*opened)->register_memory(memory.data(), memory.bytes());
  const bool said = (*opened)->mechanism().find("memory lock limit") != std::string_view::npos;
  const bool room = (*opened)->reserve(1).ok();
  const StoreRequest request{Direction::write, {0}, memory.data(), 1};
  (*opened)->submit({&request, 1});
  StoreCompletion done;
  const bool works = (*opened)->wait({&done, 1}, long_time) == 1 && done.error == 0;
  std::_Exit(said && room && works ? 0 : 1);
}

TEST(NvmeStore, GoesOnPlainWhereTheMemoryLockLimitForbidsRegistering) {
  if (!open_disk(IoMechanism::uring)) GTEST_SKIP() << "io_uring is not available";
  if (!testing::nobody_finds_files()) GTEST_SKIP() << testing::no_files_for_nobody;
  EXPECT_EXIT(go_without_registration(), ::testing::ExitedWithCode(0), "");
}

// At most a quarter more than what is kept in it, or 16 MiB.
TEST(NvmeStore, ItsFileIsLittleLargerThanWhatItKeeps) {
  auto opened = open_disk(IoMechanism::best);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  for (const auto& [wanted, most] :
       {std::pair{1_MiB, 16_MiB}, {96_MiB, 112_MiB}, {100_MiB, 112_MiB}, {130_MiB, 160_MiB}}) {
    if (!(*opened)->reserve(static_cast<std::uint32_t>(wanted.value / slot.value)))
      GTEST_SKIP() << "no room on the disk";
    struct stat file {};
    ASSERT_EQ(::fstat(testing::store_file(), &file), 0) << "the store's file is not among this process's";
    EXPECT_GE(file.st_size, static_cast<off_t>(wanted.value));
    EXPECT_LE(file.st_size, static_cast<off_t>(most.value)) << wanted.value;
  }
}

TEST(NvmeStore, ItsFileBecomesSmallerWhenItShrinks) {
  constexpr Bytes kept = 256_MiB, grown = 1_GiB;
  const auto slots = [](Bytes bytes) { return static_cast<std::uint32_t>(bytes.value / slot.value); };
  auto opened = open_disk(IoMechanism::best);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  Store& store = **opened;
  if (!store.reserve(slots(grown))) GTEST_SKIP() << "no room for 1 GiB";
  Frames frames(store);
  const auto each = [&](Direction direction, std::initializer_list<std::uint32_t> indices) {
    for (const std::uint32_t index : indices) frames.start(direction, index, 3);
    while (frames.in_flight() > 0) ASSERT_GT(frames.finish(), 0U);
  };
  each(Direction::write, {0, slots(kept) - 1, slots(kept), slots(grown) - 1});
  const int file = testing::store_file();
  struct stat before {
  }, after{};
  ASSERT_EQ(::fstat(file, &before), 0) << "the store's file is not among this process's";
  EXPECT_EQ(before.st_size, static_cast<off_t>(grown.value));
  store.shrink(slots(kept));
  ASSERT_EQ(::fstat(file, &after), 0);
  EXPECT_EQ(after.st_size, static_cast<off_t>(kept.value));
  EXPECT_LE(after.st_blocks * 512, static_cast<off_t>((kept + 1_MiB).value));
  EXPECT_LT(after.st_blocks, before.st_blocks);
  each(Direction::read, {0, slots(kept) - 1});
}

// The kernel sends SIGXFSZ beside the error, and its default ends the program.
TEST(NvmeStore, SaysThatTheLimitOfAFilesSizeIsReached) {
  if (testing::sanitized) GTEST_SKIP() << "a sanitizer dislikes forks of programs with threads";
  const auto status = testing::in_child([] {
    const rlimit limit{1 << 20, 1 << 20};
    ::signal(SIGXFSZ, SIG_DFL);
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    const auto store = open_disk(IoMechanism::best);
    if (!store) ::_exit(3);
    const auto reserved = (*store)->reserve(64);
    ::_exit(reserved || reserved.error().errno_value != EFBIG ? 4 : 0);
  });
  EXPECT_TRUE(testing::exited_well(status)) << status.value_or(-1);
}

// What the kernel fails to write later would be read as zeros.
TEST(NvmeStore, AWriteThatHasEndedIsOnTheDisk) {
  for (const bool direct : {true, false}) {
    auto store =
        open_nvme_store({.directory = ::testing::TempDir(), .slot_bytes = slot, .depth = 2, .direct = direct}).value();
    const int flags = ::fcntl(testing::store_file(), F_GETFL);
    EXPECT_NE(flags & (O_DIRECT | O_DSYNC), 0) << store->mechanism();
  }
}

TEST(NvmeStore, ItsThreadsRunNoSignalHandlerOfTheProgram) {
  const int before = threads_open_to(SIGUSR1), faulting_before = threads_open_to(SIGSEGV),
            filtered_before = threads_open_to(SIGSYS);
  auto opened = open_nvme_store(
      {.directory = ::testing::TempDir(), .slot_bytes = 64_KiB, .depth = 4, .mechanism = IoMechanism::threads});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_TRUE(come_to_be_open_to(SIGSEGV, faulting_before + 4));
  EXPECT_TRUE(come_to_be_open_to(SIGSYS, filtered_before + 4)) << "a system call that a filter traps is theirs, too";
  EXPECT_EQ(threads_open_to(SIGUSR1), before);
}

}  // namespace
}  // namespace vedette::store_conformance_test
