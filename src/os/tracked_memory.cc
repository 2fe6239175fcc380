#include "os/tracked_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "os/uapi.h"

namespace vedette {

Result<TrackedMemory> TrackedMemory::create(Bytes bytes) {
  auto userfaultfd =
      Userfaultfd::open(uapi::feature_wp_async | uapi::feature_wp_unpopulated | uapi::feature_wp_hugetlbfs_shmem);
  if (!userfaultfd) return userfaultfd.error();
  TrackedMemory memory(std::move(userfaultfd).value());

  const Fd file{::memfd_create("vedette-tracked", MFD_CLOEXEC)};
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes.value)) != 0)
    return system_error("memfd_create", errno, "");
  for (Mapping* mapping : {&memory.mapping_, &memory.alias_}) {
    auto reserved = Mapping::reserve(bytes, {page_size});
    if (!reserved) return reserved.error();
    *mapping = std::move(reserved).value();
    void* const at = mapping->data();
    if (::mmap(at, bytes.value, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED) {
      return system_error("mapping a memfd", errno, "");
    }
    ::madvise(at, bytes.value, MADV_NOHUGEPAGE);  // a huge page would show 512 pages touched for one
  }
  std::memset(memory.alias_.data(), 0, bytes.value);

  if (const int error = memory.userfaultfd_.register_write_protect(memory.data(), bytes.value); error != 0) {
    return system_error("registering shared memory for write protection", error, "");
  }
  return memory;
}

}  // namespace vedette
