// Small copies in one call of the driver: cuMemcpyBatchAsync. On an H200 that is 1.4 to 2.3 times the rate at 64 KiB,
// 1.1 to 1.6 at 256 KiB, 1.06 to 1.2 at 1 MiB, and less than half of the host's time (docs/gpu-facts.md).
//
// A call's copies run behind what was queued on the stream before it and before what is queued after it. Nothing orders
// them among themselves: no two of them may write the same bytes, or one write what another one reads.
//
// Drivers have the function since CUDA 12.8. In CUDA 13 it lost the parameter that says which copy was refused, so the
// function is asked for by version. Thread rule: any thread.
#pragma once
#include <cstddef>
#include <span>

#include "cuda/api.h"
#include "vedette/units.h"

namespace vedette::cuda {

struct Copy {
  Address to = 0, from = 0;
  Bytes bytes;
};

constexpr Bytes small_copy = {std::uint64_t{1} << 20};      // larger ones gain less than a tenth
constexpr Bytes most_in_a_call = {std::uint64_t{4} << 20};  // 77 us of the link: what waits for one waits for all
constexpr std::size_t most_copies_in_a_call = 64;

class BatchedCopies {
 public:
  using Since13 = int (*)(Address*, Address*, std::size_t*, std::size_t, CopyAttributes*, std::size_t*, std::size_t,
                          StreamHandle);
  using Since12_8 = int (*)(Address*, Address*, std::size_t*, std::size_t, CopyAttributes*, std::size_t*, std::size_t,
                            std::size_t*, StreamHandle);
  using Find = int (*)(const char*, void**, int, std::uint64_t, int*);  // cuGetProcAddress_v2
  BatchedCopies() = default;
  BatchedCopies(Find find, int driver_version);  // 12080 is CUDA 12.8

  explicit operator bool() const noexcept { return since_13_ != nullptr || since_12_8_ != nullptr; }
  // At most most_copies_in_a_call. An error: some of them may be queued.
  int operator()(StreamHandle stream, std::span<const Copy> copies) const;

 private:
  Since13 since_13_ = nullptr;
  Since12_8 since_12_8_ = nullptr;
};

}  // namespace vedette::cuda
