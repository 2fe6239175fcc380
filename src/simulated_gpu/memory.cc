// Ranges, frames, mappings and the handler of faults: see memory.h.
#include "simulated_gpu/memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/architecture.h"
#include "simulated_gpu/managed.h"

namespace vedette::simulated {

thread_local const char* running = nullptr;

namespace {

constexpr std::size_t range_bytes = Memory::range_bytes;
constexpr int hole = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

struct sigaction before {};

void on_fault(int number, siginfo_t* info, void* context) {
  ManagedPages* const managed = managed_pages_if_any();
  if (managed != nullptr && managed->fault(reinterpret_cast<std::uintptr_t>(info->si_addr), was_write(context))) return;
  char text[320];
  if (memory().fault(reinterpret_cast<std::uintptr_t>(info->si_addr), text, sizeof text) != nullptr) {
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) std::abort();
    ::_exit(exit_status);
  }
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr)
    return before.sa_sigaction(number, info, context);
  ::sigaction(number, &before, nullptr);  // the instruction faults again, and the default ends the process
}

std::uintptr_t reserve_addresses() {
  void* const found = ::mmap(nullptr, range_bytes + chunk_bytes, PROT_NONE, hole, -1, 0);
  if (found == MAP_FAILED)
    misuse("64 GiB of addresses cannot be reserved; raise the limit of virtual memory (ulimit -v)");
  return (reinterpret_cast<std::uintptr_t>(found) + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
}

}  // namespace

Memory::Memory(std::size_t bytes, const std::string& shared)
    : begin_(reserve_addresses()),
      shadow_(reserve_addresses()),
      top_(begin_),
      bytes_(bytes / chunk_bytes * chunk_bytes),
      shared_(shared) {
  file_ = ::memfd_create("simulated_gpu", MFD_CLOEXEC);
  host_file_ = ::memfd_create("simulated_gpu_host", MFD_CLOEXEC);
  if (file_ < 0 || host_file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes_)) != 0)
    misuse("no memory file can be made; the simulated GPU needs memfd_create");
  for (std::size_t frame = bytes_ / chunk_bytes; frame-- > 0;) free_.push_back(static_cast<Frame>(frame));
  fewest_free_ = free_.size();
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  ::sigaction(SIGSEGV, &action, &before);
}

bool Memory::holds(const void* at) const noexcept {
  const auto p = reinterpret_cast<std::uintptr_t>(at);
  return p >= begin_ && p < begin_ + range_bytes;
}

void* Memory::reach(const void* at) const noexcept {
  void* const mutable_at = const_cast<void*>(at);
  return holds(at) ? reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(at) - begin_ + shadow_) : mutable_at;
}

std::optional<std::uintptr_t> Memory::reserve(std::size_t bytes, std::size_t alignment) {
  const std::lock_guard lock(guard_);
  const auto aligned = [&](std::uintptr_t at) { return (at + alignment - 1) / alignment * alignment; };
  for (auto found = holes_.begin(); found != holes_.end(); ++found) {
    if (found->second != bytes || found->first != aligned(found->first)) continue;
    const std::uintptr_t at = found->first;
    holes_.erase(found);
    ranges_[at] = bytes;
    return at;
  }
  const std::uintptr_t at = aligned(top_);
  if (bytes > begin_ + range_bytes - at) return std::nullopt;
  top_ = at + bytes;
  ranges_[at] = bytes;
  return at;
}

bool Memory::give_back(std::uintptr_t at, std::size_t bytes) {
  const std::lock_guard lock(guard_);
  const auto range = ranges_.find(at);
  if (range == ranges_.end() || range->second != bytes) return false;
  ranges_.erase(range);
  holes_[at] = bytes;
  return true;
}

bool Memory::reserved(std::uintptr_t at, std::size_t bytes) const {
  const std::lock_guard lock(guard_);
  const auto next = ranges_.upper_bound(at);
  return next != ranges_.begin() && at + bytes <= std::prev(next)->first + std::prev(next)->second;
}

std::optional<std::vector<Memory::Frame>> Memory::take(std::size_t count, Of of) {
  const std::lock_guard lock(guard_);
  if (of == Of::host) {
    while (host_free_.size() < count) host_free_.push_back(host_frames_++);
    if (::ftruncate(host_file_, static_cast<off_t>(host_frames_ * chunk_bytes)) != 0) return std::nullopt;
    std::vector<Frame> frames(host_free_.end() - static_cast<std::ptrdiff_t>(count), host_free_.end());
    host_free_.resize(host_free_.size() - count);
    return frames;
  }
  if (free_.size() < count || !shared_.take(count, bytes_ / chunk_bytes)) return std::nullopt;
  std::vector<Frame> frames(free_.end() - static_cast<std::ptrdiff_t>(count), free_.end());
  free_.resize(free_.size() - count);
  fewest_free_ = std::min(fewest_free_, free_.size());
  return frames;
}

void Memory::give_back(const std::vector<Frame>& frames, Of of) {
  const std::lock_guard lock(guard_);
  for (const Frame frame : frames) {
    ::fallocate(of == Of::host ? host_file_ : file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(frame * chunk_bytes), chunk_bytes);
    (of == Of::host ? host_free_ : free_).push_back(frame);
  }
  if (of == Of::device) shared_.give_back(frames.size());
}

