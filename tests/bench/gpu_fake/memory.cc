// The fake's memory: ranges, frames, mappings, allocations, registered and managed memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>

#include "gpu_fake/fake.h"

using namespace vedette::gpu;
using namespace vedette::gpu::fake;

namespace {

constexpr std::size_t granule = std::size_t{2} << 20;
constexpr int file_mode = MAP_SHARED | MAP_FIXED, hole_mode = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

int misuse(const char* what) {
  log(std::string("misuse: ") + what);
  return error_invalid_value;
}

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

// Whole mappings that lie in [at, at + bytes) and fill it, or none.
bool whole_mappings(Address at, std::size_t bytes) {
  const auto& regions = state().regions;
  for (const Address end = at + bytes; at < end;) {
    const auto region = regions.find(at);
    if (region == regions.end() || region->second.kind != Region::Kind::mapped || at + region->second.bytes > end)
      return false;
    at += region->second.bytes;
  }
  return true;
}

int allocate(void** out, std::size_t bytes, Region::Kind kind) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return error_out_of_memory;
  const std::unique_lock lock(state().memory);
  state().regions[reinterpret_cast<Address>(memory)] = {.bytes = bytes, .kind = kind};
  *out = memory;
  return success;
}

int deallocate(Address at) {
  const std::unique_lock lock(state().memory);
  const auto region = state().regions.find(at);
  if (region == state().regions.end() || region->second.kind == Region::Kind::mapped)
    return misuse("freeing what is not allocated");
  ::munmap(pointer(at), region->second.bytes);
  state().regions.erase(region);
  return success;
}

}  // namespace

FAKE_EXPORT int cuMemAddressReserve(Address* at, std::size_t bytes, std::size_t alignment, Address,
                                    unsigned long long) {
  if (const int error = enter("cuMemAddressReserve"); error != 0) return error;
  if (bytes % granule != 0 || alignment % granule != 0) return misuse("a range of no whole granules");
  // As large as the alignment more, and the rest stays reserved: this process is short.
  void* const memory = ::mmap(nullptr, bytes + alignment, PROT_NONE, hole_mode, -1, 0);
  if (memory == MAP_FAILED) return error_out_of_memory;
  *at = (reinterpret_cast<Address>(memory) + alignment - 1) / alignment * alignment;
  const std::unique_lock lock(state().memory);
  state().ranges[*at] = bytes;
  return success;
}

FAKE_EXPORT int cuMemAddressFree(Address at, std::size_t bytes) {
  if (const int error = enter("cuMemAddressFree"); error != 0) return error;
  const std::unique_lock lock(state().memory);
  const auto range = state().ranges.find(at);
  if (range == state().ranges.end() || range->second != bytes) return misuse("freeing another range than was reserved");
  const auto first = state().regions.lower_bound(at);
  if (first != state().regions.end() && first->first < at + bytes) return misuse("freeing a range with mappings");
  ::munmap(pointer(at), bytes);
  state().ranges.erase(range);
  return success;
}

FAKE_EXPORT int cuMemGetAllocationGranularity(std::size_t* bytes, const AllocationProperties* properties, int) {
  *bytes = granule;
  return enter("cuMemGetAllocationGranularity", static_cast<int>(properties->location.type));
}

