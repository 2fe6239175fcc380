// Jobs in pieces: see disk_thread.h.
#include "gpu/disk_thread.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/quiet_thread.h"

namespace vedette {
namespace {

constexpr Nanoseconds glance{1'000'000'000};  // wake() ends it

}  // namespace

DiskThread::DiskThread(std::unique_ptr<Store> store)
    : store_(std::move(store)),
      piece_(store_->slot_bytes()),
      thread_(start_quiet_thread([this]() noexcept { serve(); })) {}

DiskThread::~DiskThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  store_->wake();
  thread_.join();
}

DiskThread::JobNumber DiskThread::begin(Job job) {
  JobNumber number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = next_++;
    running_.emplace(number, Running{.job = std::move(job)});
    waiting_.push_back(number);
  }
  changed_.notify_all();
  store_->wake();
  return number;
}

std::optional<int> DiskThread::ended(JobNumber job) {
  const std::lock_guard lock(mutex_);
  const auto found = ended_.find(job);
  if (found == ended_.end()) return std::nullopt;
  const int error = found->second;
  ended_.erase(found);
  return error;
}

int DiskThread::wait(JobNumber job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_.contains(job); });
  const int error = ended_.at(job);
  ended_.erase(job);
  return error;
}

// The store takes the requests without the lock.
void DiskThread::submit_some_unlocking(std::unique_lock<std::mutex>& lock) {
  std::vector<StoreRequest> batch;
  while (!waiting_.empty() && in_flight_ < store_->depth()) {
    const JobNumber number = waiting_.front();
    Running& running = running_.at(number);
    const std::size_t piece = running.submitted++;
    batch.push_back({.direction = running.job.direction,
                     .slot = running.job.pieces[piece],
                     .memory = running.job.memory + piece * piece_.value,
                     .token = number});
    ++in_flight_;
    if (running.submitted == running.job.pieces.size()) waiting_.pop_front();
  }
  if (batch.empty()) return;
  lock.unlock();
  store_->submit(batch);
  lock.lock();
}

void DiskThread::take_completions() noexcept {
  std::array<StoreCompletion, 64> done;
  const std::size_t count = store_->wait(done, glance);
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < count; ++i) {
    const auto found = running_.find(done[i].token);
    Running& running = found->second;
    --in_flight_;
    if (running.error == 0) running.error = done[i].error;
    if (++running.completed < running.job.pieces.size()) continue;
    ended_[found->first] = running.error;
    running_.erase(found);
  }
  if (count > 0) changed_.notify_all();
}

void DiskThread::serve() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !running_.empty(); });
    if (running_.empty()) break;  // stopping
    submit_some_unlocking(lock);
    lock.unlock();
    take_completions();
    lock.lock();
  }
}

}  // namespace vedette
