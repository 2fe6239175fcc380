// The fake's script, log and state, and the calls about the device: see fake.h.
#include "gpu_fake/fake.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

namespace vedette::gpu::fake {
namespace {

std::map<std::string, std::string> read_script() {
  std::map<std::string, std::string> found;
  const char* const text = std::getenv("GPU_FAKE");
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; words >> word;) {
    const std::size_t at = word.find('=');
    found[word.substr(0, at)] = at == word.npos ? "" : word.substr(at + 1);
  }
  return found;
}

int act(const std::string& action) {
  const std::size_t colon = action.find(':');
  const std::string verb = action.substr(0, colon);
  const int number = colon == action.npos ? 0 : std::atoi(action.c_str() + colon + 1);
  if (verb == "us") std::this_thread::sleep_for(std::chrono::microseconds(number));
  if (verb == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  if (verb == "crash") std::raise(SIGKILL);
  if (verb == "waits") wait_until_idle();
  return verb == "error" ? number : 0;
}

}  // namespace

std::string script(const std::string& key, const std::string& otherwise) {
  static const std::map<std::string, std::string> words = read_script();
  const auto found = words.find(key);
  return found == words.end() ? otherwise : found->second;
}

void log(const std::string& line) {
  static const int file = [] {
    const char* const path = std::getenv("GPU_FAKE_LOG");
    return path == nullptr ? -1 : ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }();
  const std::string whole = line + "\n";
  if (file >= 0 && ::write(file, whole.data(), whole.size()) < 0) std::abort();
}

int enter(const char* function, int location_type) {
  const std::string at = std::string(function) + "@" + std::to_string(location_type);
  log(location_type == 0 ? function : at);
  if (const int error = act(script(function)); error != 0) return error;
  if (const int error = act(script(at)); error != 0) return error;
  return state().sticky.load();
}

State& state() {
  static State* const whole = new State;  // for ever: threads of streams outlive main()
  return *whole;
}

bool accessible(Address at, std::size_t bytes) {
  for (const Address end = at + bytes; at < end;) {
    auto region = state().regions.upper_bound(at);
    if (region == state().regions.begin()) return false;
    --region;
    if (!region->second.access || region->first + region->second.bytes <= at) return false;
    at = region->first + region->second.bytes;
  }
  return true;
}

void tell_leaks() {
  State& all = state();
  const std::shared_lock lock(all.memory);
  for (const auto& [address, region] : all.regions)
    log("leak: region of kind " + std::to_string(static_cast<int>(region.kind)));
  if (!all.ranges.empty()) log("leak: range");
  if (!all.frames.empty()) log("leak: frame");
  if (all.streams.load() != 0) log("leak: stream");
  if (all.events.load() != 0) log("leak: event");
}

}  // namespace vedette::gpu::fake

using namespace vedette::gpu;
using namespace vedette::gpu::fake;

FAKE_EXPORT int cuInit(unsigned) { return enter("cuInit"); }

FAKE_EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return enter("cuDriverGetVersion");
}

FAKE_EXPORT int cuDeviceGetCount(int* count) {
  *count = std::atoi(script("devices", "1").c_str());
  return enter("cuDeviceGetCount");
}

FAKE_EXPORT int cuDeviceGet(Device* device, int ordinal) {
  *device = ordinal;
  return enter("cuDeviceGet");
}

FAKE_EXPORT int cuDeviceGetName(char* name, int length, Device) {
  std::strncpy(name, "no GPU at all", static_cast<std::size_t>(length) - 1);
  return enter("cuDeviceGetName");
}

FAKE_EXPORT int cuDeviceGetPCIBusId(char* id, int length, Device) {
  std::strncpy(id, "0000:0B:00.0", static_cast<std::size_t>(length) - 1);
  return enter("cuDeviceGetPCIBusId");
}

FAKE_EXPORT int cuDeviceGetAttribute(int* value, Attribute which, Device) {
  *value = 1;
  if (which == Attribute::multiprocessor_count) *value = 2;
  if (which == Attribute::host_numa_id) *value = 0;
  if (which == Attribute::pageable_memory_access) *value = std::atoi(script("pageable", "0").c_str());
  if (which == Attribute::pageable_memory_access_uses_host_page_tables)
    *value = std::atoi(script("tables", "0").c_str());
  return enter("cuDeviceGetAttribute");
}

FAKE_EXPORT int cuDevicePrimaryCtxRetain(Context* context, Device) {
  *context = reinterpret_cast<Context>(0x10);
  return enter("cuDevicePrimaryCtxRetain");
}

FAKE_EXPORT int cuDevicePrimaryCtxRelease_v2(Device) {
  tell_leaks();
  return enter("cuDevicePrimaryCtxRelease_v2");
}

FAKE_EXPORT int cuCtxSetCurrent(Context) { return enter("cuCtxSetCurrent"); }

FAKE_EXPORT int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *total = std::size_t{8} << 30;
  *free = std::strtoull(script("free_mib", "4096").c_str(), nullptr, 10) << 20;
  return enter("cuMemGetInfo_v2");
}

FAKE_EXPORT int cuGetErrorName(int error, const char** name) {
  static const std::map<int, const char*> names = {{1, "CUDA_ERROR_INVALID_VALUE"},
                                                   {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                   {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                   {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
                                                   {801, "CUDA_ERROR_NOT_SUPPORTED"}};
  const auto found = names.find(error);
  if (found == names.end()) return 1;
  *name = found->second;
  return 0;
}
