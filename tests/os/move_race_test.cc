// Pages move while other threads touch them and while their age is cleared, as memory pressure does. The kernel then
// retries pages in the middle of a move, and Linux 6.18 miscounts the pages that it has moved
// (Userfaultfd::moved_untold). Every move must nevertheless be whole, no byte wrong, no thread left waiting.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "os/test_pager.h"

namespace vedette {
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

}  // namespace
}  // namespace vedette