std::size_t Memory::free_bytes() const {
  const std::lock_guard lock(guard_);
  const std::size_t all = free_.size(), others = shared_.of_others();
  return (all - std::min(all, others)) * chunk_bytes;
}

std::size_t Memory::most_in_use() const {
  const std::lock_guard lock(guard_);
  return bytes_ - fewest_free_ * chunk_bytes;
}

void Memory::show(std::uintptr_t at, Frame frame, Of of) {
  if (::mmap(reach(reinterpret_cast<void*>(at)), chunk_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             of == Of::host ? host_file_ : file_, static_cast<off_t>(frame * chunk_bytes)) == MAP_FAILED)
    misuse("a frame cannot be mapped; the kernel's limit of mappings may be reached (vm.max_map_count)");
}

void Memory::hide(std::uintptr_t at, std::size_t bytes) {
  if (::mmap(reach(reinterpret_cast<void*>(at)), bytes, PROT_NONE, hole | MAP_FIXED, -1, 0) == MAP_FAILED)
    misuse("frames cannot be unmapped; the kernel's limit of mappings may be reached (vm.max_map_count)");
}

void Memory::show_host(std::uintptr_t at, Frame frame) {
  if (::mmap(reinterpret_cast<void*>(at), chunk_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, host_file_,
             static_cast<off_t>(frame * chunk_bytes)) == MAP_FAILED)
    misuse("a frame cannot be mapped; the kernel's limit of mappings may be reached (vm.max_map_count)");
}

void Memory::hide_from_host(std::uintptr_t at, std::size_t bytes) {
  if (::mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, hole | MAP_FIXED, -1, 0) == MAP_FAILED)
    misuse("frames cannot be unmapped; the kernel's limit of mappings may be reached (vm.max_map_count)");
}

void Memory::pin(const void* at, std::size_t bytes) {
  const std::lock_guard lock(guard_);
  pinned_[reinterpret_cast<std::uintptr_t>(at)] = bytes;
}

bool Memory::unpin(const void* at) {
  const std::lock_guard lock(guard_);
  return pinned_.erase(reinterpret_cast<std::uintptr_t>(at)) != 0;
}

bool Memory::pinned(const void* at, std::size_t bytes) const {
  const std::lock_guard lock(guard_);
  // Pieces that were registered one after the other are one pinned range to a copy, as on hardware with one page table.
  auto p = reinterpret_cast<std::uintptr_t>(at);
  for (const std::uintptr_t end = p + bytes; p < end;) {
    const auto next = pinned_.upper_bound(p);
    if (next == pinned_.begin()) return false;
    const auto& [begin, size] = *std::prev(next);
    if (p >= begin + size) return false;
    p = begin + size;
  }
  return true;
}

std::size_t Memory::pinned_bytes(const void* at) const {
  const std::lock_guard lock(guard_);
  const auto found = pinned_.find(reinterpret_cast<std::uintptr_t>(at));
  return found == pinned_.end() ? 0 : found->second;
}

std::size_t Memory::all_pinned_bytes() const {
  const std::lock_guard lock(guard_);
  std::size_t sum = 0;
  for (const auto& [at, bytes] : pinned_) sum += bytes;
  return sum;
}

std::size_t Memory::pinned_ranges() const {
  const std::lock_guard lock(guard_);
  return pinned_.size();
}

std::size_t Memory::ranges() const {
  const std::lock_guard lock(guard_);
  return ranges_.size();
}

const char* Memory::fault(std::uintptr_t at, char* text, std::size_t size) const noexcept {
  if (at >= begin_ && at < begin_ + range_bytes) {
    std::snprintf(text, size,
                  "simulated GPU: host code touches the device address %#zx (chunk %zu); copy the memory to the host "
                  "first, or launch a kernel\n",
                  static_cast<std::size_t>(at), (at - begin_) / chunk_bytes);
    return text;
  }
  if (at >= shadow_ && at < shadow_ + range_bytes) {
    std::snprintf(
        text, size,
        "simulated GPU: CUDA_ERROR_ILLEGAL_ADDRESS: %s touches chunk %zu, which has no memory; it was freed or "
        "unmapped while the device still needed it\n",
        running != nullptr ? running : "a kernel", (at - shadow_) / chunk_bytes);
    return text;
  }
  constexpr std::uintptr_t lowest = 0x10000;  // of mmap
  if (running != nullptr && at < lowest) {
    std::snprintf(text, size,
                  "simulated GPU: CUDA_ERROR_ILLEGAL_ADDRESS: %s touches %#zx, which is no device address; a tensor "
                  "without memory was given to it\n",
                  running, static_cast<std::size_t>(at));
    return text;
  }
  return nullptr;
}

namespace {
std::optional<Options>& chosen_options() {
  static auto* const options = new std::optional<Options>;
  return *options;
}
}  // namespace

const Options& options() {
  static const bool once = [] {
    const char* const text = ::secure_getenv("SIMULATED_GPU");
    if (!chosen_options()) chosen_options() = parse_options(text == nullptr ? "" : text);
    return true;
  }();
  static_cast<void>(once);
  return *chosen_options();
}

void set_options(const Options& wanted) { chosen_options() = wanted; }

Memory& memory() {
  static Memory* const whole =
      new Memory(options().memory, options().shared);  // for ever: threads of streams outlive main()
  return *whole;
}

}  // namespace vedette::simulated
