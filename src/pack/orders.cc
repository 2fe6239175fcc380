#include "pack/orders.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "pack/radix.h"

namespace vedette::pack {
namespace {

// The largest load that each buffer meets, by a table of maxima over runs of powers of two.
class LargestLoad {
 public:
  explicit LargestLoad(const std::vector<std::uint64_t>& load) : rows_{load} {
    for (std::size_t width = 2; width <= load.size(); width *= 2) {
      const std::vector<std::uint64_t>& below = rows_.back();
      std::vector<std::uint64_t> row(load.size() - width + 1);
      for (std::size_t s = 0; s < row.size(); ++s) row[s] = std::max(below[s], below[s + width / 2]);
      rows_.push_back(std::move(row));
    }
  }
  std::uint64_t over(Sections piece) const {
    const auto k = static_cast<std::size_t>(std::bit_width(piece.end - piece.begin) - 1);
    return std::max(rows_[k][piece.begin], rows_[k][piece.end - (std::uint32_t{1} << k)]);
  }

 private:
  std::vector<std::vector<std::uint64_t>> rows_;
};

std::uint64_t product(std::uint64_t a, std::uint64_t b) {  // as exact as a key needs, without overflow
  const double p = static_cast<double>(a) * static_cast<double>(b);
  return p < 9e18 ? static_cast<std::uint64_t>(p) : 9'000'000'000'000'000'000u;
}

std::uint64_t length(const Buffer& buffer) { return static_cast<std::uint64_t>(std::max<Time>(buffer.life.end - buffer.life.begin, 0)); }

// Larger keys come first. What is sorted by keys[0] first is sorted by keys[1] where that is equal.
std::vector<std::uint64_t> key(const Problem& problem, Order order) {
  std::vector<std::uint64_t> keys(problem.buffers.size());
  for (std::size_t b = 0; b < keys.size(); ++b) {
    const Buffer& buffer = problem.buffers[b];
    const std::uint64_t bytes = buffer.bytes.value;
    switch (order) {
      case Order::birth: keys[b] = 0; break;
      case Order::size: keys[b] = bytes; break;
      case Order::length: keys[b] = length(buffer); break;
      case Order::area: keys[b] = product(bytes, length(buffer)); break;
      case Order::balanced: keys[b] = product(bytes, static_cast<std::uint64_t>(std::sqrt(static_cast<double>(length(buffer))) * 16)); break;
      case Order::pressure: keys[b] = length(buffer); break;
    }
  }
  return keys;
}

void sort_by(std::vector<Keyed>& items, const std::vector<std::uint64_t>& keys) {
  for (Keyed& item : items) item.key = ~keys[item.value];
  radix_sort(items);
}

}  // namespace

std::string_view name(Order order) {
  constexpr std::string_view names[] = {"birth", "size", "length", "area", "balanced", "pressure"};
  return names[static_cast<std::size_t>(order)];
}

std::vector<std::uint32_t> sorted(const Problem& problem, const Timeline& timeline, const std::vector<std::uint64_t>& load, Order order) {
  std::vector<Keyed> items;
  items.reserve(problem.buffers.size());
  Time low = 0;
  for (const Buffer& buffer : problem.buffers) low = std::min(low, buffer.life.begin);
  for (std::uint32_t b = 0; b < problem.buffers.size(); ++b)
    if (!timeline.of(b).empty() && problem.buffers[b].bytes.value > 0) items.push_back({static_cast<std::uint64_t>(problem.buffers[b].life.begin - low), b});
  radix_sort(items);
  if (order == Order::length) sort_by(items, key(problem, Order::size));
  if (order != Order::birth) sort_by(items, key(problem, order));
  if (order == Order::pressure) {
    const LargestLoad largest(load);
    std::vector<std::uint64_t> keys(problem.buffers.size());
    for (const Keyed& item : items)
      for (const Sections& piece : timeline.of(item.value)) keys[item.value] = std::max(keys[item.value], largest.over(piece));
    sort_by(items, keys);
  }
  std::vector<std::uint32_t> order_of;
  order_of.reserve(items.size());
  for (const Keyed& item : items) order_of.push_back(item.value);
  return order_of;
}

}  // namespace vedette::pack
