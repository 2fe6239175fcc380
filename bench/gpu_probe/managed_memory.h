// A little managed memory: 64 MiB (4 in a quick run), and never more than a quarter of what is free on the device.
#pragma once
#include "gpu_probe/device.h"

namespace vedette::gpu {

constexpr std::size_t block_bytes = 2 * mebibyte;  // what the driver migrates at most at once

class ManagedMemory {
 public:
  ManagedMemory(const Gpu& gpu, bool quick, std::size_t bytes = 64 * mebibyte)
      : gpu_(gpu), bytes_(quick ? 4 * mebibyte : bytes) {
    if (bytes_ > gpu.free_bytes() / 4) throw Refused("less than four times as much device memory is free");
    gpu.cuda.allocate_managed(&address_, bytes_, managed_attached_global);
  }
  ~ManagedMemory() { gpu_.cuda.free.error(address_); }
  ManagedMemory(const ManagedMemory&) = delete;
  ManagedMemory& operator=(const ManagedMemory&) = delete;
  Address address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  std::size_t blocks() const { return bytes_ / block_bytes; }

 private:
  const Gpu& gpu_;
  std::size_t bytes_;
  Address address_ = 0;
};

}  // namespace vedette::gpu
