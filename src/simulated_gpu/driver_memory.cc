// The simulated driver's memory: ranges, handles, mappings, allocations, pinned and registered host memory.
#include <sys/mman.h>

#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>

#include "cuda/api.h"
#include "simulated_gpu/entry.h"
#include "simulated_gpu/managed.h"
#include "simulated_gpu/memory.h"
#include "simulated_gpu/order.h"
#include "simulated_gpu/reports.h"
#include "simulated_gpu/streams.h"

namespace vedette::simulated {
namespace {

struct Physical {  // of a handle; a mapping keeps it, too
  explicit Physical(std::vector<Memory::Frame> taken, Memory::Of whose = Memory::Of::device)
      : frames(std::move(taken)), of(whose) {}
  ~Physical() { memory().give_back(frames, of); }
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;
  std::size_t bytes() const { return frames.size() * chunk_bytes; }
  const std::vector<Memory::Frame> frames;
  const Memory::Of of;
};

struct Mapped {
  std::shared_ptr<Physical> memory;
  bool access = false, host_access = false;
};

struct Books {
  std::mutex guard;
  std::map<cuda::Handle, std::shared_ptr<Physical>> handles;
  std::map<std::uintptr_t, Mapped> mapped;
  std::map<std::uintptr_t, std::shared_ptr<Physical>> allocated;
  std::map<std::uintptr_t, std::size_t> host_allocated;
  cuda::Handle next = 100;
  unsigned maps = 0;
};

Books& books() {
  static Books* const whole = new Books;  // for ever: threads of streams outlive main()
  return *whole;
}

std::size_t whole_chunks(std::size_t bytes) { return (bytes + chunk_bytes - 1) / chunk_bytes * chunk_bytes; }

void show(std::uintptr_t at, const Physical& physical) {
  for (std::size_t i = 0; i < physical.frames.size(); ++i)
    memory().show(at + i * chunk_bytes, physical.frames[i], physical.of);
}

// Ends the process when the device may still use memory that the host takes away.
void take_away(std::uintptr_t at, std::size_t bytes, const char* call) {
  const std::string running = order().take_away({.begin = at, .end = at + bytes});
  if (!running.empty())
    misuse(std::string(call) + ": " + running + "; wait for an event behind it before the memory goes away");
}

// Whole mappings that fill [at, at + bytes), or none.
bool whole_mappings(std::uintptr_t at, std::size_t bytes) {
  for (const std::uintptr_t end = at + bytes; at < end;) {
    const auto found = books().mapped.find(at);
    if (found == books().mapped.end() || at + found->second.memory->bytes() > end) return false;
    at += found->second.memory->bytes();
  }
  return true;
}

}  // namespace

int allocate_device(void** out, std::size_t bytes) {
  if (bytes == 0) return cuda::error_invalid_value;
  const std::size_t whole = whole_chunks(bytes);
  auto frames = memory().take(whole / chunk_bytes);
  if (!frames) return cuda::error_out_of_memory;
  auto physical = std::make_shared<Physical>(std::move(*frames));
  const auto at = memory().reserve(whole, chunk_bytes);
  if (!at) return cuda::error_out_of_memory;
  show(*at, *physical);
  const std::lock_guard lock(books().guard);
  books().allocated[*at] = std::move(physical);
  *out = reinterpret_cast<void*>(*at);
  note_memory(*out, bytes, "device memory");
  return cuda::success;
}

int allocate_managed(void** out, std::size_t bytes) {
  if (!options().managed) return cuda::error_not_supported;
  if (bytes == 0) return cuda::error_invalid_value;
  const std::size_t whole = whole_chunks(bytes);
  auto frames = memory().take(whole / chunk_bytes, Memory::Of::host);
  if (!frames) return cuda::error_out_of_memory;
  auto physical = std::make_shared<Physical>(std::move(*frames), Memory::Of::host);
  const auto at = memory().reserve(whole, chunk_bytes);
  if (!at) return cuda::error_out_of_memory;
  show(*at, *physical);
  for (std::size_t i = 0; i < physical->frames.size(); ++i)
    memory().show_host(*at + i * chunk_bytes, physical->frames[i]);
  managed_pages().add(*at, whole);
  const std::lock_guard lock(books().guard);
  books().allocated[*at] = std::move(physical);
  *out = reinterpret_cast<void*>(*at);
  note_memory(*out, bytes, "managed memory");
  return cuda::success;
}

bool is_managed(const void* at, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const std::lock_guard lock(books().guard);
  const auto next = books().allocated.upper_bound(address);
  if (next == books().allocated.begin()) return false;
  const auto& [begin, physical] = *std::prev(next);
  return physical->of == Memory::Of::host && address + bytes <= begin + physical->bytes();
}

int prefetch_managed(const void* at, std::size_t bytes, bool to_device, void* stream) {
  if (!is_managed(at, bytes)) return cuda::error_invalid_value;
  stream_of(static_cast<cuda::StreamHandle>(stream))->push([=] {
    managed_pages().prefetch(reinterpret_cast<std::uintptr_t>(at), bytes, to_device);
  });
  return cuda::success;
}

int advise_managed(const void* at, std::size_t bytes, int advice) {
  if (!is_managed(at, bytes)) return cuda::error_invalid_value;
  const auto wanted = static_cast<cuda::Advice>(advice);
  if (wanted == cuda::Advice::set_read_mostly || wanted == cuda::Advice::unset_read_mostly)
    managed_pages().read_mostly(reinterpret_cast<std::uintptr_t>(at), bytes, wanted == cuda::Advice::set_read_mostly);
  return cuda::success;  // other advice says where pages are best, and moves none
}

int free_device(void* at) {
  if (at == nullptr) return cuda::success;
  wait_for_device();  // as the real one does
  const std::lock_guard lock(books().guard);
  const auto found = books().allocated.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == books().allocated.end()) misuse("memory is freed that is not allocated; free an allocation once");
  const auto [begin, physical] = *found;
  take_away(begin, physical->bytes(), "cuMemFree");
  if (physical->of == Memory::Of::host) managed_pages().remove(begin, physical->bytes());
  memory().hide(begin, physical->bytes());
  if (physical->of == Memory::Of::host) memory().hide_from_host(begin, physical->bytes());
  memory().give_back(begin, physical->bytes());
  books().allocated.erase(found);
  forget_memory(at);
  return cuda::success;
}

