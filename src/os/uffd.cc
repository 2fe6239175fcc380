#include "os/uffd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <span>
#include <utility>

#include "base/architecture.h"
#include "base/assert.h"
#include "base/quiet_thread.h"
#include "os/uapi.h"

namespace vedette {
namespace {

constexpr std::size_t faults_per_read = 64;                   // more threads than this rarely fault at the same time
constexpr long longest_pause_ns = 1'000'000;                  // between two tries to move a page that is pinned
constexpr std::uint64_t pinned_for_good_ns = 60'000'000'000;  // no single transfer of a chunk takes a minute

std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

struct Opened {
  Fd fd;
  bool serves_system_calls = false;
  int errno_value = 0;
};

// The two full kinds first; the restricted kind is better than none.
Opened open_any() {
  const int flags = O_CLOEXEC | O_NONBLOCK;
  if (Fd fd{static_cast<int>(::syscall(SYS_userfaultfd, flags))}) return {std::move(fd), true, 0};
  if (Fd device{::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC)}) {
    if (Fd fd{::ioctl(device.get(), uapi::userfaultfd_ioc_new, flags)}) return {std::move(fd), true, 0};
  }
  if (Fd fd{static_cast<int>(::syscall(SYS_userfaultfd, flags | uapi::user_mode_only))})
    return {std::move(fd), false, 0};
  return {Fd{}, false, errno};
}

// Whether each page of a range has memory or a swap entry of its own; how many pages could be read.
constexpr std::size_t pages_at_once = 64;
std::size_t backed(int pagemap, const std::byte* begin, std::size_t pages,
                   std::array<bool, pages_at_once>& result) noexcept {
  constexpr std::uint64_t present = std::uint64_t{1} << 63, swapped = std::uint64_t{1} << 62;
  std::array<std::uint64_t, pages_at_once> entries{};
  const auto offset = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(begin) / page_size * sizeof(std::uint64_t));
  ssize_t bytes = -1;
  do {
    bytes = ::pread(pagemap, entries.data(), std::min(pages, pages_at_once) * sizeof(std::uint64_t), offset);
  } while (bytes < 0 && errno == EINTR);
  const std::size_t count = bytes < 0 ? 0 : static_cast<std::size_t>(bytes) / sizeof(std::uint64_t);
  for (std::size_t i = 0; i < count; ++i) result[i] = (entries[i] & (present | swapped)) != 0;
  return count;
}

// Linux 6.1 refuses a range that is more than one mapping (ENOENT); half of it, and half of that, is one at last.
std::size_t half_of(std::size_t bytes) noexcept { return (bytes / page_size + 1) / 2 * page_size; }

Error missing_features(std::uint64_t missing) {
  const char* need = (missing & uapi::feature_move) != 0             ? "UFFDIO_MOVE needs Linux 6.8"
                     : (missing & uapi::feature_wp_async) != 0       ? "asynchronous write protection needs Linux 6.7"
                     : (missing & uapi::feature_wp_unpopulated) != 0 ? "write protection of empty pages needs Linux 6.4"
                                                                     : "a newer kernel is needed";
  return Error{.cause = Cause::unavailable,
               .message = std::string("userfaultfd: this kernel lacks a feature; ") + need + " or later"};
}

}  // namespace

Error system_error(std::string what, int errno_value, std::string_view advice) {
  what += ": ";
  what += std::strerror(errno_value);
  if (!advice.empty()) {
    what += "; ";
    what += advice;
  }
  const bool memory = errno_value == ENOMEM;
  return Error{
      .cause = memory ? Cause::out_of_memory : Cause::system, .message = std::move(what), .errno_value = errno_value};
}

