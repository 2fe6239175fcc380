// Ranges of chunks by op and step: see row_log.h.
#include "session/row_log.h"

#include <algorithm>
#include <utility>

namespace vedette::detail {
namespace {

// A step of a recommender has some 300 ranges. 10 buckets with so many take 8 MB.
constexpr std::size_t most_steps = 32, most_ranges = 1 << 16;

// Sorted, each once, neighbours in one range.
std::vector<Span<std::uint32_t>> joined(std::vector<std::uint32_t> chunks) {
  std::sort(chunks.begin(), chunks.end());
  std::vector<Span<std::uint32_t>> ranges;
  for (const std::uint32_t c : chunks) {
    if (!ranges.empty() && c < ranges.back().end) continue;
    if (!ranges.empty() && c == ranges.back().end) {
      ++ranges.back().end;
    } else {
      ranges.push_back({c, c + 1});
    }
  }
  return ranges;
}

}  // namespace

void RowLog::begin_step() {
  chunks_.clear();
  parts_.clear();
  few_.clear();
}

Bytes RowLog::few_of(std::uint32_t tensor) const {
  const auto found = few_.find(tensor);
  return found == few_.end() ? Bytes{} : found->second;
}

std::uint32_t RowLog::chunks_in(ChunkRange chunks) const {
  const auto first = chunks_.lower_bound(chunks.first().value), end = chunks_.lower_bound(chunks.limit().value);
  return static_cast<std::uint32_t>(std::distance(first, end));
}

void RowLog::forget(ChunkRange chunks) {
  chunks_.erase(chunks_.lower_bound(chunks.first().value), chunks_.lower_bound(chunks.limit().value));
  std::erase_if(parts_, [&](const TouchedPart& part) {
    return part.chunks.first() >= chunks.first() && part.chunks.limit() <= chunks.limit();
  });
}

void RowLog::touch(std::uint32_t op, ChunkRange chunks, Bytes bytes) {
  for (const ChunkIndex c : chunks) chunks_.insert(c.value);
  if (!parts_.empty() && parts_.back().op == op) {
    ChunkRange& last = parts_.back().chunks;
    if (chunks.first() >= last.first() && chunks.first() <= last.limit()) {
      last = {last.first(), std::max(last.limit(), chunks.limit())};
      parts_.back().bytes += bytes;
      return;
    }
  }
  if (parts_.size() <= most_ranges) parts_.push_back({op, chunks, bytes});
}

std::vector<TouchedPart> RowLog::take() { return std::exchange(parts_, {}); }

bool RowLog::may_lie_far(ChunkIndex chunk) const { return hot_ && !std::ranges::binary_search(*hot_, chunk.value); }

std::optional<std::vector<std::uint32_t>> RowHistory::hot(std::size_t room) const {
  constexpr std::size_t enough = 6;
  if (steps_.size() < enough) return std::nullopt;
  std::map<std::uint32_t, std::pair<std::uint32_t, std::size_t>> counts;  // by chunk: steps, and the last of them
  for (std::size_t s = 0; s < steps_.size(); ++s)
    for (const TouchedPart& part : steps_[s])
      for (const ChunkIndex c : part.chunks) {
        auto& [steps, last] = counts[c.value];
        if (steps == 0 || last != s) ++steps;
        last = s;
      }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> by_chunk;
  for (const auto& [chunk, count] : counts) by_chunk.emplace_back(chunk, count.first);
  return hot_chunks(by_chunk, room);
}

void RowHistory::add(std::vector<TouchedPart> step) {
  if (step.empty()) return;
  steps_.push_back(std::move(step));
  std::size_t ranges = 0;
  for (const auto& each : steps_) ranges += each.size();
  while (!steps_.empty() && (steps_.size() > most_steps || ranges > most_ranges)) {
    ranges -= steps_.front().size();
    steps_.pop_front();
  }
}

Rows RowHistory::rows(std::span<const ChunkRange> in_parts, std::uint32_t held, Bytes chunk,
                      std::span<const std::uint32_t> first) const {
  Rows rows{.held = {held * chunk.value}, .chunk = chunk, .chunks = 0};
  std::set<std::uint32_t> all;
  const auto add = [&](ChunkRange range) {
    for (const ChunkIndex c : range) all.insert(c.value);
  };
  for (const ChunkRange range : in_parts) add(range);
  for (const auto& step : steps_)
    for (const TouchedPart& part : step) add(part.chunks);
  const std::vector<std::uint32_t> numbered(all.begin(), all.end());
  rows.chunks = static_cast<std::uint32_t>(numbered.size());
  std::uint64_t times = 0, bytes = 0;
  for (const auto& step : steps_) {
    std::map<std::uint32_t, std::vector<std::uint32_t>> by_op;
    for (const TouchedPart& part : step) {
      const auto at = std::lower_bound(numbered.begin(), numbered.end(), part.chunks.first().value) - numbered.begin();
      for (std::uint32_t k = 0; k < part.chunks.size(); ++k)
        by_op[part.op].push_back(static_cast<std::uint32_t>(at) + k);
    }
    std::vector<RowAccess>& accesses = rows.steps.emplace_back();
    for (const auto& [op, touched] : by_op) accesses.push_back({.op = {first[op]}, .chunks = joined(touched)});
    for (const RowAccess& access : accesses)
      for (const auto [begin, end] : access.chunks) times += end - begin;
    for (const TouchedPart& part : step) bytes += part.bytes.value;
  }
  if (times > 0) rows.touched = {std::min(bytes / times, chunk.value)};
  return rows;
}

}  // namespace vedette::detail
