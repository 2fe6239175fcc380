// Every tracker must tell exactly the pages that a known pattern of accesses touches, reads and writes apart.
#include "os/page_tracker.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <csignal>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/mapping.h"
#include "os/chunk_memory.h"
#include "os/tracked_memory.h"

namespace vedette::page_tracker_test {
namespace {

struct Source {
  const char* name;
  std::function<Result<std::unique_ptr<PageTracker>>()> open;
  enum class Kind { tracked, anonymous } kind;  // memfd pages of TrackedMemory, or private memory
};

const Source sources[] = {
    {"zap", [] { return open_zap_tracker(); }, Source::Kind::tracked},
    {"mprotect", [] { return open_mprotect_tracker(); }, Source::Kind::anonymous},
    {"mprotect_on_shared_memory", [] { return open_mprotect_tracker(); }, Source::Kind::tracked},
    {"missing_pages", [] { return open_missing_tracker(); }, Source::Kind::anonymous},
};

std::ostream& operator<<(std::ostream& out, const Source& source) { return out << source.name; }

struct Seen {
  bool read = false, written = false;
  bool operator==(const Seen&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Seen& seen) {
  return out << (seen.read ? "r" : "-") << (seen.written ? "w" : "-");
}
using Pages = std::map<std::size_t, Seen>;  // by page number

class Tracker : public ::testing::TestWithParam<Source> {
 protected:
  static constexpr std::size_t pages = 1024;

  void SetUp() override {
    auto tracker = GetParam().open();
    if (!tracker) GTEST_SKIP() << tracker.error().message;
    tracker_ = std::move(tracker).value();
    if (GetParam().kind == Source::Kind::tracked) {
      auto memory = TrackedMemory::create({pages * page_size});
      if (!memory) GTEST_SKIP() << memory.error().message;
      memory_.emplace(std::move(memory).value());
      base_ = memory_->data();
    } else {
      auto memory = Mapping::reserve({pages * page_size}, {page_size});
      ASSERT_TRUE(memory.ok()) << memory.error().message;
      private_memory_ = std::move(memory).value();
      base_ = private_memory_.data();
    }
  }
  void TearDown() override { tracker_.reset(); }  // before the memory goes

  volatile unsigned char& byte(std::size_t page, std::size_t at = 0) {
    return reinterpret_cast<volatile unsigned char*>(base_)[page * page_size + at];
  }
  void read(std::size_t page) { sink_ = byte(page, page % page_size); }
  void write(std::size_t page) { byte(page, page % page_size) = 7; }
  // For threads that meet on a page.
  void peek(std::size_t page) { static_cast<void>(__atomic_load_n(&byte(page), __ATOMIC_RELAXED)); }
  void poke(std::size_t page) { __atomic_store_n(&byte(page), static_cast<unsigned char>(1), __ATOMIC_RELAXED); }
  AddressRange range(std::size_t begin, std::size_t end) const {
    return {base_ + begin * page_size, (end - begin) * page_size};
  }

  void arm(std::vector<AddressRange> ranges) {
    const auto armed = tracker_->arm(ranges);
    ASSERT_TRUE(armed.ok()) << armed.error().message;
  }
  void arm() { arm({range(0, pages)}); }

  // Of a written page only `written` is promised, so `read` is taken as false there.
  Pages collect(std::vector<AddressRange> ranges) {
    std::vector<TouchedRange> touched;
    const auto collected = tracker_->collect(ranges, touched);
    EXPECT_TRUE(collected.ok()) << collected.error().message;
    Pages seen;
    const std::byte* last = nullptr;
    for (const TouchedRange& run : touched) {
      EXPECT_TRUE(run.read || run.written);
      EXPECT_GT(run.pages.bytes, 0u);
      EXPECT_GE(run.pages.begin, last) << "ranges are told in order of address, each page once";
      last = run.pages.begin + run.pages.bytes;
      for (std::size_t done = 0; done < run.pages.bytes; done += page_size) {
        const auto page = static_cast<std::size_t>(run.pages.begin + done - base_) / page_size;
        seen[page] = {.read = run.read && !run.written, .written = run.written};
      }
    }
    return seen;
  }
  Pages collect() { return collect({range(0, pages)}); }

  std::unique_ptr<PageTracker> tracker_;
  std::byte* base_ = nullptr;

