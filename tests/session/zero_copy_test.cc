// Zero-copy sends keep pages, not addresses: what they send must stay in its frame until it has arrived.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "session/loop.h"

namespace vedette::zero_copy_test {
namespace {

using testing::Block;
using testing::open_session;

constexpr std::size_t sent_bytes = 256 << 10;

struct Ends {
  Fd in, out;
};

Ends connection() {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), any, length) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), any, &length) != 0)
    return {};
  Ends ends{.in = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), .out = {}};
  if (::connect(ends.in.get(), any, length) != 0) return {};
  ends.out = Fd(::accept(listener.get(), nullptr, nullptr));
  const int on = 1;
  if (::setsockopt(ends.in.get(), SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) != 0) return {};
  return ends;
}

Ends pipe_of(int bytes) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return {};
  Ends made{.in = Fd(ends[1]), .out = Fd(ends[0])};
  if (::fcntl(ends[1], F_SETPIPE_SZ, bytes) < bytes) return {};
  return made;
}

// Sixty blocks pass through a budget of sixteen chunks: what is not held leaves, and its frame gets other bytes.
void let_everything_move(Session& session) {
  std::vector<Block> others;
  for (std::uint64_t b = 0; b < 60; ++b) {
    others.emplace_back(session, 64 << 10);
    others[b].fill(1000 + b);
  }
  for (std::uint64_t b = 0; b < 60; ++b) EXPECT_TRUE(others[b].holds(1000 + b));
}

std::string received(const Fd& out, std::size_t bytes) {
  std::string got(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t count = ::read(out.get(), got.data() + have, bytes - have);
    if (count <= 0) break;
    have += static_cast<std::size_t>(count);
  }
  got.resize(have);
  return got;
}

std::string bytes_of(const Block& block, std::size_t bytes) {
  return {static_cast<const char*>(block.address()), bytes};
}

TEST(ZeroCopy, ASendOfMemoryThatIsHeldArrives) {
  const Ends ends = connection();
  if (!ends.in || !ends.out) GTEST_SKIP() << "no zero-copy sends over TCP here";
  const auto session = open_session(1_MiB, "host", "on-demand");
  Block block(*session, sent_bytes);
  block.fill(1);
  const auto held = session->resident(block.address());
  const ssize_t sent = ::send(ends.in.get(), block.address(), sent_bytes, MSG_ZEROCOPY | MSG_DONTWAIT);
  if (sent < 0) GTEST_SKIP() << "send(MSG_ZEROCOPY): " << std::strerror(errno);
  let_everything_move(*session);
  EXPECT_GT(session->counters().bytes_out.value, 0u);
  EXPECT_TRUE(received(ends.out, static_cast<std::size_t>(sent)) == bytes_of(block, static_cast<std::size_t>(sent)));
}

TEST(ZeroCopy, PagesOfMemoryThatIsHeldArriveThroughAPipe) {
  const Ends ends = pipe_of(sent_bytes);
  if (!ends.in || !ends.out) GTEST_SKIP() << "no pipe of " << sent_bytes << " bytes here";
  const auto session = open_session(1_MiB, "host", "on-demand");
  Block block(*session, sent_bytes);
  block.fill(2);
  const auto held = session->resident(block.address());
  const iovec all{const_cast<void*>(block.address()), sent_bytes};
  const ssize_t sent = ::vmsplice(ends.in.get(), &all, 1, SPLICE_F_NONBLOCK);
  ASSERT_GT(sent, 0) << std::strerror(errno);
  let_everything_move(*session);
  EXPECT_GT(session->counters().bytes_out.value, 0u);
  EXPECT_TRUE(received(ends.out, static_cast<std::size_t>(sent)) == bytes_of(block, static_cast<std::size_t>(sent)));
}

}  // namespace
}  // namespace vedette::zero_copy_test
