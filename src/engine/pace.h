// How planned moves of one direction start: up to `group` in one submission, when at most `refill_at` are in flight,
// never more than `most`. What is submitted together ends together. Each request more holds a frame that no thread can
// use, and each group wakes the migrator.
#pragma once
#include <cstdint>

namespace vedette {

struct Pace {
  std::uint32_t most, refill_at, group;
};
// Reads where two keep the disk as busy as many do: an op waits for the one chunk it lacks and for no others. (fio,
// medians, 2 MiB each: 1, 2, 3, 4, 6 in flight read 2.59, 2.57, 2.44, 2.33, 2.28 GB/s and take 0.8, 1.6, 3.4, 3.6,
// 7.3 ms.)
constexpr Pace one_by_one{.most = 2, .refill_at = 1, .group = 1};
// Else, and writes, beside a computation: one request of 2 MiB alone takes some 90 us of the machine's two cores
// (submission, interrupt, waking the migrator), one of four that go together 25 us.
constexpr Pace unhurried{.most = 6, .refill_at = 3, .group = 6};
// The same while the program waits for the disk, which idles between groups that end together: two in turns keep it
// busy.
constexpr Pace awaited{.most = 4, .refill_at = 2, .group = 2};

}  // namespace vedette
