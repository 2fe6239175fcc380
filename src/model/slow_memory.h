// Kinds of memory that a processor reads in place beside faster one, by published figures: as machines for the
// simulator (presets.cc), and as what a session on memory of one kind can pretend (session/stack.cc).
//
// Rates of the fast memory beside it are the data sheet's peak of as many channels as a socket has, so that a share of
// them is a share of what a program could have. Pure.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "vedette/units.h"

namespace vedette {

struct SlowMemory {
  std::string_view name;
  std::string_view source;
  std::string_view fast, slow;         // names of the tiers
  Bytes fast_bytes, slow_bytes;        // of a socket
  std::uint64_t fast_bytes_per_s = 0;  // of the memory beside it
  std::uint64_t read_bytes_per_s = 0, write_bytes_per_s = 0;
  Nanoseconds latency;
};

inline constexpr std::array slow_memories{
    SlowMemory{.name = "optane-2019",
               .source = "Izraelevitz et al., arXiv 1903.05714; six channels of DDR4-2666 by arithmetic",
               .fast = "dram",
               .slow = "optane",
               .fast_bytes = 192_GiB,
               .slow_bytes = {std::uint64_t{3} << 39},
               .fast_bytes_per_s = 128'000'000'000,
               .read_bytes_per_s = 39'400'000'000,
               .write_bytes_per_s = 13'900'000'000,
               .latency = {305}},
    SlowMemory{.name = "cxl-2025",
               .source = "data sheet of a Micron CZ120 module, 36 GB/s; eight channels of DDR5-4800 by arithmetic; "
                         "latency assumed, after arXiv 2405.14209",
               .fast = "dram",
               .slow = "cxl",
               .fast_bytes = 512_GiB,
               .slow_bytes = 256_GiB,
               .fast_bytes_per_s = 307'200'000'000,
               .read_bytes_per_s = 36'000'000'000,
               .write_bytes_per_s = 36'000'000'000,
               .latency = {250}},
    SlowMemory{.name = "hbm-flat",
               .source = "arithmetic of Xeon Max: four stacks of HBM2e at 3.2 GT/s beside eight channels of DDR5-4800; "
                         "latency assumed",
               .fast = "hbm",
               .slow = "dram",
               .fast_bytes = 64_GiB,
               .slow_bytes = 512_GiB,
               .fast_bytes_per_s = 1'638'400'000'000,
               .read_bytes_per_s = 307'200'000'000,
               .write_bytes_per_s = 307'200'000'000,
               .latency = {110}},
    SlowMemory{.name = "far-socket",
               .source = "arithmetic of three UPI links, 24 lanes at 16 GT/s each, beside eight channels of DDR5-4800; "
                         "latency assumed",
               .fast = "dram",
               .slow = "far",
               .fast_bytes = 512_GiB,
               .slow_bytes = 512_GiB,
               .fast_bytes_per_s = 307'200'000'000,
               .read_bytes_per_s = 144'000'000'000,
               .write_bytes_per_s = 144'000'000'000,
               .latency = {140}},
};

constexpr const SlowMemory* slow_memory_named(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(slow_memories, name, &SlowMemory::name);
  return found == slow_memories.end() ? nullptr : found;
}

}  // namespace vedette
