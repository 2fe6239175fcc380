#include "session/heap.h"

#include <algorithm>
#include <utility>

#include "base/architecture.h"
#include "base/arithmetic.h"
#include "base/assert.h"

namespace vedette {
namespace {

const std::uint64_t page = page_size;

}  // namespace

bool Heap::takes_run(std::uint64_t bytes, bool persistent) const noexcept {
  if (use_ == Chunks::of_one_tensor) return true;
  const std::uint64_t whole = round_up(bytes, chunk_);
  return !persistent && (whole - bytes) * 16 <= whole;
}

std::optional<std::uint64_t> Heap::take_chunks(std::uint64_t count) {
  if (const auto found = free_runs_.find(count); found != free_runs_.end() && !found->second.empty()) {
    const std::uint64_t offset = found->second.back();
    found->second.pop_back();
    return offset;
  }
  if (count > chunks_ - top_) {
    if (const auto offset = take_of_larger_run(count)) return offset;
    join_free_runs();
    if (count > chunks_ - top_) return take_of_larger_run(count);
  }
  const std::uint64_t offset = top_ * chunk_;
  top_ += static_cast<std::uint32_t>(count);
  return offset;
}

std::optional<std::uint64_t> Heap::take_of_larger_run(std::uint64_t count) {
  for (auto run = free_runs_.lower_bound(count); run != free_runs_.end(); ++run) {
    auto& [chunks, offsets] = *run;
    if (offsets.empty()) continue;
    const std::uint64_t offset = offsets.back();
    offsets.pop_back();
    if (chunks > count) give_chunks(offset + count * chunk_, chunks - count);
    return offset;
  }
  return std::nullopt;
}

// Whole chunks of the heaps' holes, too. The run at the top is as if it had never been given out.
void Heap::join_free_runs() {
  std::map<std::uint64_t, std::uint64_t> joined;
  for (const auto& [chunks, offsets] : free_runs_)
    for (const std::uint64_t offset : offsets) give_pages(joined, offset, chunks * chunk_);
  free_runs_.clear();
  for (auto* const holes : {&lasting_, &passing_, &alone_}) {
    for (const auto& [offset, bytes] : std::exchange(*holes, {})) {
      const std::uint64_t end = offset + bytes, first = round_up(offset, chunk_), last = end / chunk_ * chunk_;
      if (first >= last) {
        give_pages(*holes, offset, bytes);
        continue;
      }
      give_pages(joined, first, last - first);
      if (offset < first) give_pages(*holes, offset, first - offset);
      if (last < end) give_pages(*holes, last, end - last);
    }
  }
  if (!joined.empty() && std::prev(joined.end())->first + std::prev(joined.end())->second == top_ * chunk_) {
    top_ = static_cast<std::uint32_t>(std::prev(joined.end())->first / chunk_);
    joined.erase(std::prev(joined.end()));
  }
  for (const auto& [offset, bytes] : joined) give_chunks(offset, bytes / chunk_);
}

void Heap::cut(std::map<std::uint64_t, std::uint64_t>& holes, std::map<std::uint64_t, std::uint64_t>::iterator hole,
               std::uint64_t offset, std::uint64_t bytes) {
  const auto [first, size] = *hole;
  holes.erase(hole);
  if (first < offset) holes.emplace(first, offset - first);
  if (offset + bytes < first + size) holes.emplace(offset + bytes, first + size - offset - bytes);
}

std::optional<std::uint64_t> Heap::take_pages(std::map<std::uint64_t, std::uint64_t>& holes, std::uint64_t bytes) {
  for (auto hole = holes.begin(); hole != holes.end(); ++hole) {
    if (hole->second < bytes) continue;
    const std::uint64_t offset = hole->first;
    cut(holes, hole, offset, bytes);
    return offset;
  }
  // Tensors that outlive steps are used in the order in which they came: laid end to end, neighbours share their border
  // chunks and nothing is lost between.
  constexpr std::uint64_t run_of_lasting = 32;  // chunks
  std::uint64_t whole = round_up(bytes, &holes == &lasting_ ? chunk_ * run_of_lasting : chunk_);
  auto fresh = take_chunks(whole / chunk_);
  if (!fresh) fresh = take_chunks((whole = round_up(bytes, chunk_)) / chunk_);
  if (fresh && whole > bytes) give_pages(holes, *fresh + bytes, whole - bytes);
  return fresh;
}

void Heap::give_pages(std::map<std::uint64_t, std::uint64_t>& holes, std::uint64_t offset, std::uint64_t bytes) {
  auto next = holes.lower_bound(offset);
  if (next != holes.begin()) {
    const auto before = std::prev(next);
    VEDETTE_ASSERT(before->first + before->second <= offset);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      holes.erase(before);
    }
  }
  if (next != holes.end() && offset + bytes == next->first) {
    bytes += next->second;
    holes.erase(next);
  }
  holes.emplace(offset, bytes);
}

