// libcupti.so.13 that is none: records of managed pages that came to one side by a fault (managed.h). Its other
// functions are made by stand_ins.py, and end the process with their name.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "cuda/cupti_api.h"
#include "simulated_gpu/entry.h"
#include "simulated_gpu/managed.h"
#include "simulated_gpu/memory.h"

using namespace vedette::cuda;
using namespace vedette::simulated;

namespace {

constexpr int invalid_parameter = 1;

struct Books {
  std::mutex guard;
  GiveActivityBuffer give = nullptr;
  TakeActivityBuffer take = nullptr;
  std::set<CounterKind> kinds;
  std::size_t lost = 0;
};

Books& books() {
  static auto* const whole = new Books;
  return *whole;
}

CounterRecord record_of(const ManagedPages::Fault& fault, CounterKind kind) {
  CounterRecord record{};
  record.activity_kind = activity_managed_memory;
  record.kind = kind;
  record.address = fault.page;
  record.start = record.end = static_cast<std::uint64_t>(fault.ns);
  const bool is_fault = kind == CounterKind::device_page_fault || kind == CounterKind::host_page_fault;
  record.value = is_fault ? 1 : ManagedPages::page_bytes;
  if (kind == CounterKind::device_page_fault && options().fault_access)
    record.flags = static_cast<std::uint32_t>(fault.write ? FaultAccess::write : FaultAccess::read);
  return record;
}

std::vector<CounterRecord> records_of(const std::vector<ManagedPages::Fault>& faults) {
  std::vector<CounterRecord> records;
  const auto add = [&](const ManagedPages::Fault& fault, CounterKind kind) {
    if (books().kinds.contains(kind)) records.push_back(record_of(fault, kind));
  };
  for (const ManagedPages::Fault& each : faults) {
    add(each, each.by_device ? CounterKind::device_page_fault : CounterKind::host_page_fault);
    if (each.moved) add(each, each.by_device ? CounterKind::bytes_to_device : CounterKind::bytes_to_host);
  }
  return records;
}

}  // namespace

SIMULATED_EXPORT int cuptiActivityRegisterCallbacks(GiveActivityBuffer give, TakeActivityBuffer take) {
  if (const int error = enter("cuptiActivityRegisterCallbacks", false); error != 0) return error;
  const std::lock_guard lock(books().guard);
  books().give = give;
  books().take = take;
  return 0;
}

SIMULATED_EXPORT int cuptiActivityConfigureUnifiedMemoryCounter(CounterConfiguration* wanted, std::uint32_t count) {
  if (const int error = enter("cuptiActivityConfigureUnifiedMemoryCounter", false); error != 0) return error;
  if (wanted == nullptr || count == 0) return invalid_parameter;
  const std::lock_guard lock(books().guard);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (wanted[i].enable == 1) books().kinds.insert(wanted[i].kind);
    if (wanted[i].enable == 0) books().kinds.erase(wanted[i].kind);
  }
  return 0;
}

SIMULATED_EXPORT int cuptiActivityEnable(int kind) {
  if (const int error = enter("cuptiActivityEnable", false); error != 0) return error;
  if (kind == activity_managed_memory) managed_pages().follow(true);
  return 0;
}

SIMULATED_EXPORT int cuptiActivityDisable(int kind) {
  if (const int error = enter("cuptiActivityDisable", false); error != 0) return error;
  if (kind == activity_managed_memory) managed_pages().follow(false);
  return 0;
}

SIMULATED_EXPORT int cuptiActivityFlushAll(std::uint32_t) {
  if (const int error = enter("cuptiActivityFlushAll", false); error != 0) return error;
  const std::lock_guard lock(books().guard);
  if (books().give == nullptr) return invalid_parameter;
  const ManagedPages::Taken taken = managed_pages().take();
  books().lost += taken.lost;
  const std::vector<CounterRecord> records = records_of(taken.faults);
  for (std::size_t first = 0; first < records.size();) {
    std::uint8_t* buffer = nullptr;
    std::size_t bytes = 0, most = 0;
    books().give(&buffer, &bytes, &most);
    const std::size_t fit = std::min(records.size() - first, bytes / sizeof(CounterRecord));
    if (buffer == nullptr || fit == 0) {
      books().lost += records.size() - first;
      break;
    }
    std::memcpy(buffer, records.data() + first, fit * sizeof(CounterRecord));
    books().take(nullptr, 0, buffer, bytes, fit * sizeof(CounterRecord));
    first += fit;
  }
  return 0;
}

SIMULATED_EXPORT int cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t bytes, void** record) {
  std::uint8_t* const next = *record == nullptr ? buffer : static_cast<std::uint8_t*>(*record) + sizeof(CounterRecord);
  if (next + sizeof(CounterRecord) > buffer + bytes) return cupti_no_more_records;
  *record = next;
  return 0;
}

SIMULATED_EXPORT int cuptiActivityGetNumDroppedRecords(ContextHandle, std::uint32_t, std::size_t* lost) {
  if (const int error = enter("cuptiActivityGetNumDroppedRecords", false); error != 0) return error;
  const std::lock_guard lock(books().guard);
  *lost = books().lost;
  books().lost = 0;
  return 0;
}

SIMULATED_EXPORT int cuptiGetResultString(int error, const char** text) {
  *text = error == cupti_other_subscriber ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
          : error == cupti_no_privileges  ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
                                          : "CUPTI_ERROR_UNKNOWN";
  return 0;
}
