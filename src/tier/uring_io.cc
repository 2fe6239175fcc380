// The io_uring way: one ring, one thread that submits and waits, so the ring may leave all completion work to that
// thread (SINGLE_ISSUER, DEFER_TASKRUN; Linux >= 6.1) instead of interrupting it. The ring is made on another thread
// than the one that uses it, so it starts disabled (R_DISABLED) and the first submit() or wait() makes its caller the
// issuer.
//
// wake() is an eventfd whose read always waits in the ring, so wait() blocks in one place. The eventfd is only a kick;
// the truth is woken_, so a wake() without a sleeper costs no system call and a late kick ends no wait by itself.
#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "base/assert.h"
#include "base/children.h"
#include "base/fd.h"
#include "tier/io_queue.h"

namespace vedette {
namespace {

constexpr std::uint64_t kick_user_data = ~std::uint64_t{0};
constexpr std::uint64_t registered_piece_bytes = std::uint64_t{1} << 30;  // the most the kernel takes as one buffer
constexpr unsigned registered_pieces = 1024;  // entries of the ring's table: 1 TiB of frames

using Clock = std::chrono::steady_clock;

struct RegisteredPiece {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
};

class UringQueue final : public IoQueue {
 public:
  explicit UringQueue(const IoQueueOptions& options) : options_(options), transfers_(options.depth) {
    for (std::uint32_t i = options.depth; i > 0; --i) free_.push_back(i - 1);
  }
  ~UringQueue() override {
    alone_.reset();
    if (open_) io_uring_queue_exit(&ring_);
  }

  Result<void> open();
  void register_memory(std::byte* memory, Bytes bytes) override;
  void submit(std::span<const StoreRequest> requests) noexcept override;
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override;
  void wake() noexcept override;
  std::string mechanism() const override { return "io_uring"; }
  std::string remark() const override { return remark_; }

 private:
  void enable() noexcept;
  void flush() noexcept;
  void prepare(std::uint32_t index) noexcept;
  void prepare_kick() noexcept;
  std::size_t reap(std::span<StoreCompletion> out) noexcept;
  void sleep(Clock::time_point deadline) noexcept;
  int buffer_of(const std::byte* memory) const noexcept;
  int register_piece(const RegisteredPiece& piece) noexcept;

