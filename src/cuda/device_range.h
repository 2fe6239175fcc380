// Device memory of one range of addresses, mapped once in large handles: tensors are placed in it, nothing is remapped
// while kernels run. It may grow and shrink at quiet points, when the device has been waited for. Or managed memory of
// a fixed size, whose pages lie on the device or on the host.
//
// Thread rule: one thread at a time. At the end the device must be done with the memory.
#pragma once
#include <memory>
#include <vector>

#include "cuda/device.h"

namespace vedette::cuda {

class DeviceRange {
 public:
  struct Options {
    Bytes bytes;            // mapped at first; rounded up to whole granules
    Bytes most;             // addresses that are reserved; 0: as many as bytes
    Bytes handle = 64_MiB;  // largest handle; the cost of mapping is one handle's, whatever its size
    bool managed = false;   // `most` and `handle` are not used; the driver has the functions (ManagedTracker::works_on)
  };

  static Result<DeviceRange> make(std::shared_ptr<const Device>, const Options&);
  DeviceRange(DeviceRange&&) noexcept;
  DeviceRange& operator=(DeviceRange&&) = delete;
  ~DeviceRange();

  Address address() const noexcept { return address_; }
  Bytes bytes() const noexcept { return {mapped_}; }
  // Maps or unmaps at the end, in whole handles. Errors leave the range at the size that bytes() says. Shrinking: the
  // device is done with the bytes that go; at least `bytes` stay.
  Result<void> resize(Bytes bytes);

 private:
  struct Piece {
    Handle handle = 0;
    std::size_t bytes = 0;
  };
  explicit DeviceRange(std::shared_ptr<const Device> device) noexcept : device_(std::move(device)) {}
  Result<void> map(std::size_t bytes);
  Result<void> take_managed(std::size_t bytes);
  void unmap_last() noexcept;

  std::shared_ptr<const Device> device_;
  AllocationProperties properties_;
  std::size_t granule_ = 0, reserved_ = 0, mapped_ = 0, largest_ = 0;
  bool managed_ = false;
  Address address_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace vedette::cuda