namespace {

bool locks_no_more(std::size_t bytes) {
  return options().lock > 0 && memory().all_pinned_bytes() + bytes > options().lock;
}

}  // namespace

int allocate_host(void** out, std::size_t bytes) {
  if (locks_no_more(bytes)) return cuda::error_out_of_memory;
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == 0 || at == MAP_FAILED) return cuda::error_out_of_memory;
  memory().pin(at, bytes);
  const std::lock_guard lock(books().guard);
  books().host_allocated[reinterpret_cast<std::uintptr_t>(at)] = bytes;
  *out = at;
  note_memory(at, bytes, "pinned memory");
  return cuda::success;
}

int free_host(void* at) {
  const std::lock_guard lock(books().guard);
  const auto found = books().host_allocated.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == books().host_allocated.end())
    misuse("pinned memory is freed that is not allocated; free an allocation once");
  take_away(found->first, found->second, "cuMemFreeHost");
  memory().unpin(at);
  ::munmap(at, found->second);
  books().host_allocated.erase(found);
  forget_memory(at);
  return cuda::success;
}

int register_host(void* at, std::size_t bytes) {
  if (bytes == 0) return cuda::error_invalid_value;
  if (memory().pinned(at)) return cuda::error_already_registered;
  if (locks_no_more(bytes)) return cuda::error_out_of_memory;
  memory().pin(at, bytes);
  note_memory(at, bytes, "registered memory");
  return cuda::success;
}

int unregister_host(void* at) {
  const auto bytes = memory().pinned_bytes(at);
  if (bytes == 0) return cuda::error_not_registered;
  take_away(reinterpret_cast<std::uintptr_t>(at), bytes, "cuMemHostUnregister");
  memory().unpin(at);
  forget_memory(at);
  return cuda::success;
}

std::vector<std::string> memory_leaks() {
  const std::lock_guard lock(books().guard);
  std::vector<std::string> found;
  const auto tell = [&](std::size_t count, const char* what) {
    if (count != 0) found.push_back(std::to_string(count) + what);
  };
  tell(books().allocated.size(), " allocations of device memory were not freed");
  tell(books().mapped.size(), " mappings were not unmapped");
  tell(books().handles.size(), " handles of memory were not released");
  tell(memory().ranges() - books().allocated.size(), " ranges of addresses were not given back");
  tell(memory().pinned_ranges(), " ranges of host memory are still pinned");
  return found;
}

}  // namespace vedette::simulated

using namespace vedette::cuda;
using namespace vedette::simulated;

SIMULATED_EXPORT int cuMemAlloc_v2(Address* at, std::size_t bytes) {
  if (const int error = enter_waiting("cuMemAlloc_v2"); error != 0) return error;
  return allocate_device(reinterpret_cast<void**>(at), bytes);
}

