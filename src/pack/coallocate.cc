#include "pack/coallocate.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "base/architecture.h"
#include "base/arithmetic.h"

namespace vedette {
namespace {

constexpr std::size_t most_open_regions = 64;   // packing is flat beyond it on the traces of our models
constexpr std::size_t most_region_chunks = 32;  // keeps one region's addresses from growing over the whole step
const std::uint64_t page = page_size;

struct Block {                                                 // a lone tensor, or a region of several
  std::uint64_t used = 0;                                      // bytes, from the block's begin
  std::vector<Span<std::uint32_t>> chunks;                     // when each chunk must be kept
  std::vector<std::pair<std::size_t, std::uint64_t>> members;  // (lifetime, offset in the block)

  Span<std::uint32_t> life() const {
    Span<std::uint32_t> all = chunks.front();
    for (const auto& c : chunks) all = {std::min(all.begin, c.begin), std::max(all.end, c.end)};
    return all;
  }
};

// Chunk-time that `life` adds when its bytes follow the block's last byte.
std::uint64_t added_cost(const Block& block, const Lifetime& life, std::uint64_t chunk) {
  const std::uint64_t begin = block.used, end = block.used + life.bytes.value;
  std::uint64_t cost = 0;
  for (std::uint64_t c = begin / chunk; c * chunk < end; ++c) {
    if (c < block.chunks.size()) {
      const auto& kept = block.chunks[c];
      cost += std::max(kept.end, life.life.end) - std::min(kept.begin, life.life.begin);
      cost -= kept.end - kept.begin;
    } else {
      cost += life.life.end - life.life.begin;
    }
  }
  return cost;
}

void append(Block& block, std::size_t index, const Lifetime& life, std::uint64_t chunk) {
  const std::uint64_t begin = block.used, end = block.used + life.bytes.value;
  for (std::uint64_t c = begin / chunk; c * chunk < end; ++c) {
    if (c < block.chunks.size()) {
      block.chunks[c] = {std::min(block.chunks[c].begin, life.life.begin),
                         std::max(block.chunks[c].end, life.life.end)};
    } else {
      block.chunks.push_back(life.life);
    }
  }
  block.members.emplace_back(index, begin);
  block.used = round_up(end, page);
}

std::vector<Block> form_blocks(std::span<const Lifetime> lifetimes, std::uint64_t chunk) {
  std::vector<Block> blocks;
  std::vector<std::size_t> open;  // regions whose last chunk has room, oldest first
  // Long lives first: a tensor that lives for one op takes the room that is left, and none that a longer-lived one
  // could have had.
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto length = [&](std::size_t i) { return lifetimes[i].life.end - lifetimes[i].life.begin; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return length(a) > length(b); });
  for (const std::size_t i : order) {
    const Lifetime& life = lifetimes[i];
    const std::uint64_t whole = round_up(std::max<std::uint64_t>(life.bytes.value, 1), chunk);
    const bool fills = (whole - life.bytes.value) * 16 <= whole;
    std::optional<std::size_t> best;
    std::uint64_t least = whole / chunk * length(i) - length(i) / 2;
    if (!fills) {
      for (const std::size_t r : open) {
        const std::uint64_t cost = added_cost(blocks[r], life, chunk);
        if (cost < least || (cost == least && !best)) best = r, least = cost;
      }
    }
    const std::size_t chosen = best ? *best : blocks.size();
    if (!best) blocks.emplace_back();
    append(blocks[chosen], i, life, chunk);
    std::erase(open, chosen);
    const bool room = !fills && blocks[chosen].used % chunk != 0 && blocks[chosen].chunks.size() < most_region_chunks;
    if (room) open.push_back(chosen);
    if (open.size() > most_open_regions) open.erase(open.begin());
  }
  return blocks;
}

}  // namespace

Placement coallocate(std::span<const Lifetime> lifetimes, Bytes chunk_bytes) {
  const std::uint64_t chunk = chunk_bytes.value;
  const std::vector<Block> blocks = form_blocks(lifetimes, chunk);
  struct Event {
    std::uint32_t when;
    bool birth;
    std::size_t block;
  };
  std::vector<Event> events;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const auto life = blocks[b].life();
    events.push_back({life.begin, true, b});
    events.push_back({life.end, false, b});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.when != b.when ? a.when < b.when : (a.birth != b.birth ? !a.birth : a.block < b.block);
  });
  Placement placement{.offset = std::vector<std::uint64_t>(lifetimes.size()), .zone_bytes = 0};
  std::map<std::size_t, std::vector<std::uint64_t>> freed;  // by number of chunks, most recently freed last
  std::vector<std::uint64_t> address(blocks.size());
  for (const Event& event : events) {
    const Block& block = blocks[event.block];
    auto& stack = freed[block.chunks.size()];
    if (!event.birth) {
      stack.push_back(address[event.block]);
      continue;
    }
    if (stack.empty()) {
      address[event.block] = placement.zone_bytes;
      placement.zone_bytes += block.chunks.size() * chunk;
    } else {
      address[event.block] = stack.back();
      stack.pop_back();
    }
    for (const auto& [index, offset] : block.members) placement.offset[index] = address[event.block] + offset;
  }
  return placement;
}

}  // namespace vedette
