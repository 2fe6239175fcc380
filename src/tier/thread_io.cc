// The way for containers that forbid io_uring: a few threads in pread and pwrite. A transfer costs two thread switches
// more than a ring's; the bandwidth is the same as long as the threads are as many as the device wants requests in
// flight.
//
// States of a transfer: waiting_ -> a worker's hands -> ended_, all under mutex_.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/assert.h"
#include "base/quiet_thread.h"
#include "tier/io_queue.h"

namespace vedette {
namespace {

constexpr std::uint32_t most_threads = 8;  // requests in the device at once; flat beyond (bench/migrate)

class ThreadQueue final : public IoQueue {
 public:
  explicit ThreadQueue(const IoQueueOptions& options) : options_(options) {
    waiting_.resize(options.depth);
    ended_.resize(options.depth);
    const std::uint32_t count = std::min(options.depth, most_threads);
    for (std::uint32_t i = 0; i < count; ++i) {
      workers_.push_back(start_quiet_thread<std::jthread>([this](std::stop_token stop) noexcept { work(stop); }));
    }
  }

  void register_memory(std::byte*, Bytes) override {}
  void submit(std::span<const StoreRequest> requests) noexcept override;
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override;
  void wake() noexcept override;
  std::string mechanism() const override {
    return "pread and pwrite by " + std::to_string(workers_.size()) + " threads";
  }
  std::string remark() const override { return {}; }

 private:
  void work(const std::stop_token& stop) noexcept;
  void run(Transfer& transfer) const noexcept;

  IoQueueOptions options_;
  std::mutex mutex_;
  std::condition_variable_any arrived_;  // in waiting_
  std::condition_variable finished_;     // in ended_, or woken_
  // Both have room for depth() from the start (rings of a fixed size), so that no call can run out of memory.
  std::vector<StoreRequest> waiting_;
  std::vector<StoreCompletion> ended_;
  std::uint64_t submitted_ = 0, taken_ = 0;     // places in waiting_, modulo depth
  std::uint64_t completed_ = 0, returned_ = 0;  // places in ended_, modulo depth
  bool woken_ = false;
  std::vector<std::jthread> workers_;  // last: joined before the rest goes
};

void ThreadQueue::run(Transfer& transfer) const noexcept {
  const StoreRequest& request = transfer.request;
  for (;;) {
    std::byte* memory = request.memory + transfer.done;
    const std::uint64_t length = options_.slot_bytes.value - transfer.done;
    const auto offset = static_cast<off_t>(request.slot.value * options_.slot_bytes.value + transfer.done);
    const ssize_t moved = request.direction == StoreRequest::Direction::read
                              ? ::pread(options_.file, memory, length, offset)
                              : ::pwrite(options_.file, memory, length, offset);
    if (advance(transfer, moved < 0 ? -errno : moved, options_.slot_bytes)) return;
  }
}

void ThreadQueue::work(const std::stop_token& stop) noexcept {
  std::unique_lock lock(mutex_);
  while (arrived_.wait(lock, stop, [this] { return taken_ < submitted_; })) {
    Transfer transfer{.request = waiting_[taken_++ % options_.depth]};
    lock.unlock();
    run(transfer);
    lock.lock();
    ended_[completed_++ % options_.depth] = {.token = transfer.request.token, .error = transfer.error};
    finished_.notify_one();
  }
}

void ThreadQueue::submit(std::span<const StoreRequest> requests) noexcept {
  {
    const std::lock_guard lock(mutex_);
    for (const StoreRequest& request : requests) {
      VEDETTE_ASSERT(submitted_ - returned_ < options_.depth);  // at most depth() in flight
      VEDETTE_ASSERT(reinterpret_cast<std::uintptr_t>(request.memory) % io_alignment == 0);
      waiting_[submitted_++ % options_.depth] = request;
    }
  }
  for (std::size_t i = 0; i < std::min(requests.size(), workers_.size()); ++i) arrived_.notify_one();
}

std::size_t ThreadQueue::wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds longest = std::chrono::hours(24 * 365);  // now() + timeout does not overflow
  const auto deadline = Clock::now() + std::min(longest, std::chrono::nanoseconds(timeout.value));
  std::unique_lock lock(mutex_);
  finished_.wait_until(lock, deadline, [this] { return woken_ || returned_ < completed_; });
  woken_ = false;
  std::size_t count = 0;
  while (count < out.size() && returned_ < completed_) out[count++] = ended_[returned_++ % options_.depth];
  return count;
}

void ThreadQueue::wake() noexcept {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  finished_.notify_one();
}

}  // namespace

Result<std::unique_ptr<IoQueue>> open_thread_queue(const IoQueueOptions& options) try {
  return std::unique_ptr<IoQueue>(std::make_unique<ThreadQueue>(options));
} catch (const std::system_error& error) {
  return Error{.cause = Cause::unavailable,
               .message = std::string("starting threads for disk transfers: ") + error.what() + "; raise ulimit -u",
               .errno_value = error.code().value()};
}

}  // namespace vedette