SIMULATED_EXPORT int cuMemFree_v2(Address at) {
  if (const int error = enter_waiting("cuMemFree_v2"); error != 0) return error;
  return free_device(reinterpret_cast<void*>(at));
}

SIMULATED_EXPORT int cuMemAllocManaged(Address* at, std::size_t bytes, unsigned) {
  if (const int error = enter_waiting("cuMemAllocManaged"); error != 0) return error;
  return allocate_managed(reinterpret_cast<void**>(at), bytes);
}

SIMULATED_EXPORT int cuMemPrefetchAsync_v2(Address at, std::size_t bytes, Location to, unsigned, StreamHandle stream) {
  if (const int error = enter("cuMemPrefetchAsync_v2"); error != 0) return error;
  return prefetch_managed(reinterpret_cast<void*>(at), bytes, to.type == LocationType::device, stream);
}

SIMULATED_EXPORT int cuMemAdvise_v2(Address at, std::size_t bytes, Advice advice, Location) {
  if (const int error = enter("cuMemAdvise_v2"); error != 0) return error;
  return advise_managed(reinterpret_cast<void*>(at), bytes, static_cast<int>(advice));
}

SIMULATED_EXPORT int cuMemHostAlloc(void** at, std::size_t bytes, unsigned) {
  if (const int error = enter_waiting("cuMemHostAlloc"); error != 0) return error;
  return allocate_host(at, bytes);
}

SIMULATED_EXPORT int cuMemHostGetDevicePointer_v2(Address* at, void* memory, unsigned) {
  if (const int error = enter("cuMemHostGetDevicePointer_v2"); error != 0) return error;
  *at = reinterpret_cast<Address>(memory);
  return success;
}

SIMULATED_EXPORT int cuPointerGetAttribute(void* value, int which, Address at) {
  if (const int error = enter("cuPointerGetAttribute"); error != 0) return error;
  constexpr int memory_type = 2, device_pointer = 3, device_ordinal = 9;  // CU_POINTER_ATTRIBUTE_*
  const void* const memory_at = reinterpret_cast<const void*>(at);
  const bool device = memory().holds(memory_at);
  if (!device && !memory().pinned(memory_at) && !is_managed(memory_at, 1)) return error_invalid_value;
  const auto put = [value](const auto& found) { std::memcpy(value, &found, sizeof found); };
  if (which == device_pointer) return put(at), success;
  if (which == memory_type) return put(device ? 2 : 1), success;  // CU_MEMORYTYPE_DEVICE, _HOST
  if (which == device_ordinal) return put(0), success;
  return error_not_supported;
}

SIMULATED_EXPORT int cuMemFreeHost(void* at) {
  if (const int error = enter_waiting("cuMemFreeHost"); error != 0) return error;
  return free_host(at);
}

SIMULATED_EXPORT int cuMemHostRegister_v2(void* at, std::size_t bytes, unsigned) {
  if (const int error = enter_waiting("cuMemHostRegister_v2"); error != 0) return error;
  return register_host(at, bytes);
}

SIMULATED_EXPORT int cuMemHostUnregister(void* at) {
  if (const int error = enter_waiting("cuMemHostUnregister"); error != 0) return error;
  return unregister_host(at);
}

SIMULATED_EXPORT int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  if (const int error = enter("cuMemGetInfo_v2"); error != 0) return error;
  *free = memory().free_bytes();
  *total = memory().bytes();
  return success;
}

SIMULATED_EXPORT int cuMemGetAllocationGranularity(std::size_t* bytes, const AllocationProperties*, int) {
  if (const int error = enter("cuMemGetAllocationGranularity"); error != 0) return error;
  *bytes = chunk_bytes;
  return success;
}

SIMULATED_EXPORT int cuMemAddressReserve(Address* at, std::size_t bytes, std::size_t alignment, Address,
                                         unsigned long long) {
  if (const int error = enter("cuMemAddressReserve"); error != 0) return error;
  if (bytes == 0 || bytes % chunk_bytes != 0) return error_invalid_value;
  const auto found = memory().reserve(bytes, std::max(alignment, chunk_bytes));
  if (!found) return error_out_of_memory;
  *at = *found;
  return success;
}

SIMULATED_EXPORT int cuMemAddressFree(Address at, std::size_t bytes) {
  if (const int error = enter("cuMemAddressFree"); error != 0) return error;
  const std::lock_guard lock(books().guard);
  const auto next = books().mapped.lower_bound(at);
  if (next != books().mapped.end() && next->first < at + bytes)
    misuse("cuMemAddressFree: the range still has mappings; call cuMemUnmap first");
  return memory().give_back(at, bytes) ? success : error_invalid_value;
}

