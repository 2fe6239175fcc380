// What steps touch of tensors that no plan moves: remembered for the latest steps, and told in chunks that are numbered
// from the first table's first.
#include <algorithm>
#include <map>
#include <set>

#include "base/readable.h"
#include "session/state.h"

namespace vedette::detail {
namespace {

// A step of a recommender has some 300 ranges. 10 buckets with so many take 8 MB.
constexpr std::size_t most_steps = 32, most_ranges = 1 << 16;

// In one order, without what is there twice, neighbours together.
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

void SessionState::touch_part(std::uint32_t op, ChunkRange chunks_touched) {
  const auto [first, count] = chunks_touched;
  for (std::uint32_t c = first; c < first + count; ++c) touched_in_parts.insert(c);
  if (!step_rows.empty() && step_rows.back().op == op) {
    ChunkRange& last = step_rows.back().chunks;
    if (first >= last.first && first <= last.first + last.count) {
      last.count = std::max(last.first + last.count, first + count) - last.first;
      return;
    }
  }
  if (step_rows.size() <= most_ranges) step_rows.push_back({op, chunks_touched});
}

void SessionState::remember_rows(Bucket& ran) {
  if (step_rows.empty()) return;
  ran.rows.push_back(std::move(step_rows));
  step_rows.clear();
  std::size_t ranges = 0;
  for (const auto& step_of_rows : ran.rows) ranges += step_of_rows.size();
  while (!ran.rows.empty() && (ran.rows.size() > most_steps || ranges > most_ranges)) {
    ranges -= ran.rows.front().size();
    ran.rows.pop_front();
  }
}

// A row that is away brings its whole chunk: of a table of 1 GiB, 2 MiB moved thirty times what 64 KiB did
// (docs/measurements.md).
void SessionState::advise_on_rows() {
  constexpr Bytes suitable = 64_KiB;
  if (advised_on_rows || touched_in_parts.empty() || options.chunk <= suitable ||
      peak_bytes <= options.fast_memory.value)
    return;
  advised_on_rows = true;
  message("rows of tables are looked up, and a row that is away brings a chunk of " + readable(options.chunk) +
          ": with chunk = 64_KiB (train --chunk 64KiB) a step moves less");
}

Rows SessionState::rows_of(const Bucket& ran) const {
  Rows rows{.always_near = {},
            .held = {engine->held_chunks() * options.chunk.value},
            .chunk = options.chunk,
            .chunks = 0,
            .steps = {}};
  std::set<std::uint32_t> all;
  const auto add = [&](ChunkRange range) {
    for (std::uint32_t c = range.first; c < range.first + range.count; ++c) all.insert(c);
  };
  for (const LoggedTensor& t : ran.log.tensors) {
    if (t.in_parts) add(chunks_of(t.offset, t.bytes.value));
  }
  for (const auto& step_of_rows : ran.rows) {
    for (const TouchedPart& part : step_of_rows) add(part.chunks);
  }
  const std::vector<std::uint32_t> numbered(all.begin(), all.end());
  rows.chunks = static_cast<std::uint32_t>(numbered.size());
  for (const auto& step_of_rows : ran.rows) {
    std::map<std::uint32_t, std::vector<std::uint32_t>> by_op;
    for (const TouchedPart& part : step_of_rows) {
      const auto at = std::lower_bound(numbered.begin(), numbered.end(), part.chunks.first) - numbered.begin();
      for (std::uint32_t k = 0; k < part.chunks.count; ++k)
        by_op[part.op].push_back(static_cast<std::uint32_t>(at) + k);
    }
    std::vector<RowAccess>& accesses = rows.steps.emplace_back();
    for (const auto& [op, touched] : by_op) accesses.push_back({.op = {ran.first[op]}, .chunks = joined(touched)});
  }
  return rows;
}

}  // namespace vedette::detail