  IoQueueOptions options_;
  io_uring ring_{};
  std::optional<ClosedInChildren> alone_;  // of the ring: it pins registered buffers
  bool open_ = false;
  bool disabled_ = false;            // the ring waits for its issuer
  std::vector<Transfer> transfers_;  // user_data of a request is its place here
  std::vector<std::uint32_t> free_;
  std::vector<RegisteredPiece> pieces_;  // the place is the kernel's buffer index
  bool table_ = false;                   // the kernel's buffer table is there
  std::string remark_;
  Fd kick_;
  std::uint64_t kick_value_ = 0;
  bool kick_armed_ = false;
  std::atomic<bool> woken_{false};
  std::atomic<bool> asleep_{false};
};

Error no_uring(int code) {
  return Error{.cause = Cause::unavailable,
               .message = std::string("io_uring: ") + std::strerror(code) +
                          "; allow it (sysctl kernel.io_uring_disabled=0, and the container's seccomp profile)",
               .errno_value = code};
}

Result<void> UringQueue::open() {
  kick_ = Fd(::eventfd(0, EFD_CLOEXEC));
  if (!kick_) return no_uring(errno);
  // Best first; a kernel that does not know a flag says EINVAL.
  constexpr unsigned alone = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED;
  int code = -EINVAL;
  for (const unsigned flags : {alone, unsigned{IORING_SETUP_COOP_TASKRUN}, 0U}) {
    code = io_uring_queue_init(options_.depth + 1, &ring_, flags);  // + 1: the kick
    disabled_ = (flags & IORING_SETUP_R_DISABLED) != 0;
    if (code != -EINVAL) break;
  }
  if (code < 0) return no_uring(-code);
  open_ = true;
  alone_.emplace(ring_.ring_fd);
  io_uring_ring_dontfork(&ring_);  // a refusal costs a child's parent nothing before it ends
  if ((ring_.features & IORING_FEAT_EXT_ARG) == 0) return no_uring(ENOSYS);  // Linux < 5.11: wait() could not time out
  return {};
}

// The kernel keeps pages of registered buffers pinned, so requests skip looking them up: a third of a request's CPU.
void UringQueue::register_memory(std::byte* memory, Bytes bytes) {
  if (!options_.register_buffers) return;
  if (bytes.value == 0) {
    if (!pieces_.empty()) io_uring_unregister_buffers(&ring_);
    pieces_.clear();
    remark_ = "buffers not registered any more";
    return;
  }
  if (!table_) {
    const int code = io_uring_register_buffers_sparse(&ring_, registered_pieces);
    if (code < 0) {
      remark_ = std::string("buffers not registered (") + std::strerror(-code) + "; Linux >= 5.19 can)";
      return;
    }
    table_ = true;
  }
  const std::uint64_t step = registered_piece_bytes - registered_piece_bytes % options_.slot_bytes.value;
  for (std::uint64_t at = 0; at < bytes.value; at += step) {
    const RegisteredPiece piece{memory + at, memory + std::min(at + step, bytes.value)};
    const int code = register_piece(piece);
    if (code < 0) {
      remark_ = std::string("buffers not registered (") + std::strerror(-code) +
                (code == -ENOMEM   ? "; raise the memory lock limit, ulimit -l)"
                 : code == -EEXIST ? ", asked from a thread that does not own the ring)"
                                   : ")");
      return;
    }
    pieces_.push_back(piece);
  }
  if (remark_.empty()) remark_ = "registered buffers";
}

int UringQueue::register_piece(const RegisteredPiece& piece) noexcept {
  if (pieces_.size() >= registered_pieces) return -ENOSPC;
  const iovec range{piece.begin, static_cast<std::size_t>(piece.end - piece.begin)};
  const __u64 tag = 0;
  const int code = io_uring_register_buffers_update_tag(&ring_, static_cast<unsigned>(pieces_.size()), &range, &tag, 1);
  return code < 0 ? code : 0;
}

int UringQueue::buffer_of(const std::byte* memory) const noexcept {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (memory >= pieces_[i].begin && memory + options_.slot_bytes.value <= pieces_[i].end) return static_cast<int>(i);
  }
  return -1;
}

void UringQueue::enable() noexcept {
  if (!disabled_) return;
  // By hand: liburing 2.3 declares io_uring_enable_rings() and forgets to export it.
  VEDETTE_ASSERT(::syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0) >= 0);
  disabled_ = false;
}

void UringQueue::prepare(std::uint32_t index) noexcept {
  const Transfer& transfer = transfers_[index];
  const StoreRequest& request = transfer.request;
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  VEDETTE_ASSERT(sqe != nullptr);  // the ring has room for depth() transfers and the kick
  std::byte* memory = request.memory + transfer.done;
  const auto length = static_cast<unsigned>(options_.slot_bytes.value - transfer.done);
  const std::uint64_t offset = request.slot.value * options_.slot_bytes.value + transfer.done;
  const int buffer = pieces_.empty() ? -1 : buffer_of(request.memory);
  const bool read = request.direction == StoreRequest::Direction::read;
  if (buffer < 0) {
    read ? io_uring_prep_read(sqe, options_.file, memory, length, offset)
         : io_uring_prep_write(sqe, options_.file, memory, length, offset);
  } else {
    read ? io_uring_prep_read_fixed(sqe, options_.file, memory, length, offset, buffer)
         : io_uring_prep_write_fixed(sqe, options_.file, memory, length, offset, buffer);
  }
  io_uring_sqe_set_data64(sqe, index);
}

