// How fast a slow tier is, as somebody measured it.
#pragma once
#include <algorithm>
#include <cstdint>

namespace vedette {

struct LinkSpeed {  // bytes a second
  std::uint64_t read = 0, write = 0;
  std::uint64_t mixed = 0;  // as many bytes each way at once, added up
  // Both ways at once give clearly less than each alone, added up: they share a bus.
  bool one_bus() const noexcept { return mixed * 10 < (read + write) * 8; }
  // One direction while the other rests: of a bus no more than the bus gives, which may be measured slower than its
  // faster direction.
  std::uint64_t read_alone() const noexcept { return one_bus() ? std::min(read, mixed) : read; }
  std::uint64_t write_alone() const noexcept { return one_bus() ? std::min(write, mixed) : write; }
};

}  // namespace vedette
