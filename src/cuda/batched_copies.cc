// The driver's function by its version: see batched_copies.h.
#include "cuda/batched_copies.h"

#include <array>

#include "base/assert.h"

namespace vedette::cuda {

BatchedCopies::BatchedCopies(Find find, int driver_version) {
  constexpr const char* name = "cuMemcpyBatchAsync";
  constexpr int first = 12080, without_failed_index = 13000;
  const auto ask = [&](int version) {
    void* function = nullptr;
    return find(name, &function, version, 0, nullptr) == success ? function : nullptr;
  };
  if (driver_version >= without_failed_index)
    since_13_ = reinterpret_cast<Since13>(ask(without_failed_index));
  else if (driver_version >= first)
    since_12_8_ = reinterpret_cast<Since12_8>(ask(first));
}

int BatchedCopies::operator()(StreamHandle stream, std::span<const Copy> copies) const {
  VEDETTE_ASSERT(copies.size() <= most_copies_in_a_call);
  std::array<Address, most_copies_in_a_call> to, from;
  std::array<std::size_t, most_copies_in_a_call> bytes;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    to[i] = copies[i].to;
    from[i] = copies[i].from;
    bytes[i] = copies[i].bytes.value;
  }
  CopyAttributes attributes;                     // of all of them
  std::size_t first_with_them = 0, refused = 0;  // which one was refused: of no use, as all are tried again
  return since_13_ != nullptr
             ? since_13_(to.data(), from.data(), bytes.data(), copies.size(), &attributes, &first_with_them, 1, stream)
             : since_12_8_(to.data(), from.data(), bytes.data(), copies.size(), &attributes, &first_with_them, 1,
                           &refused, stream);
}

}  // namespace vedette::cuda
