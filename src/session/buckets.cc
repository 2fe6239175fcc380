// Buckets, and which of them the running step follows: see buckets.h.
#include "session/buckets.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "session/step_logger.h"

namespace vedette::detail {

namespace {

Bucket::Extent extent_of(const LoggedTensor& tensor) { return {.offset = tensor.offset, .bytes = tensor.bytes}; }

}  // namespace

Bucket::Program Bucket::program_of(const StepLog& log, std::vector<std::uint32_t>* tensors) {
  std::vector<std::uint32_t> logged;
  Trace trace = program_trace(log, &logged);
  add_beside(trace, log);
  Program program{.trace = PackedTrace(std::move(trace))};
  program.places.reserve(logged.size());
  for (const std::uint32_t t : logged) program.places.push_back(extent_of(log.tensors[t]));
  if (tensors != nullptr) *tensors = std::move(logged);
  return program;
}

Bucket::Bucket(std::uint64_t id, const StepLog& log, std::span<const std::uint64_t> hashes, AddressPlan addresses,
               StepPlan::Options options, std::vector<std::uint32_t>* tensors)
    : program_(program_of(log, tensors)), plan(log, options), id_(id), addresses_(std::move(addresses)) {
  prefixes_.reserve(hashes.size());
  for (const std::uint64_t hash : hashes) prefixes_.push_back(mix(prefixes_.empty() ? 0 : prefixes_.back(), hash));
  for (const LoggedTensor& t : log.tensors)
    if (t.in_parts) in_parts_.push_back(extent_of(t));
}

const Trace& Bucket::told_program() {
  if (!told_program_) told_program_ = program();
  return *told_program_;
}

Bytes Bucket::books() const noexcept {
  constexpr std::uint64_t an_op = 450, a_tensor = 500;
  const std::uint64_t times = as_logged_ == nullptr ? 1 : 2;
  return {times * (ops() * an_op + program_.places.size() * a_tensor)};
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

// Within what a session may take for all its plans.
std::size_t Bucket::most_kept() const noexcept {
  constexpr Bytes all = 4_MiB;
  constexpr std::size_t few = 4;
  return std::clamp<std::size_t>(all.value / std::max<std::uint64_t>(1, books().value), 1, few);
}

void Bucket::replace_for_size(StepPlan replacement) {
  std::erase_if(kept_, [&](const Kept& each) { return each.frames == planned_for_; });
  if (!waits_for_plan_ && !plan.has_failed()) kept_.push_back({.frames = planned_for_, .plan = std::move(plan)});
  if (kept_.size() > most_kept()) kept_.erase(kept_.begin());
  plan = std::move(replacement);
}

bool Bucket::fit(std::uint32_t frames, Bytes fast_memory, std::optional<Bytes> range, std::uint64_t step) {
  plan.forget_draft();
  const bool has_plan = !waits_for_plan_ && !plan.has_failed();
  auto best = kept_.end();
  for (auto each = kept_.begin(); each != kept_.end(); ++each)
    if (each->frames <= frames && (best == kept_.end() || each->frames > best->frames)) best = each;
  const bool fits = has_plan && planned_for_ <= frames;
  if (fits && (best == kept_.end() || best->frames < planned_for_)) return false;
  if (best == kept_.end()) {
    replace_for_size(plan.in_memory(fast_memory, range));
    waits_for_plan_ = true;
    planned_for_ = 0;
    return false;
  }
  Kept found = std::move(*best);
  kept_.erase(best);
  replace_for_size(std::move(found.plan));
  planned_for_ = found.frames;
  planned(step);
  return true;
}

Bucket& BucketStore::add(std::unique_ptr<Bucket> fresh) {
  latest_ = fresh.get();
  buckets_.push_back(std::move(fresh));
  return *latest_;
}

Bucket& BucketStore::expect(std::unique_ptr<Bucket> foretold) {
  coming_ = foretold.get();
  buckets_.push_back(std::move(foretold));
  return *coming_;
}

bool BucketStore::takes_over(std::uint64_t step) {
  if (std::exchange(begun_, current_) == current_) return false;
  return current_->last_run() + 1 != step || current_->follows_since() > current_->last_run();
}

bool BucketStore::follow(std::size_t op, std::uint64_t prefix) {
  if (current_ != nullptr && current_->begins(op, prefix)) return false;
  Bucket* const before = std::exchange(current_, nullptr);
  for (const auto& other : buckets_)
    if (other->is_trusted() && other->begins(op, prefix)) current_ = other.get();
  if (before != nullptr && current_ == nullptr && op > 0) before->left();
  return current_ != before;
}

bool BucketStore::patient() const {
  constexpr std::size_t patience = 4;  // in a row: buckets that were made for nothing, or sequences without one
  if (passed_in_a_row_ >= patience) return false;
  const auto ran = [](const auto& bucket) { return bucket->runs() > 0; };
  const auto latest = buckets_.end() - static_cast<std::ptrdiff_t>(std::min(patience, buckets_.size()));
  return buckets_.size() < patience || std::any_of(latest, buckets_.end(), ran);
}

bool BucketStore::worth_learning(std::uint64_t prefix, std::span<const std::uint64_t> hashes, bool alike) {
  constexpr std::size_t most_passed = 256;  // sequences; one that comes again later is a new one
  for (const auto& bucket : buckets_)
    if (bucket->ops() == hashes.size() && bucket->begins(hashes.size() - 1, prefix)) {
      bucket->came_again();
      passed_in_a_row_ = 0;
      return false;
    }
  if (!alike && patient()) {
    passed_in_a_row_ = 0;
    return true;
  }
  const auto again = std::find_if(passed_over_.begin(), passed_over_.end(),
                                  [&](const PassedOver& each) { return each.prefix == prefix; });
  if (again != passed_over_.end()) {
    passed_over_.erase(again);
    passed_in_a_row_ = 0;
    return true;
  }
  const auto begin = hashes.first(std::min(told_apart_by, hashes.size()));
  passed_over_.push_back({.prefix = prefix, .begin = {begin.begin(), begin.end()}});
  if (passed_over_.size() > most_passed) passed_over_.pop_front();
  ++passed_in_a_row_;
  return false;
}

bool BucketStore::may_be_learned(std::span<const std::uint64_t> hashes) const {
  if (patient() || hashes.size() < told_apart_by) return true;
  const auto begin = hashes.first(told_apart_by);
  return std::any_of(passed_over_.begin(), passed_over_.end(), [&](const PassedOver& each) {
    return std::equal(begin.begin(), begin.end(), each.begin.begin(), each.begin.end());
  });
}

Bucket* BucketStore::find(std::uint64_t id) const noexcept {
  const auto found = std::find_if(buckets_.begin(), buckets_.end(), [&](const auto& each) { return each->id() == id; });
  return found == buckets_.end() ? nullptr : found->get();
}

void BucketStore::ran_whole() {
  constexpr int many = 4;
  const bool other_before = latest_ != nullptr && latest_ != current_;
  turns_ = static_cast<std::uint16_t>(turns_ << 1 | (other_before ? 1 : 0));
  in_turns_ = in_turns_ ? turns_ != 0 : std::popcount(turns_) >= many;
  latest_ = current_;
}

std::vector<Bucket*> BucketStore::alike(std::span<const std::uint64_t> kinds, std::uint32_t frames) const {
  constexpr std::size_t enough = 2;
  std::vector<Bucket*> found;
  for (auto each = buckets_.rbegin(); each != buckets_.rend() && found.size() < enough; ++each) {
    const Bucket& bucket = **each;
    const Bucket::AsLogged* const logged = bucket.as_logged();
    const bool is_planned = !bucket.waits_for_its_plan() && bucket.plan.has_policy() && !bucket.plan.has_failed() &&
                            bucket.plan.program_in_sections() == std::nullopt && bucket.planned_for() == frames;
    if (logged != nullptr && is_planned && kinds.size() <= logged->kinds.size() &&
        std::equal(kinds.begin(), kinds.end(), logged->kinds.begin()) &&
        (found.empty() || found.front()->as_logged()->kinds == logged->kinds))
      found.push_back(each->get());
  }
  if (found.size() < enough) found.clear();
  return found;
}

bool BucketStore::wants_log(std::span<const std::uint64_t> kinds) const {
  constexpr std::ptrdiff_t enough = 2;
  return std::count_if(buckets_.begin(), buckets_.end(), [&](const auto& bucket) {
           const Bucket::AsLogged* const logged = bucket->as_logged();
           return logged != nullptr &&
                  std::equal(kinds.begin(), kinds.end(), logged->kinds.begin(), logged->kinds.end());
         }) < enough;
}

bool BucketStore::has_sequence(std::span<const std::uint64_t> hashes) const {
  std::uint64_t prefix = 0;
  for (const std::uint64_t hash : hashes) prefix = mix(prefix, hash);
  return std::any_of(buckets_.begin(), buckets_.end(), [&](const auto& bucket) {
    return bucket->ops() == hashes.size() && bucket->begins(hashes.size() - 1, prefix);
  });
}

std::unique_ptr<Bucket> BucketStore::forget(const Bucket& bucket) {
  const auto found =
      std::find_if(buckets_.begin(), buckets_.end(), [&](const auto& each) { return each.get() == &bucket; });
  if (found == buckets_.end()) return nullptr;
  for (Bucket** const named : {&current_, &latest_, &coming_})
    if (*named == &bucket) *named = nullptr;
  if (begun_ == &bucket) begun_ = nullptr;
  std::unique_ptr<Bucket> gone = std::move(*found);
  buckets_.erase(found);
  return gone;
}

bool BucketStore::has_run() const noexcept {
  return std::any_of(buckets_.begin(), buckets_.end(), [](const auto& bucket) { return bucket->runs() > 0; });
}

std::unique_ptr<Bucket> BucketStore::retire(Bytes most_zones) {
  Bytes books, zones;
  for (const auto& bucket : buckets_) {
    if (bucket.get() != latest_) books = books + bucket->books();
    zones.value += bucket->addresses().zone_bytes();
  }
  constexpr std::size_t few = 4;  // two that foretell other sizes, the latest, and the one to come
  const bool too_many = buckets_.size() > most_buckets, too_large = buckets_.size() > 2 && books > most_books,
             too_wide = buckets_.size() > few && zones > most_zones;
  return too_many || too_large || too_wide ? retire_idle() : nullptr;
}

std::unique_ptr<Bucket> BucketStore::retire_idle() {
  const Bucket* oldest = nullptr;
  for (const auto& bucket : buckets_) {
    const Bucket* const each = bucket.get();
    if (each == current_ || each == latest_ || each == coming_) continue;
    if (oldest == nullptr || each->last_needed() < oldest->last_needed()) oldest = each;
  }
  return oldest == nullptr ? nullptr : forget(*oldest);
}

void BucketStore::clear() {
  current_ = latest_ = coming_ = nullptr;
  buckets_.clear();
}

}  // namespace vedette::detail