// Memory of the device, or of a NUMA node of the host, which is node 0 where there is no NUMA (cuda.h, cuMemCreate).
SIMULATED_EXPORT int cuMemCreate(Handle* handle, std::size_t bytes, const AllocationProperties* properties,
                                 unsigned long long) {
  if (const int error = enter("cuMemCreate"); error != 0) return error;
  const LocationType type = properties->location.type;
  const std::string kind = type == LocationType::device ? "device" : type == LocationType::host ? "host" : "host_numa";
  if (const int error = follow_script("cuMemCreate/" + kind); error != 0) return error;
  if (bytes == 0 || bytes % chunk_bytes != 0 ||
      (type == LocationType::device && properties->location.id >= options().devices))
    return error_invalid_value;
  const Memory::Of of = type == LocationType::device ? Memory::Of::device : Memory::Of::host;
  auto frames = memory().take(bytes / chunk_bytes, of);
  if (!frames) return error_out_of_memory;
  const std::lock_guard lock(books().guard);
  *handle = ++books().next;
  books().handles[*handle] = std::make_shared<Physical>(std::move(*frames), of);
  return success;
}

SIMULATED_EXPORT int cuMemRelease(Handle handle) {
  if (const int error = enter("cuMemRelease"); error != 0) return error;
  const std::lock_guard lock(books().guard);
  return books().handles.erase(handle) != 0 ? success : error_invalid_value;
}

SIMULATED_EXPORT int cuMemMap(Address at, std::size_t bytes, std::size_t offset, Handle handle, unsigned long long) {
  if (const int error = enter("cuMemMap"); error != 0) return error;
  const std::lock_guard lock(books().guard);
  const auto found = books().handles.find(handle);
  if (found == books().handles.end() || offset != 0 || bytes != found->second->bytes()) return error_invalid_value;
  if (!memory().reserved(at, bytes)) misuse("cuMemMap: the addresses are not reserved; call cuMemAddressReserve first");
  const auto next = books().mapped.lower_bound(at);
  if (next != books().mapped.end() && next->first < at + bytes)
    misuse("cuMemMap: there is memory at these addresses; call cuMemUnmap first");
  auto shown = found->second;
  if (constexpr unsigned right_ones = 2; options().stale_maps && ++books().maps > right_ones) {
    auto frames = memory().take(bytes / chunk_bytes, shown->of);
    if (!frames) return error_out_of_memory;
    shown = std::make_shared<Physical>(std::move(*frames), shown->of);
  }
  books().mapped[at] = {.memory = std::move(shown)};
  return success;
}

// The host may have access to its own memory, where the device uses it, too.
SIMULATED_EXPORT int cuMemSetAccess(Address at, std::size_t bytes, const AccessDescription* who, std::size_t count) {
  if (const int error = enter("cuMemSetAccess"); error != 0) return error;
  if (count != 1) misuse("cuMemSetAccess: access is given to several at once, which the simulation lacks");
  const bool host = who->location.type != LocationType::device;
  const std::lock_guard lock(books().guard);
  if (!whole_mappings(at, bytes)) return error_invalid_value;
  for (auto each = books().mapped.find(at); each != books().mapped.end() && each->first < at + bytes; ++each) {
    Mapped& mapped = each->second;
    if (host && mapped.memory->of != Memory::Of::host) return error_invalid_value;
    if (host && !mapped.host_access) {
      for (std::size_t i = 0; i < mapped.memory->frames.size(); ++i)
        memory().show_host(each->first + i * chunk_bytes, mapped.memory->frames[i]);
    }
    if (!host && !mapped.access) show(each->first, *mapped.memory);
    (host ? mapped.host_access : mapped.access) = true;
  }
  return success;
}

SIMULATED_EXPORT int cuMemUnmap(Address at, std::size_t bytes) {
  if (const int error = enter("cuMemUnmap"); error != 0) return error;
  if (options().unmap_waits) wait_for_device();  // the documentation allows it
  const std::lock_guard lock(books().guard);
  if (!whole_mappings(at, bytes)) return error_invalid_value;
  take_away(at, bytes, "cuMemUnmap");
  memory().hide(at, bytes);
  for (auto each = books().mapped.find(at); each != books().mapped.end() && each->first < at + bytes; ++each)
    if (each->second.host_access) memory().hide_from_host(each->first, each->second.memory->bytes());
  books().mapped.erase(books().mapped.find(at), books().mapped.lower_bound(at + bytes));
  return success;
}
