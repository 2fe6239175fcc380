#include "support/broken_calls.h"

#include <fcntl.h>
#include <liburing.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <string_view>

#include "os/uapi.h"
#include "tier/io_queue.h"

namespace vedette::testing {
namespace {

std::atomic<std::uint64_t> made{0}, made_reads{0};
std::atomic<const char*>* broken = nullptr;
CallNames* names = nullptr;
std::optional<BreakAt> plan;
std::atomic<bool> armed{false};
Forbidden forbidden = Forbidden::nothing;

bool is_forbidden(Forbidden what) { return forbidden == what || forbidden == Forbidden::both; }

// The fault injected into this call; none into nearly all. `able`: whether it can be corrupt.
std::optional<Break> turn(const char* name, bool able = false) {
  if (!armed.load(std::memory_order_relaxed)) return std::nullopt;
  if (names != nullptr) names->count(name);
  std::uint64_t mine = made.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t read = able ? made_reads.fetch_add(1, std::memory_order_relaxed) : 0;
  if (!plan || (plan->how == Break::corrupt && !able)) return std::nullopt;
  if (plan->how == Break::corrupt) mine = read;
  if (plan->nth != mine) return std::nullopt;
  if (broken != nullptr) broken->store(name);
  if (plan->how == Break::late) {
    const timespec pause{0, 20'000'000};
    ::clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
    return std::nullopt;
  }
  return plan->how;
}

int chosen(std::initializer_list<int> errors) { return errors.begin()[(plan->seed * 7 + plan->nth) % errors.size()]; }

template <class T>
T failing(std::initializer_list<int> errors) {
  errno = chosen(errors);
  if constexpr (std::is_pointer_v<T>)
    return static_cast<T>(MAP_FAILED);
  else
    return static_cast<T>(-1);
}

}  // namespace

void arm(std::optional<BreakAt> at) {
  plan = at;
  made = made_reads = 0;
  armed = true;
}
void forbid(Forbidden what) { forbidden = what; }
std::uint64_t calls_made(Break how) { return how == Break::corrupt ? made_reads : made; }
void tell_broken(std::atomic<const char*>* name) { broken = name; }
void tell_names(CallNames* told) { names = told; }

void CallNames::count(const char* name) {
  for (Entry& entry : entries) {
    const char* now = entry.name.load(std::memory_order_acquire);
    if (now == nullptr && entry.name.compare_exchange_strong(now, name)) now = name;
    if (now == name) {
      entry.calls.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
}

}  // namespace vedette::testing

using vedette::testing::Break;
using vedette::testing::chosen;
using vedette::testing::failing;
using vedette::testing::Forbidden;
using vedette::testing::is_forbidden;
using vedette::testing::turn;

extern "C" {

#define REAL(result, name, ...) result __real_##name(__VA_ARGS__)
REAL(void*, mmap, void*, size_t, int, int, int, off_t);
REAL(void*, mremap, void*, size_t, size_t, int, ...);
REAL(int, mprotect, void*, size_t, int);
REAL(int, madvise, void*, size_t, int);
REAL(int, ioctl, int, unsigned long, ...);
REAL(long, syscall, long, ...);
REAL(int, open, const char*, int, ...);
REAL(int, mkostemp, char*, int);
REAL(int, memfd_create, const char*, unsigned);
REAL(int, eventfd, unsigned, int);
REAL(int, pipe2, int*, int);
REAL(int, ftruncate, int, off_t);
REAL(int, fallocate, int, int, off_t, off_t);
REAL(ssize_t, read, int, void*, size_t);
REAL(ssize_t, write, int, const void*, size_t);
REAL(ssize_t, pread, int, void*, size_t, off_t);
REAL(ssize_t, pwrite, int, const void*, size_t, off_t);
REAL(int, poll, pollfd*, nfds_t, int);
REAL(int, io_uring_queue_init, unsigned, io_uring*, unsigned);
REAL(int, io_uring_submit, io_uring*);
REAL(int, io_uring_submit_and_wait_timeout, io_uring*, io_uring_cqe**, unsigned, __kernel_timespec*, sigset_t*);
REAL(int, io_uring_register_buffers_sparse, io_uring*, unsigned);
REAL(int, io_uring_register_buffers_update_tag, io_uring*, unsigned, const iovec*, const __u64*, unsigned);
#undef REAL

void* __wrap_mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (turn("mmap")) return failing<void*>({ENOMEM, EAGAIN});
  return __real_mmap(at, bytes, protection, flags, fd, offset);
}

void* __wrap_mremap(void* at, size_t old_bytes, size_t bytes, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  void* const target = va_arg(rest, void*);
  va_end(rest);
  if (turn("mremap")) return failing<void*>({ENOMEM, EAGAIN});
  return __real_mremap(at, old_bytes, bytes, flags, target);
}

int __wrap_mprotect(void* at, size_t bytes, int protection) {
  if (turn("mprotect")) return failing<int>({ENOMEM, EACCES});
  return __real_mprotect(at, bytes, protection);
}

int __wrap_madvise(void* at, size_t bytes, int advice) {
  if (turn("madvise")) return failing<int>({ENOMEM, EAGAIN, EINVAL});
  return __real_madvise(at, bytes, advice);
}

// A move that is brief stops in the middle, as it does when the address space changes; every other one is whole and is
// told wrongly, as Linux 6.18 does (Userfaultfd::moved_untold).
static int brief_move(int fd, vedette::uapi::MoveArguments& move) {
  const bool untold = vedette::testing::plan->nth % 2 == 0;
  const std::uint64_t whole = move.length;
  if (!untold && whole > 4096) move.length = whole / 2 / 4096 * 4096;
  const int result = __real_ioctl(fd, vedette::uapi::uffdio_move, &move);
  move.length = whole;
  if (result != 0) return result;
  if (untold) move.moved = -EEXIST;
  errno = untold ? EEXIST : EAGAIN;
  return -1;
}

static const char* ioctl_name(unsigned long request) {
  switch (request) {
    case UFFDIO_API:
      return "ioctl UFFDIO_API";
    case UFFDIO_REGISTER:
      return "ioctl UFFDIO_REGISTER";
    case UFFDIO_UNREGISTER:
      return "ioctl UFFDIO_UNREGISTER";
    case UFFDIO_WAKE:
      return "ioctl UFFDIO_WAKE";
    case UFFDIO_COPY:
      return "ioctl UFFDIO_COPY";
    case UFFDIO_ZEROPAGE:
      return "ioctl UFFDIO_ZEROPAGE";
    case vedette::uapi::uffdio_move:
      return "ioctl UFFDIO_MOVE";
    case UFFDIO_CONTINUE:
      return "ioctl UFFDIO_CONTINUE";
    case vedette::uapi::uffdio_writeprotect:
      return "ioctl UFFDIO_WRITEPROTECT";
    case vedette::uapi::userfaultfd_ioc_new:
      return "ioctl USERFAULTFD_IOC_NEW";
    case vedette::uapi::pagemap_scan:
      return "ioctl PAGEMAP_SCAN";
    default:
      return "ioctl";
  }
}

int __wrap_ioctl(int fd, unsigned long request, ...) {
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  const bool move = request == vedette::uapi::uffdio_move;
  if (const auto how = turn(ioctl_name(request))) {
    if (move && *how == Break::brief) return brief_move(fd, *static_cast<vedette::uapi::MoveArguments*>(argument));
    if (move) return failing<int>({EINVAL, ENOMEM, EAGAIN, EBUSY, EEXIST, ENOENT, EINTR});
    return *how == Break::brief ? failing<int>({EAGAIN, EINTR}) : failing<int>({EINVAL, ENOMEM, EAGAIN, EPERM});
  }
  return __real_ioctl(fd, request, argument);
}

long __wrap_syscall(long number, ...) {
  va_list rest;
  va_start(rest, number);
  long a[6];
  for (long& one : a) one = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_userfaultfd) {
    if (is_forbidden(Forbidden::userfaultfd)) return failing<long>({EPERM});
    if (turn("userfaultfd")) return failing<long>({EPERM, EMFILE, ENOMEM});
  }
  if (number == SYS_write && turn("write")) return failing<long>({EINTR, EAGAIN});
  return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int __wrap_open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = va_arg(rest, int);
  va_end(rest);
  if (std::string_view(path) == "/dev/userfaultfd" && is_forbidden(Forbidden::userfaultfd))
    return failing<int>({EACCES});
  if (turn("open")) return failing<int>({EMFILE, ENFILE, EACCES, EIO});
  return __real_open(path, flags, mode);
}

int __wrap_mkostemp(char* path, int flags) {
  if (turn("mkostemp")) return failing<int>({EMFILE, ENOSPC});
  return __real_mkostemp(path, flags);
}

int __wrap_memfd_create(const char* name, unsigned flags) {
  if (turn("memfd_create")) return failing<int>({EMFILE, ENOMEM});
  return __real_memfd_create(name, flags);
}

int __wrap_eventfd(unsigned value, int flags) {
  if (turn("eventfd")) return failing<int>({EMFILE, ENOMEM});
  return __real_eventfd(value, flags);
}

int __wrap_pipe2(int* ends, int flags) {
  if (turn("pipe2")) return failing<int>({EMFILE, ENFILE});
  return __real_pipe2(ends, flags);
}

int __wrap_ftruncate(int fd, off_t bytes) {
  if (turn("ftruncate")) return failing<int>({EFBIG, EIO, EINTR});
  return __real_ftruncate(fd, bytes);
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if (const auto how = turn("fallocate"))
    return *how == Break::brief ? failing<int>({EINTR}) : failing<int>({ENOSPC, EIO, EINTR});
  return __real_fallocate(fd, mode, offset, bytes);
}

ssize_t __wrap_read(int fd, void* memory, size_t bytes) {
  if (turn("read")) return failing<ssize_t>({EINTR, EAGAIN});
  return __real_read(fd, memory, bytes);
}

ssize_t __wrap_write(int fd, const void* memory, size_t bytes) {
  if (turn("write")) return failing<ssize_t>({EINTR, EAGAIN});
  return __real_write(fd, memory, bytes);
}

ssize_t __wrap_pread(int fd, void* memory, size_t bytes, off_t offset) {
  if (const auto how = turn("pread")) {
    if (*how == Break::brief) return __real_pread(fd, memory, bytes / 2, offset);
    return failing<ssize_t>({EIO, EINTR, EAGAIN});
  }
  return __real_pread(fd, memory, bytes, offset);
}

ssize_t __wrap_pwrite(int fd, const void* memory, size_t bytes, off_t offset) {
  if (const auto how = turn("pwrite")) {
    if (*how == Break::brief) return __real_pwrite(fd, memory, bytes / 2, offset);
    return failing<ssize_t>({EIO, EINTR, ENOSPC});
  }
  return __real_pwrite(fd, memory, bytes, offset);
}

int __wrap_poll(pollfd* fds, nfds_t count, int timeout) {
  if (turn("poll")) return failing<int>({EINTR, EAGAIN});
  return __real_poll(fds, count, timeout);
}

int __wrap_io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags) {
  if (is_forbidden(Forbidden::io_uring)) return -EPERM;
  if (turn("io_uring_setup")) return -chosen({ENOMEM, EPERM, EMFILE, EINVAL});
  return __real_io_uring_queue_init(entries, ring, flags);
}

