// NVML's counter: see energy.h.
#include "energy.h"

#include "cuda/device.h"
#include "cuda/nvml.h"

namespace vedette::examples {

struct Energy::Counter {
  std::shared_ptr<const cuda::Nvml> nvml;
  cuda::Nvml::DeviceHandle device;
};

Energy::Energy(const std::string& device) {
  if (device != "cuda") return;
  auto nvml = cuda::Nvml::load();
  if (!nvml) return;
  auto driver = cuda::Driver::load();
  if (!driver) return;
  const auto gpu = cuda::Device::open(std::move(*driver), 0);
  if (!gpu) return;
  const auto handle = (*nvml)->device((*gpu)->bus_id());
  if (handle) counter_ = std::make_unique<const Counter>(Counter{std::move(*nvml), *handle});
}

Energy::~Energy() = default;

std::optional<std::uint64_t> Energy::millijoules() const {
  if (counter_ == nullptr) return std::nullopt;
  const auto read = counter_->nvml->energy_mj(counter_->device);
  return read ? std::optional(*read) : std::nullopt;
}

}  // namespace vedette::examples
