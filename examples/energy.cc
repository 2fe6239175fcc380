// NVML's counter: see energy.h.
#include "energy.h"

#include <utility>

#include "cuda/device.h"
#include "cuda/nvml.h"

namespace vedette::examples {

Energy::Energy(const std::string& device) {
  if (device != "cuda") return;
  auto driver = cuda::Driver::load();
  if (!driver) return;
  const auto gpu = cuda::Device::open(std::move(*driver), 0);
  if (!gpu) return;
  counter_ = cuda::energy_counter((*gpu)->bus_id());
  static_cast<void>(counter_());  // loads NVML now, and not beside a step
}

std::optional<std::uint64_t> Energy::millijoules() const { return counter_ ? counter_() : std::nullopt; }

}  // namespace vedette::examples
