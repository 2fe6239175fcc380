#include "os/gate.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <span>

#include "base/assert.h"
#include "base/quiet_thread.h"
#include "os/uffd.h"

namespace vedette {
namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) noexcept {
  // returns at once when the word has changed
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// write(2) without the C library: there a cancelled thread would end, even one that has just forbidden it (glibc).
long write_uncancelled(int fd, const Fault& fault) noexcept { return ::syscall(SYS_write, fd, &fault, sizeof fault); }

bool is_open(std::uint32_t word) noexcept { return (word & 1) != 0; }

// The last fault of this thread that found its gate open. While a gate's word stays the same its chunk stays
// accessible, so a second fault of the same address under the same word is not late: it has a cause that is not ours.
struct Late {
  const std::byte* address = nullptr;
  std::uint32_t word = 0;
};
// initial-exec, because the first touch of other thread-local memory may allocate.
__attribute__((tls_model("initial-exec"))) thread_local Late last_late;

}  // namespace

Gate::Gate(const Layout& layout, FaultSink on_fault)
    : layout_(layout), on_fault_(std::move(on_fault)), words_(new std::atomic<std::uint32_t>[layout.chunks()]) {
  for (std::uint32_t i = 0; i < layout.chunks(); ++i) words_[i].store(0, std::memory_order_relaxed);
}

Result<std::unique_ptr<Gate>> Gate::make(const Layout& layout, FaultSink on_fault) {
  std::unique_ptr<Gate> gate(new Gate(layout, std::move(on_fault)));
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("pipe for page faults", errno, "raise ulimit -n");
  gate->told_ = Fd(ends[0]);
  gate->tell_ = Fd(ends[1]);
  gate->thread_ = start_quiet_thread([raw = gate.get()] { raw->run(); });
  auto claim = SegvClaim::make(SegvOrder::memory, layout.arena(), layout.arena_bytes(), &Gate::on_segv, gate.get());
  if (!claim) return claim.error();
  gate->claim_ = std::make_unique<SegvClaim>(std::move(claim).value());
  return gate;
}

Gate::~Gate() {
  if (claim_) claim_->retire();
  gone_.store(true);
  for (std::uint32_t i = 0; i < layout_.chunks(); ++i) {
    words_[i].fetch_add(2);  // a thread that is about to sleep sees another word
    futex_wake(words_[i]);
  }
  claim_.reset();  // no thread waits here any more
  tell_.reset();   // the end of the pipe ends the thread
  if (thread_.joinable()) thread_.join();
}

void Gate::open(ChunkIndex chunk) noexcept {
  VEDETTE_ASSERT(chunk.value < layout_.chunks());
  std::atomic<std::uint32_t>& word = words_[chunk.value];
  // release: pairs with the acquire in wait(); a thread that sees the gate open sees the chunk mapped
  const std::uint32_t before = word.fetch_add(1, std::memory_order_release);
  VEDETTE_ASSERT(!is_open(before));
  futex_wake(word);
}

void Gate::close(ChunkIndex chunk) noexcept {
  VEDETTE_ASSERT(chunk.value < layout_.chunks());
  // The mapping is changed after this and a fault of it enters wait() later still: the system calls in between order
  // it.
  const std::uint32_t before = words_[chunk.value].fetch_add(1, std::memory_order_acq_rel);
  VEDETTE_ASSERT(is_open(before));
}

void Gate::ask_again(ChunkIndex chunk) noexcept {
  std::atomic<std::uint32_t>& word = words_[chunk.value];
  if (is_open(word.load(std::memory_order_relaxed))) return;
  word.fetch_add(2);  // stays closed
  futex_wake(word);
}

SegvAnswer Gate::on_segv(void* gate, std::byte* address, bool write) noexcept {
  Gate& self = *static_cast<Gate*>(gate);
  if (self.made_in_ != this_process()) return SegvAnswer::pass;
  const auto fault = self.layout_.fault(address, write);
  return fault ? self.wait(*fault, address) : SegvAnswer::pass;
}

SegvAnswer Gate::wait(const Fault& fault, const std::byte* address) noexcept {
  std::atomic<std::uint32_t>& word = words_[fault.chunk.value];
  bool waited = false;
  for (;;) {
    const std::uint32_t seen = word.load(std::memory_order_acquire);
    if (gone_.load()) return SegvAnswer::pass;
    if (is_open(seen)) {
      if (waited) return SegvAnswer::retry;
      const bool again = last_late.address == address && last_late.word == seen;
      last_late = {address, seen};
      return again ? SegvAnswer::pass : SegvAnswer::stale;
    }
    // Smaller than PIPE_BUF: written whole or not at all. A full pipe makes us wait for the reader, never lose a fault.
    while (write_uncancelled(tell_.get(), fault) < 0) {
      if (errno != EINTR && errno != EAGAIN) die("the pipe to the thread that serves page faults is broken");
    }
    futex_wait(word, seen);
    waited = true;
  }
}

void Gate::run() noexcept {
  std::array<Fault, 64> faults;
  static_assert(sizeof(Fault) <= 64 && std::is_trivially_copyable_v<Fault>);
  for (;;) {
    const ssize_t bytes = ::read(told_.get(), faults.data(), sizeof faults);
    if (bytes == 0) return;
    if (bytes < 0) {
      if (errno == EINTR) continue;
      die("the thread that serves page faults cannot read them any more");
    }
    if (static_cast<std::size_t>(bytes) % sizeof(Fault) != 0) die("a page fault was told in part");
    for (const Fault& fault : std::span(faults).first(static_cast<std::size_t>(bytes) / sizeof(Fault)))
      on_fault_(fault);
  }
}

}  // namespace vedette
