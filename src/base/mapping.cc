#include "base/mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/readable.h"

namespace vedette {

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) ::munmap(data_, bytes_.value);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, Bytes{});
  }
  return *this;
}

void Mapping::empty() noexcept {
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  ::mmap(data_, bytes_.value, PROT_NONE, flags, -1, 0);  // a refusal costs memory, nothing else
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_.value);
}

Result<Mapping> Mapping::reserve(Bytes bytes, Bytes alignment) {
  const std::size_t padded = bytes.value + alignment.value;
  void* raw = ::mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return Error{.cause = Cause::out_of_memory,
                 .message = "reserving " + readable({padded}) + " of addresses: " + std::strerror(errno) +
                            "; raise the address space limit (ulimit -v) or allow overcommit (vm.overcommit_memory=0)",
                 .errno_value = errno};
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const auto aligned = (begin + alignment.value - 1) & ~(alignment.value - 1);
  if (aligned > begin) ::munmap(raw, aligned - begin);
  const std::size_t tail = begin + padded - (aligned + bytes.value);
  if (tail > 0) ::munmap(reinterpret_cast<void*>(aligned + bytes.value), tail);
  return Mapping(reinterpret_cast<std::byte*>(aligned), bytes);
}

}  // namespace vedette
