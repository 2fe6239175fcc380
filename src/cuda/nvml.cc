// Loading, and the sentences of errors: see nvml.h.
#include "cuda/nvml.h"

#include <dlfcn.h>

#include <utility>

namespace vedette::cuda {
namespace {

Error not_there(std::string message) {
  return {.cause = Cause::unavailable, .message = std::move(message), .errno_value = 0};
}

}  // namespace

Result<std::shared_ptr<const Nvml>> Nvml::load(const std::string& file) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return not_there("NVML (" + file + ") is not there: the driver's package brings it");
  std::shared_ptr<Nvml> nvml(new Nvml);
  bool whole = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    whole = whole && function != nullptr;
  };
  find(nvml->name_of_error_, "nvmlErrorString");
#define CALL(member, header_name, exported_name, ...) find(nvml->member##_, #exported_name);
#include "cuda/nvml_calls.def"
#undef CALL
  if (!whole) return not_there("NVML (" + file + ") lacks a function; install the driver's own");
  if (auto begun = nvml->check(nvml->init_(), "starting NVML"); !begun) return begun.error();
  return std::shared_ptr<const Nvml>(std::move(nvml));
}

Result<void> Nvml::check(int error, const char* doing) const {
  if (error == 0) return {};
  const char* const name = name_of_error_(error);
  return not_there(std::string(doing) + " failed: " + (name == nullptr ? "error " + std::to_string(error) : name) +
                   "; nvidia-smi says more");
}

Result<Nvml::DeviceHandle> Nvml::device(const std::string& bus_id) const {
  DeviceHandle handle = nullptr;
  if (auto found = check(device_(bus_id.c_str(), &handle), "finding a GPU by NVML"); !found) return found.error();
  return handle;
}

Result<std::uint64_t> Nvml::energy_mj(DeviceHandle device) const {
  unsigned long long energy = 0;
  if (auto read = check(energy_mj_(device, &energy), "reading a GPU's energy"); !read) return read.error();
  return std::uint64_t{energy};
}

Result<std::uint32_t> Nvml::power_mw(DeviceHandle device) const {
  unsigned power = 0;
  if (auto read = check(power_mw_(device, &power), "reading a GPU's power"); !read) return read.error();
  return std::uint32_t{power};
}

std::function<std::optional<std::uint64_t>()> energy_counter(std::string bus_id) {
  struct Counter {
    std::string bus_id;
    bool looked = false;
    std::shared_ptr<const Nvml> nvml = nullptr;
    Nvml::DeviceHandle device = nullptr;  // nullptr: none was found
  };
  return [counter = std::make_shared<Counter>(Counter{std::move(bus_id)})]() -> std::optional<std::uint64_t> {
    if (!std::exchange(counter->looked, true)) {
      if (auto nvml = Nvml::load()) counter->nvml = *std::move(nvml);
      if (counter->nvml != nullptr) {
        if (const auto device = counter->nvml->device(counter->bus_id)) counter->device = *device;
      }
    }
    if (counter->device == nullptr) return std::nullopt;
    const auto read = counter->nvml->energy_mj(counter->device);
    return read ? std::optional(*read) : std::nullopt;
  };
}

}  // namespace vedette::cuda