Result<Userfaultfd> Userfaultfd::open(std::uint64_t features, std::uint64_t wanted) {
  // The handshake can be done once for a descriptor: ask a first one for the features, then open the one to keep.
  Opened probe = open_any();
  if (!probe.fd) {
    Error error = system_error("userfaultfd", probe.errno_value,
                               probe.errno_value == EMFILE
                                   ? "raise the limit of open files (ulimit -n)"
                                   : "set vm.unprivileged_userfaultfd=1, allow /dev/userfaultfd, or run as root");
    error.cause = Cause::unavailable;
    return error;
  }
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  if (::ioctl(probe.fd.get(), UFFDIO_API, &api) != 0) {
    return system_error("userfaultfd, UFFDIO_API", errno, "a kernel with userfaultfd is needed");
  }
  if ((features & ~api.features) != 0) return missing_features(features & ~api.features);
  features |= wanted & api.features;
  Opened kept = open_any();
  if (!kept.fd) return system_error("userfaultfd", kept.errno_value, "raise the limit of open files (ulimit -n)");
  api = {.api = UFFD_API, .features = features, .ioctls = 0};
  if (::ioctl(kept.fd.get(), UFFDIO_API, &api) != 0)
    return system_error("userfaultfd, UFFDIO_API with features", errno, "");
  Fd pagemap;
  if ((features & uapi::feature_move) != 0) {
    pagemap = Fd(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    if (!pagemap) {
      Error error = system_error(
          "/proc/self/pagemap, which UFFDIO_MOVE needs beside it", errno,
          errno == EACCES ? "a process that has changed its user must be dumpable (PR_SET_DUMPABLE)" : "mount /proc");
      error.cause = Cause::unavailable;
      return error;
    }
  }
  Fd end(::eventfd(0, EFD_CLOEXEC));
  if (!end) return system_error("eventfd", errno, "raise the limit of open files (ulimit -n)");
  return Userfaultfd(std::move(kept.fd), std::move(end), std::move(pagemap), kept.serves_system_calls, features);
}

int Userfaultfd::register_mode(std::byte* begin, std::size_t bytes, std::uint64_t mode) const noexcept {
  uffdio_register request{};
  request.range = {reinterpret_cast<std::uintptr_t>(begin), bytes};
  request.mode = mode;
  return ::ioctl(fd_.get(), UFFDIO_REGISTER, &request) == 0 ? 0 : errno;
}

int Userfaultfd::register_missing(std::byte* begin, std::size_t bytes) const noexcept {
  return register_mode(begin, bytes, UFFDIO_REGISTER_MODE_MISSING);
}

int Userfaultfd::register_write_protect(std::byte* begin, std::size_t bytes) const noexcept {
  return register_mode(begin, bytes, UFFDIO_REGISTER_MODE_WP);
}

int Userfaultfd::register_away_and_write_protect(std::byte* begin, std::size_t bytes) const noexcept {
  return register_mode(begin, bytes,
                       UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP);
}

int Userfaultfd::register_missing_and_write_protect(std::byte* begin, std::size_t bytes) const noexcept {
  return register_mode(begin, bytes, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
}

int Userfaultfd::copy_in(std::byte* begin, const std::byte* source, std::size_t bytes, bool protect) const noexcept {
  std::size_t done = 0;
  while (done < bytes) {
    uffdio_copy request{};
    request.dst = reinterpret_cast<std::uintptr_t>(begin) + done;
    request.src = reinterpret_cast<std::uintptr_t>(source) + done;
    request.len = bytes - done;
    request.mode = protect ? UFFDIO_COPY_MODE_WP : 0;
    const int error = ::ioctl(fd_.get(), UFFDIO_COPY, &request) == 0 ? 0 : errno;
    if (request.copy > 0) done += static_cast<std::size_t>(request.copy);
    const std::size_t left = bytes - done;
    if (error == ENOENT && left > page_size) {
      const std::size_t half = half_of(left);
      if (const int first = copy_in(begin + done, source + done, half, protect); first != 0) return first;
      done += half;
      // EAGAIN: partly done, or the address space is changing
    } else if (error != 0 && error != EAGAIN && error != EINTR) {
      return error;
    }
  }
  return 0;
}

int Userfaultfd::fill_with_zeros(std::byte* page) const noexcept {
  static const std::array<std::byte, std::size_t{64} << 10> zeros{};
  VEDETTE_ASSERT(page_size <= zeros.size());
  return copy_in(page, zeros.data(), page_size, false);
}

int Userfaultfd::unregister(std::byte* begin, std::size_t bytes) const noexcept {
  uffdio_range range{reinterpret_cast<std::uintptr_t>(begin), bytes};
  return ::ioctl(fd_.get(), UFFDIO_UNREGISTER, &range) == 0 ? 0 : errno;
}

int Userfaultfd::write_protect(std::byte* begin, std::size_t bytes) const noexcept {
  return change_protection(begin, bytes, UFFDIO_WRITEPROTECT_MODE_WP);
}

int Userfaultfd::write_unprotect(std::byte* begin, std::size_t bytes) const noexcept {
  return change_protection(begin, bytes, 0);
}

int Userfaultfd::change_protection(std::byte* begin, std::size_t bytes, std::uint64_t mode) const noexcept {
  uffdio_writeprotect request{};
  request.range = {reinterpret_cast<std::uintptr_t>(begin), bytes};
  request.mode = mode;
  while (::ioctl(fd_.get(), UFFDIO_WRITEPROTECT, &request) != 0) {
    if (errno == ENOENT && bytes > page_size) {
      const std::size_t half = half_of(bytes);
      const int error = change_protection(begin, half, mode);
      return error != 0 ? error : change_protection(begin + half, bytes - half, mode);
    }
    if (errno != EAGAIN && errno != EINTR) return errno;  // EAGAIN: the address space is changing
  }
  return 0;
}

void Userfaultfd::wake(std::byte* begin, std::size_t bytes) const noexcept {
  uffdio_range range{reinterpret_cast<std::uintptr_t>(begin), bytes};
  if (::ioctl(fd_.get(), UFFDIO_WAKE, &range) != 0) die("userfaultfd: UFFDIO_WAKE failed, threads would wait for ever");
}

// The bytes from the beginning that have come to `destination` without being counted by the kernel. Linux 6.18 batches
// pages, and retries a page that another thread has just touched or that is being migrated. It keeps the error of the
// first try: it moves the batch, does not count it, and moves it once more. Then it returns EEXIST for pages that it
// has moved itself. Such a page is missing at its source; where both sides have one, the page at the destination is
// foreign. tests/os/move_race_test meets this within a second.
std::size_t Userfaultfd::moved_untold(const std::byte* destination, const std::byte* source,
                                      std::size_t bytes) const noexcept {
  std::array<bool, pages_at_once> here, there;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t pages = (bytes - done) / page_size;
    const std::size_t count = std::min(backed(pagemap_.get(), destination + done, pages, here),
                                       backed(pagemap_.get(), source + done, pages, there));
    for (std::size_t i = 0; i < count; ++i)
      if (!here[i] || there[i]) return done + i * page_size;
    if (count == 0) return done;
    done += count * page_size;
  }
  return bytes;
}

std::size_t Userfaultfd::move_until_busy(std::byte* destination, std::byte* source, std::size_t bytes,
                                         Missing missing) const noexcept {
  std::size_t done = 0;
  bool unlocked = false;
  while (done < bytes) {
    uapi::MoveArguments request{reinterpret_cast<std::uintptr_t>(destination) + done,
                                reinterpret_cast<std::uintptr_t>(source) + done, bytes - done, 0, 0};
    const int result = ::ioctl(fd_.get(), uapi::uffdio_move, &request);
    const int error = result == 0 ? 0 : errno;
    if (request.moved > 0) {
      done += static_cast<std::size_t>(request.moved);
      continue;
    }
    if (error == EEXIST) {
      if (const std::size_t untold = moved_untold(destination + done, source + done, bytes - done); untold > 0) {
        wake(destination + done, untold);
        done += untold;
        continue;
      }
    }
    // Pages move between mappings that are both locked or both not. A lock that the program has put on a chunk (mlock,
    // mlockall) ends when the chunk moves, as one on memory that is given back does.
    if (error == EINVAL && !std::exchange(unlocked, true)) {
      ::munlock(destination, bytes);
      ::munlock(source, bytes);
      continue;
    }
    switch (error) {
      case EAGAIN:  // partly done, or the address space is changing
      case EINTR:
      case EBUSY:  // a transfer of the program has the page pinned, or the kernel is migrating it
        return done;
      case EEXIST:
        die("a chunk that is away holds pages already: somebody filled or mapped memory inside the arena");
      case ENOENT:
        if (missing == Missing::hold_zeros && fill_with_zeros(source + done) == 0) continue;
        die("a frame has lost pages: somebody discarded (madvise) its memory");
      case ENOMEM:
        die("UFFDIO_MOVE: the kernel has no memory for page tables");
      default:
        die("UFFDIO_MOVE failed: the program has changed the mapping of the arena (mmap, munmap, mprotect, mremap)");
    }
  }
  VEDETTE_ASSERT(done == bytes);
  return done;
}

void Patience::pause() noexcept {
  const std::uint64_t now = monotonic_ns();
  if (since_ns_ == 0) since_ns_ = now;
  if (now - since_ns_ > pinned_for_good_ns) {
    die("a chunk cannot move since its pages stay pinned (registered for I/O or for a device); keep such memory "
        "resident");
  }
  const timespec pause{0, next_ns_};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
  next_ns_ = std::min(next_ns_ * 2, longest_pause_ns);
}

void Userfaultfd::move(std::byte* destination, std::byte* source, std::size_t bytes) const noexcept {
  std::size_t done = 0;
  for (Patience patience;;) {
    const std::size_t moved =
        move_until_busy(destination + done, source + done, bytes - done, Missing::stop_the_program);
    done += moved;
    if (done == bytes) return;
    if (moved > 0) patience = {};
    patience.pause();
  }
}

bool Userfaultfd::try_move(std::byte* destination, std::byte* source, std::size_t bytes) const noexcept {
  constexpr int tries = 4;  // without progress, 0.2 ms: a page that the kernel migrates is free again
  std::size_t done = 0;
  Patience patience;
  for (int tried = 0; tried < tries; ++tried) {
    if (tried > 0) patience.pause();
    const std::size_t moved = move_until_busy(destination + done, source + done, bytes - done, Missing::hold_zeros);
    done += moved;
    if (done == bytes) return true;
    if (moved > 0) tried = 0;
  }
  if (done > 0) move(source, destination, done);
  return false;
}

FaultReader::FaultReader(const Userfaultfd& userfaultfd, std::function<bool(const MissingPage&)> sink,
                         bool serves_at_once)
    : userfaultfd_(userfaultfd.fd()),
      end_(userfaultfd.end_fd()),
      serves_at_once_(serves_at_once),
      sink_(std::move(sink)) {
  thread_ = start_quiet_thread([this] { run(); });
}

FaultReader::~FaultReader() {
  const std::uint64_t one = 1;
  while (::write(end_, &one, sizeof one) != sizeof one) {
    if (errno != EINTR && errno != EAGAIN) die("the thread that serves page faults cannot be told to end (eventfd)");
  }
  thread_.join();
}

void FaultReader::run() noexcept {
  for (;;) {
    std::array<pollfd, 2> ready{pollfd{userfaultfd_, POLLIN, 0}, pollfd{end_, POLLIN, 0}};
    if (::poll(ready.data(), ready.size(), -1) < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      die("the thread that serves page faults cannot wait for them any more (poll failed)");
    }
    if ((ready[1].revents & (POLLIN | POLLERR | POLLHUP | POLLNVAL)) != 0) return;
    if ((ready[0].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
      die("the userfaultfd was closed under the thread that serves page faults");
    }
    if ((ready[0].revents & POLLIN) != 0) drain();
  }
}

void FaultReader::drain() noexcept {
  std::array<uffd_msg, faults_per_read> messages;
  const ssize_t bytes = ::read(userfaultfd_, messages.data(), sizeof messages);
  if (bytes < 0) {
    if (errno == EAGAIN || errno == EINTR) return;  // the thread that faulted was woken by another
    die("the thread that serves page faults cannot read them any more");
  }
  if (bytes == 0 || static_cast<std::size_t>(bytes) % sizeof(uffd_msg) != 0) die("userfaultfd: a message was cut off");
  const std::size_t count = static_cast<std::size_t>(bytes) / sizeof(uffd_msg);
  std::array<std::uintptr_t, faults_per_read> served;
  std::size_t pages_served = 0;
  for (const uffd_msg& message : std::span(messages).first(count)) {
    if (message.event != UFFD_EVENT_PAGEFAULT) die("userfaultfd: an event that nobody asked for");
    const auto address = static_cast<std::uintptr_t>(message.arg.pagefault.address) & ~std::uintptr_t{4095};
    if (serves_at_once_) {
      const auto end = served.begin() + static_cast<std::ptrdiff_t>(pages_served);
      if (std::find(served.begin(), end, address) != end) continue;
      served[pages_served++] = address;
    }
    const bool write = (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0;
    if (!sink_({.page = reinterpret_cast<std::byte*>(address), .write = write})) {
      die("a page fault outside the arena: the parking address of a frame that is shown was touched, by a stray "
          "pointer "
          "or by mlockall(MCL_CURRENT), which touches all memory: lock memory before the session opens");
    }
  }
}

}  // namespace vedette
