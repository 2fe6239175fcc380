// The types, numbers and functions of CUPTI's activity interface that vedette uses, for records of managed memory: page
// faults of the device and of the processor, and bytes moved.
//
// Source: cupti_activity.h of CUDA 13.5 (CUPTI_API_VERSION 130500); the record is CUpti_ActivityUnifiedMemoryCounter3,
// since 13.0 (12.x had a shorter one). tests/cuda/layout.cc compares sizes, offsets, numbers and signatures with the
// real header where one is installed.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cuda/api.h"

namespace vedette::cuda {

constexpr int activity_managed_memory = 25;         // CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER
constexpr int activity_scope_all_devices = 2;       // CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_ALL_DEVICES
constexpr std::uint32_t activity_flush_forced = 1;  // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
constexpr int cupti_no_more_records = 12;           // CUPTI_ERROR_MAX_LIMIT_REACHED
constexpr int cupti_no_privileges = 35;             // CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
constexpr int cupti_other_subscriber = 39;          // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED

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

  bool is_fault_of_device() const noexcept { return kind == CounterKind::device_page_fault; }
  FaultAccess access() const noexcept { return static_cast<FaultAccess>(flags); }
};

using GiveActivityBuffer = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using TakeActivityBuffer = void (*)(ContextHandle, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);

}  // namespace vedette::cuda
