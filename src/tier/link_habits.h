// Transfers between fast memory and a slow tier: their speed, and how many of them keep the link busy. Measured when a
// session opens (engine/measure.cc) or by `vedette doctor`; a field that was not measured has its default.
#pragma once
#include <algorithm>
#include <cstdint>

#include "vedette/units.h"

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
  // Writes go no faster than this, over a time; reads go as fast as they do beside so few.
  LinkSpeed with_writes_at_most(std::uint64_t bytes_per_s) const noexcept {
    if (write <= bytes_per_s) return *this;
    return {.read = read, .write = bytes_per_s, .mixed = read + bytes_per_s};
  }
  // The share of each of `users` that use it at the same time.
  LinkSpeed part(std::uint32_t users) const noexcept {
    return {.read = read / users, .write = write / users, .mixed = mixed / users};
  }
};

constexpr std::uint32_t default_in_flight = 6;
constexpr Nanoseconds default_latency{100'000};
// An access to a chunk that is away and that no op announced: the fault, the migrator's turn and the thread's waking,
// without the transfer. `vedette doctor` measures it; a session assumes so much unless SessionOptions::fault_time says
// otherwise.
constexpr Nanoseconds default_fault_time{100'000};

struct LinkHabits {
  LinkSpeed speed;
  // Of one transfer, before its first byte: a read alone takes so much longer than its bytes do among many.
  Nanoseconds latency = default_latency;
  // The fewest reads at once, of 2, 4 and 6, that keep the link nine tenths as busy as many do. An op that waits for
  // one chunk then waits for few others. (fio on one disk, medians, 2 MiB each: 1, 2, 3, 4, 6 in flight read 2.59,
  // 2.57, 2.44, 2.33, 2.28 GB/s and take 0.8, 1.6, 3.4, 3.6, 7.3 ms.)
  std::uint32_t reads_in_flight = default_in_flight;
  bool duplex() const noexcept { return !speed.one_bus(); }
};

}  // namespace vedette