void UringQueue::prepare_kick() noexcept {
  if (kick_armed_) return;
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  VEDETTE_ASSERT(sqe != nullptr);
  io_uring_prep_read(sqe, kick_.get(), &kick_value_, sizeof kick_value_, 0);
  io_uring_sqe_set_data64(sqe, kick_user_data);
  kick_armed_ = true;
}

// Requests that the kernel does not take now (EAGAIN, EBUSY: no memory for them) stay in the ring, and wait() hands
// them over.
void UringQueue::flush() noexcept {
  while (io_uring_sq_ready(&ring_) > 0) {
    const int code = io_uring_submit(&ring_);
    if (code <= 0 && code != -EINTR) break;
  }
}

void UringQueue::submit(std::span<const StoreRequest> requests) noexcept {
  enable();
  for (const StoreRequest& request : requests) {
    VEDETTE_ASSERT(!free_.empty());  // at most depth() in flight
    VEDETTE_ASSERT(reinterpret_cast<std::uintptr_t>(request.memory) % io_alignment == 0);
    const std::uint32_t index = free_.back();
    free_.pop_back();
    transfers_[index] = Transfer{.request = request};
    prepare(index);
  }
  flush();
}

std::size_t UringQueue::reap(std::span<StoreCompletion> out) noexcept {
  std::size_t count = 0;
  io_uring_cqe* cqe = nullptr;
  while (count < out.size() && io_uring_peek_cqe(&ring_, &cqe) == 0 && cqe != nullptr) {
    const std::uint64_t data = cqe->user_data;
    const std::int32_t result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    if (data == kick_user_data) {
      kick_armed_ = false;
      continue;
    }
    const auto index = static_cast<std::uint32_t>(data);
    Transfer& transfer = transfers_[index];
    if (!advance(transfer, result, options_.slot_bytes)) {
      prepare(index);
      continue;
    }
    out[count++] = StoreCompletion{.token = transfer.request.token, .error = transfer.error};
    free_.push_back(index);
  }
  return count;
}

// One system call that hands over prepared requests, runs the completions' deferred work and blocks until one is there.
void UringQueue::sleep(Clock::time_point deadline) noexcept {
  prepare_kick();
  asleep_.store(true, std::memory_order_seq_cst);  // pairs with wake(): one of the two sees the other's store
  if (!woken_.load(std::memory_order_seq_cst)) {
    const auto left = std::max(Clock::duration{0}, deadline - Clock::now());
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    __kernel_timespec limit{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    io_uring_cqe* cqe = nullptr;
    io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &limit, nullptr);
  }
  asleep_.store(false, std::memory_order_relaxed);
}

std::size_t UringQueue::wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept {
  enable();
  const Clock::time_point now = Clock::now();
  const bool forever = timeout.value > std::chrono::nanoseconds(Clock::time_point::max() - now).count();
  const Clock::time_point deadline = forever ? Clock::time_point::max() : now + std::chrono::nanoseconds(timeout.value);
  for (bool slept = false;; slept = true) {
    const std::size_t count = reap(out);
    if (count > 0) flush();  // the rest of a short transfer does not wait for the caller's next visit
    const bool woken = woken_.exchange(false, std::memory_order_seq_cst);
    if (count > 0 || woken) return count;
    if (slept && Clock::now() >= deadline) return 0;
    sleep(deadline);
  }
}

void UringQueue::wake() noexcept {
  woken_.store(true, std::memory_order_seq_cst);  // pairs with sleep()
  if (!asleep_.load(std::memory_order_seq_cst)) return;
  const std::uint64_t one = 1;
  while (::write(kick_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

}  // namespace

Result<std::unique_ptr<IoQueue>> open_uring_queue(const IoQueueOptions& options) {
  auto queue = std::make_unique<UringQueue>(options);
  if (auto opened = queue->open(); !opened) return opened.error();
  return std::unique_ptr<IoQueue>(std::move(queue));
}

}  // namespace vedette