 private:
  std::optional<TrackedMemory> memory_;
  Mapping private_memory_;
  unsigned char sink_ = 0;
};

constexpr Seen was_read{.read = true}, was_written{.written = true};

TEST_P(Tracker, TellsNothingWhereNothingWasTouched) {
  arm();
  EXPECT_EQ(collect(), Pages{});
}

TEST_P(Tracker, TellsExactlyThePagesReadAndThePagesWritten) {
  arm();
  read(0);
  write(1);
  read(17);
  write(500);
  read(501);
  write(pages - 1);
  EXPECT_EQ(collect(), (Pages{{0, was_read},
                              {1, was_written},
                              {17, was_read},
                              {500, was_written},
                              {501, was_read},
                              {pages - 1, was_written}}));
}

TEST_P(Tracker, TellsAPageReadThenWrittenAsWritten) {
  arm();
  read(3);
  write(3);
  write(4);
  read(4);
  EXPECT_EQ(collect(), (Pages{{3, was_written}, {4, was_written}}));
}

TEST_P(Tracker, ForgetsWhatHappenedBeforeArming) {
  for (std::size_t page = 0; page < pages; ++page) write(page);
  arm();
  read(5);
  EXPECT_EQ(collect(), (Pages{{5, was_read}}));
}

TEST_P(Tracker, ForgetsWhatHappenedBeforeArmingAgain) {
  arm();
  write(5);
  read(6);
  arm();
  read(5);
  EXPECT_EQ(collect(), (Pages{{5, was_read}}));
}

TEST_P(Tracker, CollectArmsWhatItTold) {
  arm();
  write(7);
  read(8);
  EXPECT_EQ(collect(), (Pages{{7, was_written}, {8, was_read}}));
  EXPECT_EQ(collect(), Pages{});
  read(7);
  write(8);
  EXPECT_EQ(collect(), (Pages{{7, was_read}, {8, was_written}}));
}

TEST_P(Tracker, CollectOfSomeRangesLeavesTheOthersForLater) {
  arm();
  read(10);
  write(20);
  read(30);
  EXPECT_EQ(collect({range(15, 25)}), (Pages{{20, was_written}}));
  EXPECT_EQ(collect({range(25, 40), range(0, 15)}), (Pages{{10, was_read}, {30, was_read}}));
}

TEST_P(Tracker, JoinsNeighboursAndKeepsTheOrderOfAddresses) {
  arm({range(64, 128), range(0, 64)});
  for (std::size_t page = 32; page < 96; ++page) write(page);
  std::vector<TouchedRange> touched;
  const std::vector<AddressRange> ranges{range(64, 128), range(0, 64)};
  ASSERT_TRUE(tracker_->collect(ranges, touched).ok());
  ASSERT_EQ(touched.size(), 1u);
  EXPECT_EQ(touched[0].pages, range(32, 96));
}

TEST_P(Tracker, AppendsBehindWhatTheListHoldsAlready) {
  arm();
  read(0);
  std::vector<TouchedRange> touched(2);
  const std::vector<AddressRange> all{range(0, pages)};
  ASSERT_TRUE(tracker_->collect(all, touched).ok());
  EXPECT_EQ(touched.size(), 3u);
}

TEST_P(Tracker, LeavesTheBytesAlone) {
  for (std::size_t page = 0; page < pages; ++page) byte(page, 1) = static_cast<unsigned char>(page * 31 + 1);
  for (int tick = 0; tick < 3; ++tick) {
    arm();
    for (std::size_t page = 0; page < pages; page += 3) {
      ASSERT_EQ(byte(page, 1), static_cast<unsigned char>(page * 31 + 1));
    }
    collect();
  }
  ASSERT_TRUE(tracker_->disarm(std::vector{range(0, pages)}).ok());
  for (std::size_t page = 0; page < pages; ++page) ASSERT_EQ(byte(page, 1), static_cast<unsigned char>(page * 31 + 1));
}

TEST_P(Tracker, AccessesAfterDisarmAreFreeAndMayBeArmedAgain) {
  arm();
  read(1);
  ASSERT_TRUE(tracker_->disarm(std::vector{range(0, pages)}).ok());
  for (std::size_t page = 0; page < pages; ++page) write(page);
  arm();
  write(2);
  EXPECT_EQ(collect(), (Pages{{2, was_written}}));
}

TEST_P(Tracker, TellsMorePagesThanOneScanHolds) {
  arm();
  Pages expected;
  for (std::size_t page = 0; page < pages; ++page) {
    if (page % 2 == 0) continue;
    page % 4 == 1 ? write(page) : read(page);
    expected[page] = page % 4 == 1 ? was_written : was_read;
  }
  EXPECT_EQ(collect(), expected);
}

// Random touches by threads that stop at every tick, compared with what each of them remembers.
void touch_at_random(std::size_t threads, std::size_t page_count, int ticks,
                     const std::function<void(std::size_t)>& read, const std::function<void(std::size_t)>& write,
                     const std::function<void(const Pages&)>& judge) {
  std::vector<Pages> remembered(threads);
  std::barrier gate(static_cast<std::ptrdiff_t>(threads) + 1);
  std::vector<std::thread> workers;
  for (std::size_t self = 0; self < threads; ++self) {
    workers.emplace_back([&, self] {
      std::mt19937 random(static_cast<unsigned>(1234 + self));
      for (int tick = 0; tick < ticks; ++tick) {
        gate.arrive_and_wait();
        for (int touch = 0; touch < 200; ++touch) {
          const std::size_t page = random() % page_count;
          const bool writes = random() % 3 == 0;
          writes ? write(page) : read(page);
          (writes ? remembered[self][page].written : remembered[self][page].read) = true;
        }
        gate.arrive_and_wait();
        gate.arrive_and_wait();  // while the tick is judged
      }
    });
  }
  for (int tick = 0; tick < ticks; ++tick) {
    gate.arrive_and_wait();
    gate.arrive_and_wait();
    Pages expected;
    for (Pages& mine : remembered) {
      for (const auto& [page, seen] : mine) expected[page].written |= seen.written;
      mine.clear();
    }
    for (auto& [page, seen] : expected) seen.read = !seen.written;
    judge(expected);
    gate.arrive_and_wait();
  }
  for (std::thread& worker : workers) worker.join();
}

TEST_P(Tracker, IsExactWithOneThread) {
  arm();
  touch_at_random(
      1, pages, 20, [&](auto page) { peek(page); }, [&](auto page) { poke(page); },
      [&](const Pages& expected) { EXPECT_EQ(collect(), expected); });
}

TEST_P(Tracker, IsExactWithSixteenThreads) {
  arm();
  touch_at_random(
      16, pages, 20, [&](auto page) { peek(page); }, [&](auto page) { poke(page); },
      [&](const Pages& expected) { EXPECT_EQ(collect(), expected); });
}

TEST_P(Tracker, IsExactWhenSixteenThreadsCrowdOnFewPages) {
  arm();
  touch_at_random(
      16, 8, 40, [&](auto page) { peek(page); }, [&](auto page) { poke(page); },
      [&](const Pages& expected) { EXPECT_EQ(collect(), expected); });
}

TEST_P(Tracker, SystemCallsIntoTrackedMemoryAreSeenOrRefused) {
  for (std::size_t page = 0; page < 8; ++page) write(page);
  const Fd file{::memfd_create("file", 0)};
  const std::vector<char> content(4 * page_size, 'x');
  ASSERT_EQ(::write(file.get(), content.data(), content.size()), static_cast<ssize_t>(content.size()));
  arm();
  const ssize_t got = ::pread(file.get(), base_ + 2 * page_size, 2 * page_size, 0);
  const int read_error = errno;
  const ssize_t put = ::pwrite(file.get(), base_ + 6 * page_size, 2 * page_size, 0);
  const int write_error = errno;
  if (!tracker_->sees_system_calls()) {
    EXPECT_EQ(got, -1);
    EXPECT_EQ(read_error, EFAULT);
    EXPECT_EQ(put, -1);
    EXPECT_EQ(write_error, EFAULT);
    EXPECT_EQ(collect(), Pages{});
    return;
  }
  EXPECT_EQ(got, static_cast<ssize_t>(2 * page_size));
  EXPECT_EQ(put, static_cast<ssize_t>(2 * page_size));
  EXPECT_EQ(byte(3), 'x');
  EXPECT_EQ(collect(), (Pages{{2, was_written}, {3, was_written}, {6, was_read}, {7, was_read}}));
}

INSTANTIATE_TEST_SUITE_P(Every, Tracker, ::testing::ValuesIn(sources),
                         [](const auto& source) { return source.param.name; });

TEST(ZapTracker, SaysWhenMemoryIsNotRegisteredAndLeavesItsBytes) {
  auto tracker = open_zap_tracker();
  if (!tracker) GTEST_SKIP() << tracker.error().message;
  auto memory = Mapping::reserve({4 * page_size}, {page_size});
  ASSERT_TRUE(memory.ok());
  memory->data()[0] = std::byte{42};
  const auto armed = (*tracker)->arm(std::vector<AddressRange>{{memory->data(), 4 * page_size}});
  ASSERT_FALSE(armed.ok());
  EXPECT_EQ(armed.error().cause, Cause::unsupported);
  EXPECT_THAT(armed.error().message, ::testing::HasSubstr("registered with a userfaultfd"));
  EXPECT_EQ(memory->data()[0], std::byte{42});
}

TEST(ZapTracker, DoesNotSeeTheAlias) {
  auto tracker = open_zap_tracker();
  if (!tracker) GTEST_SKIP() << tracker.error().message;
  auto memory = TrackedMemory::create({4 * page_size});
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  const std::vector<AddressRange> all{memory->range()};
  ASSERT_TRUE((*tracker)->arm(all).ok());
  memory->alias()[page_size] = std::byte{9};
  std::vector<TouchedRange> touched;
  ASSERT_TRUE((*tracker)->collect(all, touched).ok());
  EXPECT_TRUE(touched.empty());
  EXPECT_EQ(memory->data()[page_size], std::byte{9});
}

TEST(ZapTracker, WatchesTheChunksOfAFileMemoryOverItsMoves) {
  constexpr Bytes chunk = 64_KiB;
  auto arena = Mapping::reserve({2 * chunk.value}, chunk);
  ASSERT_TRUE(arena.ok());
  auto memory = open_file_memory(
      {.arena = arena->data(), .chunks = 2, .frames = 1, .chunk_bytes = chunk, .on_fault = [](const Fault&) {}});
  auto tracker = open_zap_tracker();
  if (!memory) GTEST_SKIP() << memory.error().message;
  if (!tracker) GTEST_SKIP() << tracker.error().message;
  const FrameIndex frame{0};
  for (const std::uint32_t where : {0u, 1u, 0u}) {
    std::byte* const begin = arena->data() + where * chunk.value;
    const std::vector<AddressRange> pages{{begin, chunk.value}};
    (*memory)->show(frame, {where});
    ASSERT_TRUE((*tracker)->arm(pages).ok());
    begin[3 * page_size] = std::byte{5};
    static_cast<void>(*reinterpret_cast<volatile std::byte*>(begin + 9 * page_size));
    std::vector<TouchedRange> touched;
    ASSERT_TRUE((*tracker)->collect(pages, touched).ok());
    ASSERT_EQ(touched.size(), 2u);
    EXPECT_TRUE(touched[0].pages == (AddressRange{begin + 3 * page_size, page_size}) && touched[0].written);
    EXPECT_TRUE(touched[1].pages == (AddressRange{begin + 9 * page_size, page_size}) && !touched[1].written);
    ASSERT_TRUE((*memory)->hide({where}, frame));
    EXPECT_EQ((*memory)->parked(frame)[3 * page_size], std::byte{5});
  }
}

TEST(MissingTracker, SaysWhenMemoryIsSharedAndLeavesItsBytes) {
  auto tracker = open_missing_tracker();
  if (!tracker) GTEST_SKIP() << tracker.error().message;
  auto memory = Mapping::reserve({4 * page_size}, {page_size});
  ASSERT_TRUE(memory.ok());
  const Fd file{::memfd_create("shared", MFD_CLOEXEC)};
  ASSERT_EQ(::ftruncate(file.get(), 4 * page_size), 0);
  ASSERT_NE(::mmap(memory->data(), 4 * page_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0),
            MAP_FAILED);
  memory->data()[page_size] = std::byte{42};
  const auto armed = (*tracker)->arm(std::vector<AddressRange>{{memory->data(), 4 * page_size}});
  ASSERT_FALSE(armed.ok());
  EXPECT_THAT(armed.error().message, ::testing::HasSubstr("private anonymous memory of nobody else's userfaultfd"));
  EXPECT_EQ(memory->data()[page_size], std::byte{42});
}

TEST(MissingTracker, GivesEveryPageBackWhenItGoes) {
  auto memory = Mapping::reserve({600 * page_size}, {page_size});
  ASSERT_TRUE(memory.ok());
  for (std::size_t page = 0; page < 600; ++page)
    memory->data()[page * page_size] = static_cast<std::byte>(page % 251 + 1);
  {
    auto tracker = open_missing_tracker();
    if (!tracker) GTEST_SKIP() << tracker.error().message;
    ASSERT_TRUE((*tracker)->arm(std::vector<AddressRange>{{memory->data(), 600 * page_size}}).ok());
    memory->data()[7 * page_size] = std::byte{255};
  }
  for (std::size_t page = 0; page < 600; ++page)
    ASSERT_EQ(memory->data()[page * page_size], page == 7 ? std::byte{255} : static_cast<std::byte>(page % 251 + 1))
        << page;
}

// Nobody is quiet here: what is told may come a tick late, but no write is lost, and no fault goes unserved.
TEST_P(Tracker, LosesNoWriteOfThreadsThatDoNotWaitForTicks) {
  constexpr std::size_t writers = 3, busy_pages = 24;
  std::atomic<bool> ended{false};
  std::array<std::array<std::uint32_t, busy_pages>, writers> written{};
  arm();
  std::vector<std::thread> threads;
  for (std::size_t self = 0; self < writers; ++self) {
    threads.emplace_back([&, self] {
      auto* const words = reinterpret_cast<std::uint32_t*>(base_);
      for (std::size_t i = 0; !ended.load(); ++i) {
        const std::size_t page = (i * 7 + self) % busy_pages;
        std::atomic_ref word(words[page * page_size / 4 + self]);
        word.store(word.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        ++written[self][page];
      }
    });
  }
  for (int tick = 0; tick < 300; ++tick) {
    collect({range(0, busy_pages)});
    if (tick % 50 != 49) continue;
    ASSERT_TRUE(tracker_->disarm(std::vector{range(0, pages)}).ok());
    arm();
  }
  ended = true;
  for (std::thread& thread : threads) thread.join();
  for (std::size_t self = 0; self < writers; ++self)
    for (std::size_t page = 0; page < busy_pages; ++page)
      ASSERT_EQ(std::atomic_ref(reinterpret_cast<std::uint32_t*>(base_)[page * page_size / 4 + self]).load(),
                written[self][page])
          << self << ", " << page;
}

TEST(MprotectTracker, TellsThatAReadCameBeforeTheFirstWrite) {
  auto tracker = open_mprotect_tracker();
  ASSERT_TRUE(tracker.ok()) << tracker.error().message;
  auto memory = Mapping::reserve({2 * page_size}, {page_size});
  ASSERT_TRUE(memory.ok());
  const std::vector<AddressRange> all{{memory->data(), 2 * page_size}};
  ASSERT_TRUE((*tracker)->arm(all).ok());
  auto* const bytes = reinterpret_cast<volatile unsigned char*>(memory->data());
  static_cast<void>(bytes[0]);  // by itself: processors tell an instruction that reads and writes as a write
  bytes[0] = 1;
  bytes[page_size] = 1;
  std::vector<TouchedRange> touched;
  ASSERT_TRUE((*tracker)->collect(all, touched).ok());
  ASSERT_EQ(touched.size(), 2u);
  EXPECT_TRUE(touched[0].read && touched[0].written);
  EXPECT_TRUE(!touched[1].read && touched[1].written);
}

TEST(MprotectTracker, TellsLargerRunsRatherThanUsingUpTheMappings) {
  auto tracker = open_mprotect_tracker(64);
  ASSERT_TRUE(tracker.ok()) << tracker.error().message;
  EXPECT_THAT(std::string((*tracker)->mechanism()), ::testing::Not(::testing::HasSubstr("KiB")));
  constexpr std::size_t pages = 4096;
  auto memory = Mapping::reserve({pages * page_size}, {page_size});
  ASSERT_TRUE(memory.ok());
  const std::vector<AddressRange> all{{memory->data(), pages * page_size}};
  ASSERT_TRUE((*tracker)->arm(all).ok());
  for (std::size_t page = 0; page < pages; page += 2) memory->data()[page * page_size] = std::byte{1};
  EXPECT_THAT(std::string((*tracker)->mechanism()), ::testing::HasSubstr("raise vm.max_map_count"));
  std::vector<TouchedRange> touched;
  ASSERT_TRUE((*tracker)->collect(all, touched).ok());
  std::vector<bool> told(pages);
  for (const TouchedRange& run : touched) {
    EXPECT_TRUE(run.written);
    const auto first = static_cast<std::size_t>(run.pages.begin - memory->data()) / page_size;
    for (std::size_t i = 0; i < run.pages.bytes / page_size; ++i) told[first + i] = true;
  }
  for (std::size_t page = 0; page < pages; page += 2) EXPECT_TRUE(told[page]) << page;

  touched.clear();  // with the mappings free again, single pages are told again
  memory->data()[8 * page_size] = std::byte{1};
  ASSERT_TRUE((*tracker)->collect(all, touched).ok());
  ASSERT_EQ(touched.size(), 1u);
  EXPECT_EQ(touched[0].pages, (AddressRange{memory->data() + 8 * page_size, page_size}));
}

TEST(MprotectTracker, StaysWithinTheMappingsThatTheKernelAllows) {
  auto tracker = open_mprotect_tracker();
  ASSERT_TRUE(tracker.ok()) << tracker.error().message;
  constexpr std::size_t pages = 100'000;  // every second one would need 100,000 mappings; the default limit is 65,530
  auto memory = Mapping::reserve({pages * page_size}, {page_size});
  ASSERT_TRUE(memory.ok());
  const std::vector<AddressRange> all{{memory->data(), pages * page_size}};
  ASSERT_TRUE((*tracker)->arm(all).ok());
  unsigned char sum = 0;
  for (std::size_t page = 0; page < pages; page += 2) {
    sum = static_cast<unsigned char>(sum + reinterpret_cast<volatile unsigned char*>(memory->data())[page * page_size]);
  }
  EXPECT_EQ(sum, 0);
  std::vector<TouchedRange> touched;
  ASSERT_TRUE((*tracker)->collect(all, touched).ok());
  ASSERT_FALSE(touched.empty());
  EXPECT_EQ(touched.front().pages, (AddressRange{memory->data(), page_size})) << "the first ones are exact";
}

TEST(MprotectTracker, TwoTrackersWatchDifferentMemory) {
  auto one = open_mprotect_tracker();
  auto other = open_mprotect_tracker();
  ASSERT_TRUE(one.ok() && other.ok());
  auto memory = Mapping::reserve({4 * page_size}, {page_size});
  ASSERT_TRUE(memory.ok());
  const std::vector<AddressRange> low{{memory->data(), 2 * page_size}},
      high{{memory->data() + 2 * page_size, 2 * page_size}};
  ASSERT_TRUE((*one)->arm(low).ok());
  ASSERT_TRUE((*other)->arm(high).ok());
  memory->data()[page_size] = std::byte{1};
  memory->data()[2 * page_size] = std::byte{1};
  std::vector<TouchedRange> touched;
  ASSERT_TRUE((*one)->collect(low, touched).ok());
  ASSERT_TRUE((*other)->collect(high, touched).ok());
  ASSERT_EQ(touched.size(), 2u);
  EXPECT_EQ(touched[0].pages.begin, memory->data() + page_size);
  EXPECT_EQ(touched[1].pages.begin, memory->data() + 2 * page_size);
}

TEST(MprotectTracker, OpensItsPagesWhenItGoes) {
  auto memory = Mapping::reserve({4 * page_size}, {page_size});
  ASSERT_TRUE(memory.ok());
  {
    auto tracker = open_mprotect_tracker();
    ASSERT_TRUE(tracker.ok());
    ASSERT_TRUE((*tracker)->arm(std::vector<AddressRange>{{memory->data(), 4 * page_size}}).ok());
  }
  memory->data()[3 * page_size] = std::byte{1};
}

TEST(MprotectTrackerDeathTest, LeavesForeignFaultsToKillTheProcess) {
  auto tracker = open_mprotect_tracker();
  ASSERT_TRUE(tracker.ok());
  auto memory = Mapping::reserve({page_size}, {page_size});
  ASSERT_TRUE(memory.ok());
  ASSERT_EQ(::mprotect(memory->data(), page_size, PROT_NONE), 0);
  const auto died = [](int status) {  // of the signal; of their own handler's exit status under sanitizers
    return WIFSIGNALED(status) ? WTERMSIG(status) == SIGSEGV : WEXITSTATUS(status) != 0;
  };
  EXPECT_EXIT(*reinterpret_cast<volatile unsigned char*>(memory->data()) = 1, died, "");
}

}  // namespace
}  // namespace vedette::page_tracker_test
