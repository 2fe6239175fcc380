// The sizes that fast memory may have.
//
// Thread rule: any thread.
#pragma once
#include <cstdint>

#include "base/gpu_name.h"
#include "vedette/result.h"
#include "vedette/session.h"

namespace vedette::detail {

constexpr std::uint64_t fewest_frames = 8;  // one op reads two and writes one; slab, and moves in flight

// The first chunks of small tensors stay in fast memory, so that no op waits for one: up to an eighth of it. Steps of
// ordinary networks fill one or two such chunks. More of them could not stay: the operands of ops, transfers, and
// tensors that the program holds need the rest.
constexpr std::uint32_t most_slab_chunks_that_stay(std::uint32_t frames) noexcept {
  constexpr std::uint32_t small_tensors_share = 8;
  return frames < small_tensors_share ? 1 : frames / small_tensors_share;
}

Bytes memory_of_the_machine() noexcept;
inline Bytes least_fast_memory(const SessionOptions& options) noexcept {
  return is_host_memory(options.fast) ? Bytes{fewest_frames * options.chunk.value}
                                      : options.table_memory + options.chunk;
}
// `options.fast_memory`, for chunks of its size. Error: it is too small, or more than the machine has.
Result<void> valid_fast_memory(const SessionOptions& options);
// Once all frames are made, the kernel kills a process that exceeds the limit of its memory cgroup: better refused, or
// said by on_message, before.
Result<void> fits_memory_cgroup(const SessionOptions& options);

}  // namespace vedette::detail
