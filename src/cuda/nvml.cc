// Loading, and the sentences of errors: see nvml.h.
#include "cuda/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace vedette::cuda {
namespace {

constexpr const char* name_of_processes = "nvmlDeviceGetComputeRunningProcesses_v3";

Error not_there(std::string message) { return {.cause = Cause::unavailable, .message = std::move(message)}; }

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
  nvml->processes_ = reinterpret_cast<decltype(nvml->processes_)>(::dlsym(library, name_of_processes));
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

Result<std::uint64_t> Nvml::bytes_of_this_process(DeviceHandle device) const {
  constexpr unsigned most = 1024;
  constexpr unsigned long long not_told = ~0ull;
  if (processes_ == nullptr) return not_there("NVML lists no processes; install a newer driver");
  std::vector<Process> processes(most);
  unsigned count = most;
  if (auto listed = check(processes_(device, &count, processes.data()), "listing a GPU's processes"); !listed)
    return listed.error();
  processes.resize(std::min(count, most));
  const auto own = std::find_if(processes.begin(), processes.end(),
                                [](const Process& each) { return each.pid == static_cast<unsigned>(::getpid()); });
  if (own == processes.end() || own->bytes == not_told) return not_there("NVML does not know what this process takes");
  return std::uint64_t{own->bytes};
}

namespace {

std::function<std::optional<std::uint64_t>()> counter_of(std::string bus_id,
                                                         Result<std::uint64_t> (Nvml::*reading)(Nvml::DeviceHandle)
                                                             const) {
  struct Counter {
    std::string bus_id;
    bool looked = false;
    std::shared_ptr<const Nvml> nvml = nullptr;
    Nvml::DeviceHandle device = nullptr;  // nullptr: none was found
  };
  return [counter = std::make_shared<Counter>(Counter{std::move(bus_id)}), reading]() -> std::optional<std::uint64_t> {
    if (!std::exchange(counter->looked, true)) {
      if (auto nvml = Nvml::load()) counter->nvml = *std::move(nvml);
      if (counter->nvml != nullptr) {
        if (const auto device = counter->nvml->device(counter->bus_id)) counter->device = *device;
      }
    }
    if (counter->device == nullptr) return std::nullopt;
    const auto read = ((*counter->nvml).*reading)(counter->device);
    return read ? std::optional(*read) : std::nullopt;
  };
}

}  // namespace

std::function<std::optional<std::uint64_t>()> energy_counter(std::string bus_id) {
  return counter_of(std::move(bus_id), &Nvml::energy_mj);
}

std::function<std::optional<std::uint64_t>()> process_memory_counter(std::string bus_id) {
  return counter_of(std::move(bus_id), &Nvml::bytes_of_this_process);
}

}  // namespace vedette::cuda
