#include "base/mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

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
  // After mlockall(MCL_FUTURE) a new mapping is locked and filled at once, but not while it has no access.
  void* raw = ::mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw != MAP_FAILED && (::munlock(raw, padded) != 0 || ::mprotect(raw, padded, PROT_READ | PROT_WRITE) != 0)) {
    const int error = errno;
    ::munmap(raw, padded);
    raw = MAP_FAILED;
    errno = error;
  }
  if (raw == MAP_FAILED) {
    const int error = errno;
    return Error{.cause = Cause::out_of_memory,
                 .message = "reserving " + readable({padded}) + " of addresses: " + std::strerror(error) +
                            (error == EAGAIN ? "; all memory of this program is locked (mlockall with MCL_FUTURE) and "
                                               "the limit is too low: raise it (ulimit -l), or lock less"
                                             : "; raise the address space limit (ulimit -v) or allow overcommit "
                                               "(vm.overcommit_memory=0)"),
                 .errno_value = error};
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const auto aligned = (begin + alignment.value - 1) & ~(alignment.value - 1);
  if (aligned > begin) ::munmap(raw, aligned - begin);
  const std::size_t tail = begin + padded - (aligned + bytes.value);
  if (tail > 0) ::munmap(reinterpret_cast<void*>(aligned + bytes.value), tail);
  return Mapping(reinterpret_cast<std::byte*>(aligned), bytes);
}

}  // namespace vedette
