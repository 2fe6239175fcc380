// Lists of a step that ended: see like_step.h.
#include "session/like_step.h"

#include <algorithm>
#include <iterator>

#include "session/step_logger.h"

namespace vedette::detail {
namespace {

std::uint64_t gram_of(std::span<const std::uint64_t> kinds) {
  std::uint64_t hash = 0;
  for (const std::uint64_t kind : kinds) hash = mix(hash, kind);
  return hash;
}

std::vector<LikeStep::Tensor> tensors_of(const StepLog& log) {
  std::vector<LikeStep::Tensor> tensors;
  tensors.reserve(log.tensors.size());
  for (const LoggedTensor& t : log.tensors) {
    LikeStep::Tensor& tensor = tensors.emplace_back();
    tensor = {.offset = t.offset, .bytes = t.bytes, .born = t.birth > 0, .dies = t.death != ~0u};
    if (!tensor.dies) continue;
    const auto later = std::partition_point(log.ops.begin(), log.ops.end(),
                                            [&](const LoggedOp& op) { return op.events.begin < t.death; });
    tensor.dead_at = static_cast<std::uint32_t>(later - log.ops.begin());
  }
  return tensors;
}

// Tensors born since an op began that live when the next one does.
std::vector<Bytes> stays_of(const StepLog& log) {
  std::vector<Bytes> stays(log.ops.size());
  std::uint32_t op = 0;
  for (const LoggedTensor& t : log.tensors) {
    if (t.birth == 0 || t.small) continue;
    while (op + 1 < log.ops.size() && log.ops[op + 1].events.begin < t.birth) ++op;
    const bool gone = op + 1 < log.ops.size() && t.death != ~0u && t.death <= log.ops[op + 1].events.begin;
    if (op < stays.size() && !gone) stays[op] = stays[op] + t.bytes;
  }
  return stays;
}

std::vector<Nanoseconds> times_of(const StepLog& log) {
  std::vector<Nanoseconds> times;
  times.reserve(log.ops.size());
  for (const LoggedOp& op : log.ops) times.push_back(op.time);
  return times;
}

}  // namespace

void LikeStep::set_times(std::span<const Nanoseconds> of_ops) {
  if (of_ops.size() != kinds_.size()) return;
  auto begins = std::make_shared<std::vector<Nanoseconds>>(1);
  begins->reserve(of_ops.size() + 1);
  for (const Nanoseconds time : of_ops) begins->push_back(begins->back() + time);
  begins_ = std::move(begins);
}

LikeStep::LikeStep(const StepLog& log, std::span<const std::uint64_t> kinds, std::uint64_t sequence,
                   std::optional<std::uint64_t> timed_later)
    : kinds_(kinds.begin(), kinds.end()),
      sequence_(sequence),
      timed_later_(timed_later),
      tensors_(tensors_of(log)),
      stays_(stays_of(log)) {
  if (!timed_later) set_times(times_of(log));
  const auto count = static_cast<std::uint32_t>(log.ops.size());
  std::vector<std::pair<std::uint32_t, Use>> uses;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> births, writes;
  std::vector<std::uint32_t> next(log.tensors.size(), none);
  for (std::uint32_t i = count; i-- > 0;) {  // backwards, so that the next use is known
    const std::size_t before = uses.size();
    for_each_operand(log, log.ops[i], [&](std::uint32_t t) { uses.push_back({i, {.tensor = t, .next = next[t]}}); });
    for (std::size_t k = before; k < uses.size(); ++k) next[uses[k].second.tensor] = i;
    std::reverse(uses.begin() + static_cast<std::ptrdiff_t>(before), uses.end());
  }
  std::reverse(uses.begin(), uses.end());
  uses_ = Grouped<Use>(count, uses);
  for (std::uint32_t t = 0; t < tensors_.size(); ++t) tensors_[t].first_use = next[t];
  BirthsByOp born(log);
  for (std::uint32_t i = 0; i < count; ++i) {
    born.until(i, [&](std::uint32_t t) { births.emplace_back(i, t); });
    for (const std::uint32_t t : log.ops[i].writes) writes.emplace_back(t, i);
    if (i + 1 >= gram) grams_.emplace_back(gram_of(std::span(kinds_).subspan(i + 1 - gram, gram)), i);
  }
  births_ = Grouped<std::uint32_t>(count, births);
  writes_ = Grouped<std::uint32_t>(tensors_.size(), writes);
  std::sort(grams_.begin(), grams_.end());
}

bool LikeStep::has_kinds(std::span<const std::uint64_t> kinds) const {
  return std::equal(kinds_.begin(), kinds_.end(), kinds.begin(), kinds.end());
}

bool LikeStep::numbers_alike(const LikeStep& other) const {
  return std::equal(tensors_.begin(), tensors_.end(), other.tensors_.begin(), other.tensors_.end(),
                    [](const Tensor& a, const Tensor& b) { return a.born == b.born && a.first_use == b.first_use; });
}

bool LikeStep::unwritten(std::uint32_t tensor, std::uint32_t op, std::uint32_t within) const {
  const std::span<const std::uint32_t> writes = writes_[tensor];
  const auto next = std::lower_bound(writes.begin(), writes.end(), op);
  return next == writes.end() || *next - op > within;
}

LikeStep::Found LikeStep::find(std::span<const std::uint64_t> kinds, std::uint32_t to) const {
  const std::uint64_t hash = gram_of(kinds);
  const auto next = std::lower_bound(grams_.begin(), grams_.end(), std::pair(hash, to));
  Found found;
  if (next != grams_.end() && next->first == hash) found.at_or_after = next->second;
  if (next != grams_.begin() && std::prev(next)->first == hash) found.before = std::prev(next)->second;
  return found;
}

}  // namespace vedette::detail
