// Sorting by an integer key in linear time, which keeps a million buffers within seconds.
//
// Stable; passes over bytes in which all keys agree are left out.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace vedette::pack {

struct Keyed {
  std::uint64_t key;
  std::uint32_t value;
};

inline void radix_sort(std::vector<Keyed>& items) {
  if (items.size() < 256) {
    std::stable_sort(items.begin(), items.end(), [](const Keyed& a, const Keyed& b) { return a.key < b.key; });
    return;
  }
  std::uint64_t ones = 0, zeros = 0;
  for (const Keyed& item : items) ones |= item.key, zeros |= ~item.key;
  const std::uint64_t differ = ones & zeros;
  std::vector<Keyed> other(items.size());
  for (unsigned shift = 0; shift < 64; shift += 8) {
    if ((differ >> shift & 0xff) == 0) continue;
    std::array<std::size_t, 256> begin{};
    for (const Keyed& item : items) ++begin[item.key >> shift & 0xff];
    std::size_t sum = 0;
    for (std::size_t& b : begin) {
      const std::size_t count = b;
      b = sum;
      sum += count;
    }
    for (const Keyed& item : items) other[begin[item.key >> shift & 0xff]++] = item;
    items.swap(other);
  }
}

}  // namespace vedette::pack
