// Counts libtorch's CPU memory without changing its allocator: the driver needs the peak of a plain run. The sum is
// that of vedette::Counters: live allocations, each rounded up to 64 bytes. Thread rule: any thread; installed once,
// before the first tensor whose memory is to count.
#pragma once
#include <cstdint>

namespace vedette::examples {

void count_allocations();            // from now on, until the process ends
std::uint64_t counted_peak_bytes();  // the largest sum so far, or since forget_peak()
void forget_peak();                  // the peak becomes the live bytes

}  // namespace vedette::examples
