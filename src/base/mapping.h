// A range of addresses with one owner: reserved by mmap, given back by munmap.
#pragma once
#include <cstddef>
#include <utility>

#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette {

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, Bytes{})) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // Private anonymous memory, readable and writable, no swap reservation, nothing populated. `alignment` is a power of
  // two.
  static Result<Mapping> reserve(Bytes bytes, Bytes alignment);

  std::byte* data() const noexcept { return data_; }
  Bytes bytes() const noexcept { return bytes_; }
  // releases the memory and keeps the addresses reserved: touching them is SIGSEGV from now on
  void empty() noexcept;
  std::byte* release() noexcept {
    bytes_ = {};
    return std::exchange(data_, nullptr);
  }  // now immortal

 private:
  Mapping(std::byte* data, Bytes bytes) noexcept : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  Bytes bytes_;
};

}  // namespace vedette
