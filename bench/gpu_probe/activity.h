// CUPTI's activity records of unified memory, loaded at run time: page faults of the device and of the processor, and
// bytes moved.
//
// Source: cupti_activity.h of CUDA 13.5 (CUPTI_API_VERSION 130500); the record is CUpti_ActivityUnifiedMemoryCounter3,
// since 13.0 (12.x had a shorter one). tests/bench/gpu_layout.cc compares sizes, offsets and numbers with the real
// header where one is installed. Thread rule: CUPTI hands buffers over from a thread of its own; the records are read
// after flush().
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "gpu_probe/library.h"

namespace vedette::gpu {

constexpr int activity_unified_memory_counter = 25;  // CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER
constexpr int activity_scope_all_devices = 2;        // CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_ALL_DEVICES
constexpr std::uint32_t activity_flush_forced = 1;   // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
constexpr int activity_no_more_records = 12;         // CUPTI_ERROR_MAX_LIMIT_REACHED

enum class CounterKind : int {  // CUpti_ActivityUnifiedMemoryCounterKind
  bytes_to_device = 1,
  bytes_to_host = 2,
  host_page_fault = 3,
  device_page_fault = 4,
};

// ...UnifiedMemoryAccessType
enum class FaultAccess : std::uint32_t { unknown = 0, read = 1, write = 2, atomic = 3, prefetch = 4 };

struct CounterConfiguration {  // CUpti_ActivityUnifiedMemoryCounterConfig
  int scope = activity_scope_all_devices;
  CounterKind kind{};
  std::uint32_t device = 0, enable = 1;
};

struct alignas(8) CounterRecord {  // CUpti_ActivityUnifiedMemoryCounter3
  int activity_kind;
  CounterKind kind;
  std::uint64_t value, start, end;  // value: bytes moved, or how many faults of the page came together; start, end: ns
  std::uint64_t address;            // of the page
  std::uint32_t source, destination, stream, process;
  std::uint32_t flags;  // FaultAccess for faults of the device
  std::uint32_t pad;
  std::uint64_t processors[5];
};

// Collects from construction on; at most one in a process. Made before the device's context is. Throws Refused.
class Activity {
 public:
  explicit Activity(const std::string& file);  // "": the usual places
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;
  std::vector<CounterRecord> flush();  // what came since the last flush, oldest first

 private:
  Library library_;
  Call<void (*)(std::uint8_t**, std::size_t*, std::size_t*),
       void (*)(struct ContextTag*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t)>
      register_callbacks_{library_, "cuptiActivityRegisterCallbacks"};
  Call<CounterConfiguration*, std::uint32_t> configure_{library_, "cuptiActivityConfigureUnifiedMemoryCounter"};
  Call<int> enable_{library_, "cuptiActivityEnable"};
  Call<int> disable_{library_, "cuptiActivityDisable"};
  Call<std::uint32_t> flush_all_{library_, "cuptiActivityFlushAll"};
  Call<std::uint8_t*, std::size_t, void**> next_record_{library_, "cuptiActivityGetNextRecord"};
};

}  // namespace vedette::gpu
