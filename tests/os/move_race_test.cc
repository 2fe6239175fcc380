// Pages move while other threads touch them and while their age is cleared, as memory pressure does. The kernel then
// retries pages in the middle of a move, and Linux 6.18 miscounts the pages that it has moved
// (Userfaultfd::moved_untold). Every move must nevertheless be whole, no byte wrong, no thread left waiting.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/mapping.h"
#include "os/test_pager.h"
#include "os/uapi.h"
#include "os/uffd.h"

namespace vedette::move_race_test {
namespace {

using testing::Pager;

TEST(MoveRace, MovesAreWholeWhileOthersTouchThePagesAndTheirAgeIsCleared) {
  constexpr std::size_t chunk_bytes = 64 << 10;
  Pager pager(&open_move_memory, 2, 1, chunk_bytes, 3);
  if (!pager.error().empty()) GTEST_SKIP() << pager.error();
  std::byte* const chunk = pager.chunk(0);
  for (std::size_t i = 0; i < chunk_bytes; i += 4096) chunk[i] = static_cast<std::byte>(i / 4096 + 1);
  // is there: what its thread did for the first touch comes before what this one does below
  pager.fetch(0);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0}, rounds{0};
  std::thread reader([&] {
    for (; !stop; ++rounds)
      for (std::size_t i = 0; i < chunk_bytes; i += 4096)
        wrong += *reinterpret_cast<volatile std::byte*>(chunk + i) == static_cast<std::byte>(i / 4096 + 1) ? 0 : 1;
  });
  std::thread pressure([&] {
    while (!stop) ::madvise(chunk, chunk_bytes, MADV_COLD);
  });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  std::uint64_t moves = 0;
  for (; std::chrono::steady_clock::now() < until; moves += 2) {
    // the pager goes on thinking that it is shown, and tells who waits to try again
    if (!pager.memory().hide({0}, {0})) continue;
    pager.memory().show({0}, {0});
  }
  stop = true;
  reader.join();
  pressure.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(rounds, 0u);
  EXPECT_GT(moves, 0u);
}

// What that kernel leaves behind, made by hand: the first pages have come, and the call for all of them says EEXIST.
class UntoldPages : public ::testing::Test {
 protected:
  static constexpr std::size_t page = 4096, pages = 8;

  void SetUp() override {
    auto opened = Userfaultfd::open(uapi::feature_move);
    if (!opened) GTEST_SKIP() << opened.error().message;
    userfaultfd_.emplace(std::move(*opened));
    for (Mapping* each : {&from_, &to_}) *each = Mapping::reserve({pages * page}, {page}).value();
    for (std::size_t i = 0; i < pages; ++i) from_.data()[i * page] = static_cast<std::byte>(i + 1);
    ASSERT_EQ(userfaultfd_->register_missing(to_.data(), pages * page), 0);
  }
  // No look at a page that is missing: that would wait for ever.
  static std::array<unsigned char, pages> there(const Mapping& mapping) {
    std::array<unsigned char, pages> found{};
    EXPECT_EQ(::mincore(mapping.data(), pages * page, found.data()), 0);
    return found;
  }
  void move(std::size_t first, std::size_t count) {
    userfaultfd_->move(to_.data() + first * page, from_.data() + first * page, count * page);
  }

  std::optional<Userfaultfd> userfaultfd_;
  Mapping from_, to_;
};

TEST_F(UntoldPages, AreNotTheWholeMove) {
  move(0, 3);
  move(0, pages);
  EXPECT_EQ(there(to_), (std::array<unsigned char, pages>{1, 1, 1, 1, 1, 1, 1, 1}));
  ASSERT_FALSE(HasFailure());
  for (std::size_t i = 0; i < pages; ++i) EXPECT_EQ(to_.data()[i * page], static_cast<std::byte>(i + 1)) << i;
}

TEST_F(UntoldPages, AreNotThoseThatSomebodyElseHasPutThere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a forked child's memory is none of this userfaultfd's
  std::array<std::byte, page> foreign{};
  ASSERT_EQ(userfaultfd_->copy_in(to_.data(), foreign.data(), page, false), 0);
  EXPECT_DEATH(move(0, pages), "holds pages already");
}

}  // namespace
}  // namespace vedette::move_race_test
