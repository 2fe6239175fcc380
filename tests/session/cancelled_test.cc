// Threads that are cancelled (pthread_cancel) while a call of the library waits: it ends first, then the thread does,
// and what its scopes hold is let go.
#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <thread>

#include "session/loop.h"
#include "support/child.h"

namespace vedette::cancelled_test {
namespace {

using testing::exited_well;
using testing::in_child;
using testing::Loop;
using testing::open_session;

constexpr Bytes tight = 2_MiB;
constexpr std::size_t block_bytes = 200'000, layers = 8;

// Steps without end; every op waits for memory, and only between an op's begin and its work may the thread end.
void* train(void* session) {
  ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
  Loop loop(*static_cast<Session*>(session), layers, block_bytes);
  loop.in_op = [](std::size_t) { ::pthread_testcancel(); };
  for (std::uint64_t s = 0;; ++s) loop.step(s);
}

TEST(Cancelled, AThreadEndsWhenTheCallThatItWaitsInHasEnded) {
  const auto status = in_child([] {
    const auto session = open_session(tight, "nvme:.", "vedette");
    const std::uint64_t expected = Loop(*session, layers, block_bytes).step(1);
    for (int round = 0; round < 20; ++round) {
      pthread_t thread{};
      if (::pthread_create(&thread, nullptr, train, session.get()) != 0) ::_exit(3);
      std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
      ::pthread_cancel(thread);
      void* ended = nullptr;
      ::pthread_join(thread, &ended);
      if (ended != PTHREAD_CANCELED) ::_exit(4);
      if (session->counters().live_bytes.value != 0) ::_exit(5);
    }
    if (Loop(*session, layers, block_bytes).step(1) != expected) ::_exit(6);
  });
  EXPECT_TRUE(exited_well(status)) << status.value_or(-1);
}

}  // namespace
}  // namespace vedette::cancelled_test
