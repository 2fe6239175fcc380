// libnvidia-ml.so.1 that is none: one GPU at the simulated bus id, which takes 100 W whatever it does, or as much for
// each reading of its counter as a test says. It has what vedette and its probe call, and what libtorch looks up, all
// of it, before it tells that a GPU's memory is used up. It follows the script of SIMULATED_GPU by itself, without the
// simulated driver, a machine may have the one without the other; what the process takes it asks the driver, if there
// is one.
//
// Thread rule: any thread.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "simulated_gpu/control.h"
#include "simulated_gpu/options.h"

#define NVML_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int success = 0, not_supported = 3, not_found = 6;  // nvmlReturn_t
constexpr unsigned milliwatts = 100'000;
constexpr const char* bus_id = ":00:00.0";  // behind a domain of four or eight zeros
using Clock = std::chrono::steady_clock;
int device = 0;
const Clock::time_point began = Clock::now();                 // when the driver was loaded, as it were
std::atomic<unsigned long long> a_reading = 0, readings = 0;  // relaxed: a test that chooses has one thread that reads

using namespace vedette::simulated;

const Options& options_here() {
  static const Options options = [] {
    const char* const text = ::secure_getenv("SIMULATED_GPU");
    return parse_options(text == nullptr ? "" : text);
  }();
  return options;
}

// Counts the call; not 0: the error that it returns.
int enter(const char* call) {
  static std::mutex guard;
  static std::map<std::string, unsigned> made;
  std::unique_lock lock(guard);
  const unsigned number = ++made[call];
  lock.unlock();
  return follow(options_here().failing, call, number);
}

}  // namespace

NVML_EXPORT int nvmlInit_v2() { return enter("nvmlInit_v2"); }

NVML_EXPORT const char* nvmlErrorString(int error) {
  return error == success ? "Success" : error == not_supported ? "Not Supported" : "Not Found";
}

NVML_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* wanted, void** handle) {
  const std::size_t domain = std::strspn(wanted, "0");
  if ((domain != 4 && domain != 8) || std::strcmp(wanted + domain, bus_id) != 0) return not_found;
  *handle = &device;
  return enter("nvmlDeviceGetHandleByPciBusId_v2");
}

NVML_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (index != 0) return not_found;
  *handle = &device;
  return success;
}

NVML_EXPORT int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
  if (const int error = enter("nvmlDeviceGetTotalEnergyConsumption"); error != success) return error;
  const std::chrono::duration<double> since = Clock::now() - began;
  const unsigned long long each = a_reading.load(std::memory_order_relaxed);
  *millijoules = each > 0 ? each * (readings.fetch_add(1, std::memory_order_relaxed) + 1)
                          : static_cast<unsigned long long>(since.count() * milliwatts);
  return success;
}

// 0: 100 W.
NVML_EXPORT void simulated_nvml_millijoules_a_reading(unsigned long long millijoules) {
  a_reading.store(millijoules, std::memory_order_relaxed);
}
NVML_EXPORT unsigned long long simulated_nvml_readings() { return readings.load(std::memory_order_relaxed); }

NVML_EXPORT int nvmlDeviceGetPowerUsage(void*, unsigned* power) {
  *power = milliwatts;
  return enter("nvmlDeviceGetPowerUsage");
}

NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return success;
}

// The calling process alone: its memory on the simulated device, and its context.
NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void* list) {
  struct {  // nvmlProcessInfo_t
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
  } process{static_cast<unsigned>(::getpid()), options_here().context, ~0u, ~0u};
  if (const int error = enter("nvmlDeviceGetComputeRunningProcesses_v3"); error != success) return error;
  const auto driver = reinterpret_cast<Control* (*)()>(::dlsym(RTLD_DEFAULT, "simulated_gpu"));
  if (driver != nullptr) process.bytes += driver()->in_use();
  *count = 1;
  std::memcpy(list, &process, sizeof process);
  return success;
}

NVML_EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::strncpy(text, "580.00", length - 1);
  text[length - 1] = 0;
  return enter("nvmlSystemGetDriverVersion");
}

NVML_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return success;
}

NVML_EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int*) { return not_supported; }
NVML_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return not_supported; }
