// Buckets, and which of them the running step follows: see buckets.h.
#include "session/buckets.h"

#include <algorithm>
#include <utility>

#include "session/step_logger.h"

namespace vedette::detail {

Bucket::Bucket(std::uint64_t id, StepLog log, std::span<const std::uint64_t> hashes, AddressPlan addresses,
               StepPlan::Options options)
    : plan(log, options), id_(id), log_(std::move(log)), addresses_(std::move(addresses)) {
  for (const std::uint64_t hash : hashes) prefixes_.push_back(mix(prefixes_.empty() ? 0 : prefixes_.back(), hash));
  program_ = program_trace(log_, &program_logged_);
}

void Bucket::profiled(std::uint64_t step, std::uint32_t unplanned_chunks) {
  last_run_ = step;
  unplanned_ = unplanned_chunks;
}

void Bucket::ran(std::uint64_t step) {
  if (step != last_run_ + 1) follows_since_ = step;
  last_run_ = step;
  ++runs_;
}

Bucket& BucketStore::add(std::unique_ptr<Bucket> fresh) {
  latest_ = fresh.get();
  buckets_.push_back(std::move(fresh));
  return *latest_;
}

bool BucketStore::follow(std::size_t op, std::uint64_t prefix) {
  if (current_ != nullptr && current_->begins(op, prefix)) return false;
  Bucket* const before = std::exchange(current_, nullptr);
  for (const auto& other : buckets_)
    if (other->begins(op, prefix)) current_ = other.get();
  return current_ != before;
}

std::unique_ptr<Bucket> BucketStore::retire() {
  if (buckets_.size() <= most_buckets) return nullptr;
  const auto oldest = std::min_element(buckets_.begin(), buckets_.end(),
                                       [](const auto& a, const auto& b) { return a->last_run() < b->last_run(); });
  std::unique_ptr<Bucket> gone = std::move(*oldest);
  buckets_.erase(oldest);
  return gone;
}

void BucketStore::clear() {
  current_ = latest_ = nullptr;
  buckets_.clear();
}

}  // namespace vedette::detail