std::optional<Heap::Place> Heap::allocate_small(std::uint64_t bytes) {
  if (const auto offset = slab_.allocate(bytes)) return Place{.offset = *offset, .small = true};
  const auto chunk = take_chunks(1);
  if (!chunk) return std::nullopt;
  slab_.add_chunk(*chunk);
  return Place{.offset = slab_.allocate(bytes).value(),
               .small = true,
               .new_slab_chunk = static_cast<std::uint32_t>(*chunk / chunk_)};
}

std::optional<Heap::Place> Heap::allocate(std::uint64_t bytes, std::uint64_t alignment, bool persistent) {
  VEDETTE_ASSERT(bytes > 0 && alignment <= page);
  if (is_small(bytes) && alignment <= 64) return allocate_small(bytes);
  const auto offset = takes_run(bytes, persistent)
                          ? take_chunks(round_up(bytes, chunk_) / chunk_)
                          : take_pages(persistent ? lasting_ : passing_, round_up(bytes, page));
  if (!offset) return std::nullopt;
  return Place{.offset = *offset, .small = false, .new_slab_chunk = std::nullopt};
}

bool Heap::take_pages_at(std::map<std::uint64_t, std::uint64_t>& holes, std::uint64_t offset, std::uint64_t bytes) {
  auto hole = holes.upper_bound(offset);
  if (hole == holes.begin()) return false;
  --hole;
  if (hole->first + hole->second < offset + bytes) return false;
  cut(holes, hole, offset, bytes);
  return true;
}

bool Heap::allocate_at(std::uint64_t offset, std::uint64_t bytes, bool persistent) {
  if (!takes_run(bytes, persistent))
    return take_pages_at(persistent ? lasting_ : passing_, offset, round_up(bytes, page));
  const auto runs = free_runs_.find(round_up(bytes, chunk_) / chunk_);
  if (runs == free_runs_.end()) return false;
  const auto found = std::find(runs->second.begin(), runs->second.end(), offset);
  if (found == runs->second.end()) return false;
  runs->second.erase(found);
  return true;
}

void Heap::release(std::uint64_t offset, std::uint64_t bytes, bool persistent) {
  if (takes_run(bytes, persistent)) {
    give_chunks(offset, round_up(bytes, chunk_) / chunk_);
  } else {
    give_pages(persistent ? lasting_ : passing_, offset, round_up(bytes, page));
  }
}

std::optional<Slab::Released> Heap::release_small(std::uint64_t offset) { return slab_.release(offset); }

void Heap::release_slab_chunk(std::uint64_t offset) {
  slab_.remove_chunk(offset);
  give_chunks(offset, 1);
}

std::optional<std::uint64_t> Heap::allocate_alone(std::uint64_t bytes) {
  return take_pages(alone_, round_up(bytes, page));
}

void Heap::release_alone(std::uint64_t offset, std::uint64_t bytes) {
  give_pages(alone_, offset, round_up(bytes, page));
}

std::optional<std::uint64_t> Heap::reserve_zone(std::uint64_t bytes) {
  return take_chunks(round_up(bytes, chunk_) / chunk_);
}

void Heap::release_zone(std::uint64_t offset, std::uint64_t bytes) {
  give_chunks(offset, round_up(bytes, chunk_) / chunk_);
}

}  // namespace vedette
