// What tests of the place executor have in common: the storages' pointers, and a disk.
#pragma once
#include <map>
#include <memory>

#include "gpu/place_executor.h"
#include "simulated_gpu/test_device.h"

namespace vedette::testing {

// The storages' pointers, as the adapter keeps them: what is away has none.
class Pointed final : public PlaceExecutor::Owner {
 public:
  void moved(PlaceExecutor::BlockIndex block, cuda::Address address) noexcept override { at[block.value] = address; }
  std::map<std::uint32_t, cuda::Address> at;
};

// A file in the folder of tests.
inline std::unique_ptr<DiskThread> open_disk() {
  return std::make_unique<DiskThread>(
      open_nvme_store({.directory = ::testing::TempDir(), .slot_bytes = 8_KiB, .depth = 8}).value());
}

}  // namespace vedette::testing
