// From observed operands to sections: see section_learner.h.
#include "session/section_learner.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace vedette::detail {

std::vector<char> worth_observing(const Trace& trace, const StepLog& log, Bytes chunk) {
  constexpr std::uint64_t least_chunks = 8, share_of_largest = 4;
  std::vector<char> worth(trace.ops.size());
  std::vector<char> allocates(trace.ops.size());
  for (const LoggedTensor& t : log.tensors) {
    const bool in_op = t.birth > 0 && t.birth_op < log.ops.size() && t.birth > log.ops[t.birth_op].events.begin;
    if (in_op && !t.small && t.bytes >= chunk) allocates[t.birth_op] = 1;
  }
  std::vector<std::uint64_t> bytes(trace.ops.size());
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    std::set<TensorIndex> operands_of(op.reads.begin(), op.reads.end());
    operands_of.insert(op.writes.begin(), op.writes.end());
    bytes[i] = op.workspace.value;
    for (const TensorIndex t : operands_of) bytes[i] += trace.tensors[t.value].bytes.value;
    largest = std::max(largest, bytes[i]);
  }
  for (std::size_t i = 0; i < trace.ops.size(); ++i)
    worth[i] = allocates[i] != 0 && bytes[i] >= std::max(least_chunks * chunk.value, largest / share_of_largest);
  return worth;
}

SectionLearner::SectionLearner(std::vector<char> worth) : worth_(std::move(worth)) {}

bool SectionLearner::may_change() const noexcept {
  const bool looks = stage_ != Stage::learned && std::find(worth_.begin(), worth_.end(), 1) != worth_.end();
  return looks || waits_for_plan();
}

const std::vector<WatchedSection>& SectionLearner::of(std::uint32_t op) const {
  static const std::vector<WatchedSection> none;
  const auto found = sections_.find(op);
  return found == sections_.end() ? none : found->second;
}

void SectionLearner::time_op(std::uint32_t op) {
  if (stage_ == Stage::timing && worth_[op] != 0) times_[op].clear();
}

void SectionLearner::add_time(std::uint32_t op, Nanoseconds took) {
  if (stage_ == Stage::timing && worth_[op] != 0) times_[op].push_back(took);
}

SectionLearner::Sections SectionLearner::learn(std::span<const ObservedOp> ops, const Planned& planned) {
  const std::uint32_t least_difference = std::max(2u, planned.frames / 64);
  Sections learned;
  for (const ObservedOp& op : ops) {
    const std::vector<Nanoseconds>& times = times_[op.op];
    if (times.size() != op.sections.size()) continue;  // it does not allocate alike at every step
    std::vector<WatchedSection> observed = op.sections;
    for (std::size_t s = 0; s < times.size(); ++s) observed[s].time = times[s];
    const Nanoseconds in_all = std::accumulate(times.begin(), times.end(), Nanoseconds{});
    std::vector<std::uint32_t> sizes;
    for (const ChunkRange range : op.operands) sizes.push_back(range.size());
    auto worth = worth_planning(std::move(observed), sizes, planned.chunk, least_difference);
    if (worth.size() < 2) continue;
    // That step may have been a slow one: together they take the op's time at its best.
    const double share = static_cast<double>(planned.least_time[planned.first[op.op]].value) /
                         static_cast<double>(std::max<std::int64_t>(in_all.value, 1));
    for (WatchedSection& s : worth) s.time = {static_cast<std::int64_t>(static_cast<double>(s.time.value) * share)};
    learned[op.op] = std::move(worth);
  }
  return learned;
}

SectionLearner::Outcome SectionLearner::step_ended(std::span<const ObservedOp> ops, const Planned& planned) {
  if (stage_ == Stage::timing) {
    const bool some = std::find(worth_.begin(), worth_.end(), 1) != worth_.end();
    stage_ = some ? Stage::observing : Stage::learned;
    return Outcome::nothing;
  }
  if (stage_ == Stage::observing) {
    stage_ = Stage::learned;
    Sections learned = learn(ops, planned);
    times_.clear();
    if (learned.empty()) return Outcome::observed;
    next_ = std::move(learned);
    return Outcome::changed;
  }
  const std::vector<std::uint32_t> failed = std::exchange(failed_, {});
  if (failed.empty() || waits_for_plan()) return Outcome::nothing;
  next_ = sections_;
  for (const ObservedOp& op : ops) {
    const auto found = next_->find(op.op);
    if (found == next_->end()) continue;
    std::vector<WatchedSection>& of_op = found->second;
    for (std::size_t s = 0; s < of_op.size(); ++s) of_op[s].time = planned.least_time[planned.first[op.op] + s];
  }
  for (const std::uint32_t op : failed) next_->erase(op);
  return Outcome::changed;
}

void SectionLearner::plan_is_there() noexcept {
  sections_ = *std::exchange(next_, std::nullopt);
  failed_.clear();
}

std::vector<SectionedOp> SectionLearner::sectioned(std::span<const ObservedOp> ops) const {
  std::vector<SectionedOp> sectioned;
  for (const ObservedOp& op : ops) {
    const auto found = next_->find(op.op);
    if (found == next_->end()) continue;
    const std::vector<WatchedSection>& of_op = found->second;
    SectionedOp& cut = sectioned.emplace_back(SectionedOp{.op = op.op});
    for (const WatchedSection& s : of_op) {
      LogSection& logged = cut.sections.emplace_back(LogSection{.after_event = s.after_event, .time = s.time});
      for (std::size_t k = 0; k < s.touched.size(); ++k)
        if (s.touched[k] != 0 && op.tensors[k] != no_log_tensor) logged.touched.push_back(op.tensors[k]);
    }
  }
  return sectioned;
}

}  // namespace vedette::detail
