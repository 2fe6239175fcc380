// An op from its begin to its end: see running_op.h.
#include "session/running_op.h"

#include <algorithm>

#include "base/assert.h"

namespace vedette::detail {

void RunningOp::begin() {
  operands_.clear();
  written_.clear();
  tensors_.clear();
  small_.clear();
  born_.clear();
  far_.clear();
  few_.clear();
  births_ = section_ = part_ = 0;
  sections_ = nullptr;
  observed_ = false;
}

void RunningOp::operand(ChunkRange chunks, std::uint32_t logged, bool written) {
  operands_.push_back(chunks);
  if (written) written_.push_back(chunks);
  tensors_.push_back(logged);
}

void RunningOp::may_lie_far(ChunkIndex chunk, Bytes used, bool written) {
  const auto first = [](const OpMoves::InPlace& each) { return each.chunks.first(); };
  const auto at = std::ranges::lower_bound(far_, chunk, {}, first);
  if (at == far_.end() || first(*at) != chunk)
    return void(far_.insert(at, {.chunks = ChunkRange::one(chunk), .read = true, .written = written, .used = used}));
  at->written |= written;
  at->used += used;
}

void RunningOp::few_of(ChunkRange tensor, Bytes bytes, bool written) {
  const auto same = std::ranges::find(few_, tensor, &Executor::Part::Few::chunks);
  if (same == few_.end()) return few_.push_back({.chunks = tensor, .bytes = bytes, .written = written});
  same->bytes += bytes;
  same->written |= written;
}

std::span<const OpMoves::InPlace> RunningOp::in_place(std::span<const OpMoves::InPlace> planned) {
  if (far_.empty() || in_sections()) return planned;
  in_place_ = far_;
  in_place_.insert(in_place_.end(), planned.begin(), planned.end());
  return in_place_;
}

void RunningOp::cut(const std::vector<WatchedSection>& sections, std::uint64_t early) {
  VEDETTE_ASSERT(sections.size() > 1 && sections.front().touched.size() == operands_.size());
  sections_ = &sections;
  early_before_ = early;
}

bool RunningOp::section_begins_with(std::uint64_t bytes) const {
  if (in_last_section()) return false;
  const WatchedSection& next = (*sections_)[section_ + 1];
  return next.birth == births_ + 1 && next.bytes == bytes;
}

void RunningOp::small_operand(ChunkIndex chunk) {
  const auto at = std::lower_bound(small_.begin(), small_.end(), chunk);
  if (at != small_.end() && *at == chunk) return;
  small_.insert(at, chunk);
  written_.push_back(ChunkRange::one(chunk));
}

std::vector<ChunkRange> RunningOp::needed() const {
  std::vector<ChunkRange> needs = born_;
  for (const ChunkIndex chunk : small_) needs.push_back(ChunkRange::one(chunk));
  for (std::size_t k = 0; k < operands_.size(); ++k)
    if (!in_sections() || (*sections_)[section_].touched[k] != 0) needs.push_back(operands_[k]);
  return needs;
}

void RunningOp::born(ChunkRange chunks) {
  if (in_sections()) born_.push_back(chunks);
}

void RunningOp::died(ChunkRange chunks) {
  if (const auto found = std::find(born_.begin(), born_.end(), chunks); found != born_.end()) born_.erase(found);
}

void RunningOp::remember(std::uint32_t op, bool observed) {
  observed_ = observed;
  seen_.push_back({.op = op, .operands = operands_, .tensors = tensors_});
}

void RunningOp::observe(std::uint32_t birth, std::uint64_t bytes, std::uint32_t after_event) {
  seen_.back().sections.push_back(
      {.birth = birth, .bytes = bytes, .after_event = after_event, .touched = std::vector<char>(operands_.size())});
}

}  // namespace vedette::detail
