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

std::uint64_t length(const Buffer& buffer) {
  return static_cast<std::uint64_t>(std::max<Time>(buffer.life.end - buffer.life.begin, 0));
}

// Larger keys come first.
std::uint64_t key(const Buffer& buffer, Order order) {
  const std::uint64_t bytes = buffer.bytes.value;
  switch (order) {
    case Order::birth:
      return 0;
    case Order::size:
      return bytes;
    case Order::length:
      return length(buffer);
    case Order::area:
      return product(bytes, length(buffer));
    case Order::balanced:
      return product(bytes, static_cast<std::uint64_t>(std::sqrt(static_cast<double>(length(buffer))) * 16));
    case Order::pressure:
      return length(buffer);
  }
  return 0;
}

void sort_by(std::vector<Keyed>& items, const Problem& problem, Order order) {
  for (Keyed& item : items) item.key = ~key(problem.buffers[item.value], order);
  radix_sort(items);
}

// Sections [from, to) of the load are those that the items cover.
void sort_by_load(std::vector<Keyed>& items, const Timeline& timeline, const std::vector<std::uint64_t>& load) {
  Sections all{~std::uint32_t{0}, 0};
  for (const Keyed& item : items)
    for (const Sections& piece : timeline.of(item.value))
      all = {std::min(all.begin, piece.begin), std::max(all.end, piece.end)};
  const LargestLoad largest({load.begin() + all.begin, load.begin() + all.end});
  for (Keyed& item : items) {
    std::uint64_t most = 0;
    for (const Sections& piece : timeline.of(item.value))
      most = std::max(most, largest.over({piece.begin - all.begin, piece.end - all.begin}));
    item.key = ~most;
  }
  radix_sort(items);
}

}  // namespace

std::string_view name(Order order) {
  constexpr std::string_view names[] = {"birth", "size", "length", "area", "balanced", "pressure"};
  return names[static_cast<std::size_t>(order)];
}

std::vector<std::uint32_t> by_birth(const Problem& problem) {
  Time low = 0;
  for (const Buffer& buffer : problem.buffers) low = std::min(low, buffer.life.begin);
  std::vector<Keyed> items;
  items.reserve(problem.buffers.size());
  for (std::uint32_t b = 0; b < problem.buffers.size(); ++b) {
    const Buffer& buffer = problem.buffers[b];
    if (buffer.life.begin < buffer.life.end && buffer.bytes.value > 0)
      items.push_back({static_cast<std::uint64_t>(buffer.life.begin - low), b});
  }
  radix_sort(items);
  std::vector<std::uint32_t> born(items.size());
  std::transform(items.begin(), items.end(), born.begin(), [](const Keyed& item) { return item.value; });
  return born;
}

std::vector<std::uint32_t> sorted(const Problem& problem, const Timeline& timeline,
                                  const std::vector<std::uint64_t>& load, const std::vector<std::uint32_t>& born,
                                  Order order) {
  if (order == Order::birth || born.empty()) return born;
  std::vector<Keyed> items(born.size());
  std::transform(born.begin(), born.end(), items.begin(), [](std::uint32_t b) { return Keyed{0, b}; });
  if (order == Order::length) sort_by(items, problem, Order::size);
  sort_by(items, problem, order);
  if (order == Order::pressure) sort_by_load(items, timeline, load);
  std::vector<std::uint32_t> result(items.size());
  std::transform(items.begin(), items.end(), result.begin(), [](const Keyed& item) { return item.value; });
  return result;
}

}  // namespace vedette::pack
