#include "base/this_process.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

namespace vedette {
namespace {

using Number = std::atomic<std::uint64_t>;  // relaxed: it is the same for all threads of a process

// A page that the kernel clears in each child that gets a copy. Null where the kernel knows no such pages.
Number* wiped_in_children() noexcept {
  constexpr std::size_t bytes = sizeof(Number);  // the kernel rounds it up to a page
  void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (::madvise(page, bytes, MADV_WIPEONFORK) == 0) return new (page) Number(0);
  ::munmap(page, bytes);
  return nullptr;
}

std::atomic<std::uint64_t> given{0};  // numbers so far, among this process and those that it is a child of

}  // namespace

std::uint64_t this_process() noexcept {
  static Number* const page = wiped_in_children();
  if (page == nullptr) return static_cast<std::uint64_t>(::getpid());
  std::uint64_t number = page->load(std::memory_order_relaxed);
  if (number != 0) return number;
  const std::uint64_t next = given.fetch_add(1, std::memory_order_relaxed) + 1;
  return page->compare_exchange_strong(number, next, std::memory_order_relaxed) ? next : number;
}

}  // namespace vedette