FAKE_EXPORT int cuMemCreate(Handle* handle, std::size_t bytes, const AllocationProperties* properties,
                            unsigned long long flags) {
  if (const int error = enter("cuMemCreate", static_cast<int>(properties->location.type)); error != 0) return error;
  if (bytes % granule != 0 || flags != 0 || properties->type != 1) return misuse("a frame of no whole granules");
  const int file = ::memfd_create("frame", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return error_out_of_memory;
  static Handle next = 100;
  const std::unique_lock lock(state().memory);
  *handle = ++next;
  state().frames[*handle] = file;
  state().frame_bytes[*handle] = bytes;
  return success;
}

FAKE_EXPORT int cuMemRelease(Handle handle) {
  if (const int error = enter("cuMemRelease"); error != 0) return error;
  const std::unique_lock lock(state().memory);
  const auto frame = state().frames.find(handle);
  if (frame == state().frames.end()) return misuse("releasing no frame");
  ::close(frame->second);
  state().frames.erase(frame);
  return success;
}

FAKE_EXPORT int cuMemMap(Address at, std::size_t bytes, std::size_t offset, Handle handle, unsigned long long flags) {
  if (const int error = enter("cuMemMap"); error != 0) return error;
  const std::unique_lock lock(state().memory);
  const auto frame = state().frames.find(handle);
  if (frame == state().frames.end() || offset != 0 || flags != 0 || bytes != state().frame_bytes[handle]) {
    return misuse("mapping what is no whole frame");
  }
  const auto next = state().regions.lower_bound(at);
  if (next != state().regions.end() && next->first < at + bytes) return misuse("mapping over a mapping");
  auto range = state().ranges.upper_bound(at);
  if (range == state().ranges.begin() || at + bytes > (--range)->first + range->second)
    return misuse("mapping outside a range");
  int file = frame->second;
  if (!script("stale").empty()) {  // another frame than the one that was asked for
    static const int wrong = ::memfd_create("wrong", MFD_CLOEXEC);
    static int maps = 0;
    if (++maps > 2 && ::ftruncate(wrong, static_cast<off_t>(bytes)) == 0) file = wrong;
  }
  if (::mmap(pointer(at), bytes, PROT_NONE, file_mode, file, 0) == MAP_FAILED) return error_out_of_memory;
  state().regions[at] = {.bytes = bytes, .kind = Region::Kind::mapped, .access = false};
  return success;
}

FAKE_EXPORT int cuMemSetAccess(Address at, std::size_t bytes, const AccessDescription* access, std::size_t count) {
  if (const int error = enter("cuMemSetAccess", static_cast<int>(access->location.type)); error != 0) return error;
  const std::unique_lock lock(state().memory);
  if (count != 1 || access->flags != 3 || !whole_mappings(at, bytes)) return misuse("access to what is not mapped");
  ::mprotect(pointer(at), bytes, PROT_READ | PROT_WRITE);
  for (auto region = state().regions.find(at); region != state().regions.end() && region->first < at + bytes;
       ++region) {
    region->second.access = true;
  }
  return success;
}

FAKE_EXPORT int cuMemUnmap(Address at, std::size_t bytes) {
  if (const int error = enter("cuMemUnmap"); error != 0) return error;
  const std::unique_lock lock(state().memory);
  if (!whole_mappings(at, bytes)) return misuse("unmapping what is no whole mapping");
  ::mmap(pointer(at), bytes, PROT_NONE, hole_mode | MAP_FIXED, -1, 0);
  state().regions.erase(state().regions.find(at), state().regions.lower_bound(at + bytes));
  return success;
}

FAKE_EXPORT int cuMemAlloc_v2(Address* at, std::size_t bytes) {
  if (const int error = enter("cuMemAlloc_v2"); error != 0) return error;
  return allocate(reinterpret_cast<void**>(at), bytes, Region::Kind::allocated);
}

FAKE_EXPORT int cuMemFree_v2(Address at) {
  if (const int error = enter("cuMemFree_v2"); error != 0) return error;
  return deallocate(at);
}

FAKE_EXPORT int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  if (const int error = enter("cuMemHostAlloc"); error != 0) return error;
  return allocate(memory, bytes, Region::Kind::pinned);
}

FAKE_EXPORT int cuMemFreeHost(void* memory) {
  if (const int error = enter("cuMemFreeHost"); error != 0) return error;
  return deallocate(reinterpret_cast<Address>(memory));
}

FAKE_EXPORT int cuMemHostGetDevicePointer_v2(Address* at, void* memory, unsigned) {
  *at = reinterpret_cast<Address>(memory);
  return enter("cuMemHostGetDevicePointer_v2");
}

FAKE_EXPORT int cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  if (const int error = enter("cuMemHostRegister_v2"); error != 0) return error;
  const auto at = reinterpret_cast<Address>(memory);
  const std::unique_lock lock(state().memory);
  const auto next = state().regions.lower_bound(at);
  if (next != state().regions.end() && next->first < at + bytes) return 712;
  state().regions[at] = {.bytes = bytes, .kind = Region::Kind::registered};
  return success;
}

FAKE_EXPORT int cuMemHostUnregister(void* memory) {
  if (const int error = enter("cuMemHostUnregister"); error != 0) return error;
  const std::unique_lock lock(state().memory);
  const auto region = state().regions.find(reinterpret_cast<Address>(memory));
  if (region == state().regions.end() || region->second.kind != Region::Kind::registered)
    return misuse("unregistering what is not");
  state().regions.erase(region);
  return success;
}

FAKE_EXPORT int cuMemAllocManaged(Address* at, std::size_t bytes, unsigned) {
  if (const int error = enter("cuMemAllocManaged"); error != 0) return error;
  if (bytes > std::strtoull(script("free_mib", "4096").c_str(), nullptr, 10) << 20) {
    return misuse("more managed memory than is free");
  }
  return allocate(reinterpret_cast<void**>(at), bytes, Region::Kind::managed);
}
