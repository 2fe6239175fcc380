// The fake's NVML (an energy counter that steps every 20 ms) and CUPTI (a record for each word that a kernel touches by
// strides).
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <vector>

#include "gpu_fake/fake.h"
#include "gpu_probe/activity.h"

namespace vedette::gpu::fake {
namespace {

using Request = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using Complete = void (*)(struct ContextTag*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);

std::mutex guard;
std::vector<CounterRecord> records;  // guarded by `guard`, as are the next three
Request request_buffer = nullptr;
Complete complete_buffer = nullptr;
bool enabled = false;

std::uint64_t milliseconds() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace

void record_fault(Address page, bool written) {
  const std::lock_guard lock(guard);
  if (!enabled) return;
  CounterRecord record{};
  record.activity_kind = activity_unified_memory_counter;
  record.kind = CounterKind::device_page_fault;
  record.address = page;
  const FaultAccess access = script("records") == "no_access" ? FaultAccess::unknown
                             : written                        ? FaultAccess::write
                                                              : FaultAccess::read;
  record.flags = static_cast<std::uint32_t>(access);
  records.push_back(record);
  record.kind = CounterKind::bytes_to_device;
  records.push_back(record);
}

}  // namespace vedette::gpu::fake

using namespace vedette::gpu;
using namespace vedette::gpu::fake;

FAKE_EXPORT int cuptiActivityRegisterCallbacks(Request request, Complete complete) {
  if (const int error = enter("cuptiActivityRegisterCallbacks"); error != 0) return error;
  const std::lock_guard lock(guard);
  request_buffer = request;
  complete_buffer = complete;
  return 0;
}

FAKE_EXPORT int cuptiActivityConfigureUnifiedMemoryCounter(CounterConfiguration* wanted, std::uint32_t count) {
  if (count != 4 || wanted[3].kind != CounterKind::device_page_fault || wanted[3].enable != 1) log("misuse: counters");
  return enter("cuptiActivityConfigureUnifiedMemoryCounter");
}

FAKE_EXPORT int cuptiActivityEnable(int kind) {
  if (const int error = enter("cuptiActivityEnable"); error != 0) return error;
  const std::lock_guard lock(guard);
  enabled = kind == activity_unified_memory_counter;
  return 0;
}

FAKE_EXPORT int cuptiActivityDisable(int) {
  const std::lock_guard lock(guard);
  enabled = false;
  return enter("cuptiActivityDisable");
}

FAKE_EXPORT int cuptiActivityFlushAll(std::uint32_t) {
  if (const int error = enter("cuptiActivityFlushAll"); error != 0) return error;
  const std::lock_guard lock(guard);
  std::uint8_t* buffer = nullptr;
  std::size_t bytes = 0, most = 0;
  request_buffer(&buffer, &bytes, &most);
  const std::size_t used = records.size() * sizeof(CounterRecord);
  if (used > bytes) return 1;
  if (used > 0) std::memcpy(buffer, records.data(), used);
  records.clear();
  complete_buffer(nullptr, 0, buffer, bytes, used);
  return 0;
}

FAKE_EXPORT int cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t bytes, void** record) {
  std::uint8_t* const next = *record == nullptr ? buffer : static_cast<std::uint8_t*>(*record) + sizeof(CounterRecord);
  if (next + sizeof(CounterRecord) > buffer + bytes) return activity_no_more_records;
  *record = next;
  return 0;
}

FAKE_EXPORT int cuptiGetResultString(int error, const char** text) {
  *text = error == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_UNKNOWN";
  return 0;
}

FAKE_EXPORT int nvmlInit_v2() { return enter("nvmlInit_v2"); }
FAKE_EXPORT const char* nvmlErrorString(int error) { return error == 3 ? "Not Supported" : "Unknown Error"; }

FAKE_EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::strncpy(text, "580.00", length - 1);
  return enter("nvmlSystemGetDriverVersion");
}

FAKE_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  *device = nullptr;
  return std::strcmp(id, "0000:0B:00.0") == 0 ? enter("nvmlDeviceGetHandleByPciBusId_v2") : 2;
}

FAKE_EXPORT int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* mj) {
  *mj = milliseconds() / 20 * 137;
  return enter("nvmlDeviceGetTotalEnergyConsumption");
}

FAKE_EXPORT int nvmlDeviceGetPowerUsage(void*, unsigned* mw) {
  *mw = 70000;
  return enter("nvmlDeviceGetPowerUsage");
}
