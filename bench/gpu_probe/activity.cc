// Buffers for CUPTI, and what is in them: see activity.h.
#include "gpu_probe/activity.h"

#include <cstdlib>
#include <cstring>
#include <mutex>

namespace vedette::gpu {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

struct Filled {
  std::uint8_t* buffer = nullptr;
  std::size_t valid_bytes = 0;
};

// CUPTI's callbacks carry no pointer of ours, so that what they collect is a global of this file.
std::mutex guard;
std::vector<Filled> filled;  // guarded by `guard`

void give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_bytes));
  *bytes = *buffer == nullptr ? 0 : buffer_bytes;
  *most_records = 0;  // as many as fit
}

void take_buffer(struct ContextTag*, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  const std::lock_guard lock(guard);
  filled.push_back({buffer, valid_bytes});
}

std::string error_name(const Library& library, int error) {
  using GetResultString = int (*)(int, const char**);
  const auto get = reinterpret_cast<GetResultString>(library.exported("cuptiGetResultString"));
  const char* name = nullptr;
  return get != nullptr && get(error, &name) == 0 && name != nullptr ? name : "CUPTI error " + std::to_string(error);
}

std::vector<std::string> places(const std::string& file) {
  if (!file.empty()) return {file};
  return {"libcupti.so.13", "libcupti.so", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
          "/usr/local/cuda/lib64/libcupti.so.13"};
}

}  // namespace

Activity::Activity(const std::string& file)
    : library_({.what = "CUPTI", .names = places(file), .name_of_error = error_name}) {
  register_callbacks_(give_buffer, take_buffer);
  CounterConfiguration wanted[4];
  wanted[0].kind = CounterKind::bytes_to_device;
  wanted[1].kind = CounterKind::bytes_to_host;
  wanted[2].kind = CounterKind::host_page_fault;
  wanted[3].kind = CounterKind::device_page_fault;
  configure_(wanted, 4);
  enable_(activity_unified_memory_counter);
}

Activity::~Activity() { disable_.error(activity_unified_memory_counter); }

std::vector<CounterRecord> Activity::flush() {
  flush_all_(activity_flush_forced);
  std::vector<Filled> buffers;
  {
    const std::lock_guard lock(guard);
    buffers.swap(filled);
  }
  std::vector<CounterRecord> records;
  for (const Filled& each : buffers) {
    void* record = nullptr;
    while (next_record_.error(each.buffer, each.valid_bytes, &record) == 0) {
      CounterRecord copied;
      std::memcpy(&copied, record, sizeof copied.activity_kind);
      if (copied.activity_kind != activity_unified_memory_counter) continue;
      std::memcpy(&copied, record, sizeof copied);
      records.push_back(copied);
    }
    std::free(each.buffer);
  }
  return records;
}

}  // namespace vedette::gpu