int __wrap_io_uring_submit(io_uring* ring) {
  if (turn("io_uring_submit")) return -chosen({EAGAIN, EBUSY, EINTR});
  return __real_io_uring_submit(ring);
}

int __wrap_io_uring_submit_and_wait_timeout(io_uring* ring, io_uring_cqe** cqe, unsigned count,
                                            __kernel_timespec* limit, sigset_t* mask) {
  if (turn("io_uring_enter")) return -chosen({EAGAIN, EBUSY, EINTR, ETIME});
  return __real_io_uring_submit_and_wait_timeout(ring, cqe, count, limit, mask);
}

int __wrap_io_uring_register_buffers_sparse(io_uring* ring, unsigned count) {
  if (turn("io_uring_register")) return -chosen({ENOMEM, EINVAL});
  return __real_io_uring_register_buffers_sparse(ring, count);
}

int __wrap_io_uring_register_buffers_update_tag(io_uring* ring, unsigned first, const iovec* ranges, const __u64* tags,
                                                unsigned count) {
  if (turn("io_uring_register")) return -chosen({ENOMEM, EFAULT});
  return __real_io_uring_register_buffers_update_tag(ring, first, ranges, tags, count);
}

}  // extern "C"

// The disk's answer, on its way to the only function that reads it.
namespace vedette {
bool real_advance(Transfer&, std::int64_t, Bytes) noexcept asm("__real__ZN7vedette7advanceERNS_8TransferElNS_5BytesE");
bool broken_advance(Transfer&, std::int64_t, Bytes) noexcept
    asm("__wrap__ZN7vedette7advanceERNS_8TransferElNS_5BytesE");
bool broken_advance(Transfer& transfer, std::int64_t result, Bytes slot_bytes) noexcept {
  const bool read = transfer.request.direction == StoreRequest::Direction::read;
  if (const auto how = turn(read ? "a read of the disk" : "a write to the disk", read); how && result > 0) {
    if (*how == Break::fail) result = -testing::chosen({EIO, ENOSPC, EINTR, EAGAIN, ENODEV});
    if (*how == Break::brief) result = testing::plan->nth % 2 == 0 ? result / 2 : result / 2 + 100;
    if (*how == Break::corrupt) transfer.request.memory[testing::plan->seed * 977 % slot_bytes.value] ^= std::byte{16};
  }
  return real_advance(transfer, result, slot_bytes);
}
}  // namespace vedette
