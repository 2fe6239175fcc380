// States and protections of pages: see managed.h.
#include "simulated_gpu/managed.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "simulated_gpu/memory.h"

namespace vedette::simulated {
namespace {

constexpr std::size_t most_records = 1'000'000;
std::atomic<ManagedPages*> the_pages{nullptr};  // release and acquire: the handler reads what the constructor wrote

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void* room_for(std::size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) misuse("there are no addresses for the states of managed pages; raise ulimit -v");
  return at;
}

void protect_or_die(std::uintptr_t at, std::size_t bytes, int protection) noexcept {
  if (::mprotect(reinterpret_cast<void*>(at), bytes, protection) != 0)
    misuse("a managed page cannot be protected; the kernel's limit of mappings may be reached (vm.max_map_count)");
}

}  // namespace

ManagedPages::ManagedPages()
    : begin_(reinterpret_cast<std::uintptr_t>(memory().first())),
      shadow_(reinterpret_cast<std::uintptr_t>(memory().reach(memory().first()))),
      states_(static_cast<State*>(room_for(Memory::range_bytes / page_bytes))),
      faults_(new Fault[most_records]) {}

// Of options.h, which may change while nothing touches managed memory.
std::size_t ManagedPages::room() noexcept { return std::min(options().fault_records, most_records); }

// --- one page --------------------------------------------------------------------------------------------------------

// Its state, which is the caller's to change until it is stored without `busy`.
std::uint8_t ManagedPages::take_page(std::size_t page) noexcept {
  for (;;) {
    const std::uint8_t before = states_[page].fetch_or(busy, std::memory_order_acquire);
    if ((before & busy) == 0) return before;
  }
}

std::uint8_t ManagedPages::moved(std::uint8_t state, Bits to, bool write) noexcept {
  const bool both = (state & mostly_read) != 0 && !write;
  return static_cast<std::uint8_t>((both ? state : state & ~(on_host | on_device)) | to);
}

void ManagedPages::protect(std::size_t page, std::size_t count, std::uint8_t state) const noexcept {
  const bool host = (state & on_host) != 0, device = (state & on_device) != 0;
  const int alone = PROT_READ | PROT_WRITE, mine = host && device ? PROT_READ : alone;
  protect_or_die(begin_ + page * page_bytes, count * page_bytes, host ? mine : PROT_NONE);
  protect_or_die(shadow_ + page * page_bytes, count * page_bytes, device ? mine : PROT_NONE);
}

bool ManagedPages::fault(std::uintptr_t at, bool write) noexcept {
  const bool by_device = at >= shadow_ && at < shadow_ + Memory::range_bytes;
  if (!by_device && (at < begin_ || at >= begin_ + Memory::range_bytes)) return false;
  const std::size_t page = (at - (by_device ? shadow_ : begin_)) / page_bytes;
  if (!followed_.load() || (states_[page].load(std::memory_order_relaxed) & managed) == 0) return false;
  const int error = errno;
  const Bits here = by_device ? on_device : on_host, there = by_device ? on_host : on_device;
  const std::uint8_t state = take_page(page);
  const bool served = (state & here) != 0 && !(write && (state & there) != 0);  // by another thread, meanwhile
  const std::uint8_t next = served ? state : moved(state, here, write);
  if (!served) {
    protect(page, 1, next);
    record({.page = begin_ + page * page_bytes,
            .ns = now_ns(),
            .by_device = by_device,
            .write = write,
            .moved = (state & here) == 0});
  }
  states_[page].store(next, std::memory_order_release);
  errno = error;
  return true;
}

void ManagedPages::record(const Fault& fault) noexcept {
  const std::size_t number = recorded_.fetch_add(1, std::memory_order_relaxed);
  if (number < room()) faults_[number] = fault;
}

ManagedPages::Taken ManagedPages::take() {
  const std::size_t count = recorded_.exchange(0, std::memory_order_relaxed), kept = std::min(count, room());
  return {.faults = {faults_.get(), faults_.get() + kept}, .lost = count - kept};
}

// --- many pages ------------------------------------------------------------------------------------------------------

// Runs of pages that get the same state are protected at once.
template <class Change>
void ManagedPages::change(std::uintptr_t at, std::size_t bytes, const Change& change_of) noexcept {
  const std::size_t end = (at - begin_ + bytes + page_bytes - 1) / page_bytes;
  for (std::size_t first = (at - begin_) / page_bytes; first < end;) {
    const std::uint8_t next = change_of(take_page(first));
    std::size_t last = first + 1;
    for (; last < end; ++last) {
      const std::uint8_t state = take_page(last);
      if (change_of(state) == next) continue;
      states_[last].store(state, std::memory_order_release);
      break;
    }
    protect(first, last - first, next);
    for (; first < last; ++first) states_[first].store(next, std::memory_order_release);
  }
}

void ManagedPages::open_to_both(std::uintptr_t at, std::size_t bytes) const noexcept {
  protect_or_die(at, bytes, PROT_READ | PROT_WRITE);
  protect_or_die(at - begin_ + shadow_, bytes, PROT_READ | PROT_WRITE);
}

void ManagedPages::add(std::uintptr_t at, std::size_t bytes) {
  const std::lock_guard lock(guard_);
  ranges_[at] = bytes;
  const auto fresh = [](std::uint8_t) { return static_cast<std::uint8_t>(managed | on_host); };
  change(at, bytes, fresh);
  if (!followed_.load()) open_to_both(at, bytes);
}

void ManagedPages::remove(std::uintptr_t at, std::size_t bytes) {
  const std::lock_guard lock(guard_);
  ranges_.erase(at);
  open_to_both(at, bytes);
  for (std::size_t page = (at - begin_) / page_bytes; page < (at - begin_ + bytes) / page_bytes; ++page)
    states_[page].store(0, std::memory_order_release);
}

void ManagedPages::follow(bool on) {
  const std::lock_guard lock(guard_);
  if (!on) followed_.store(false);
  for (const auto& [at, bytes] : ranges_) {
    change(at, bytes, [](std::uint8_t state) { return moved(state, on_host, true); });
    if (!on) open_to_both(at, bytes);
  }
  if (on) followed_.store(true);
}

void ManagedPages::prefetch(std::uintptr_t at, std::size_t bytes, bool to_device) {
  const std::lock_guard lock(guard_);
  if (!followed_.load()) return;
  change(at, bytes, [to = to_device ? on_device : on_host](std::uint8_t state) { return moved(state, to, false); });
}

void ManagedPages::read_mostly(std::uintptr_t at, std::size_t bytes, bool on) {
  const std::lock_guard lock(guard_);
  if (!followed_.load()) return;
  change(at, bytes, [on](std::uint8_t state) -> std::uint8_t {
    if (on) return static_cast<std::uint8_t>(state | mostly_read);
    const bool both = (state & on_host) != 0 && (state & on_device) != 0;
    return static_cast<std::uint8_t>(state & ~(mostly_read | (both ? on_host : 0)));
  });
}

ManagedPages& managed_pages() {
  static ManagedPages* const whole = [] {  // for ever: threads of streams outlive main()
    auto* const made = new ManagedPages;
    the_pages.store(made, std::memory_order_release);
    return made;
  }();
  return *whole;
}

ManagedPages* managed_pages_if_any() noexcept { return the_pages.load(std::memory_order_acquire); }

}  // namespace vedette::simulated
