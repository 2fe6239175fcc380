// A userfaultfd with one owner, and the thread that reads its page faults. The kernel parks a thread that touches a
// registered page without memory behind it, and reports the address; the thread that fills the page wakes it.
//
// What always holds: a fault reaches the sink or the program dies with a sentence; no thread waits for a reader that
// has gone.
//
// Thread rule: everything but open() and close may be called from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "vedette/result.h"

namespace vedette {

class Userfaultfd {
 public:
  // Tries userfaultfd(2), then /dev/userfaultfd, then the user-mode-only kind that needs no privilege. `features` are
  // bits of uapi.h that must all be there, else Cause::unavailable names the first kernel that has them; those of
  // `wanted` are switched on where the kernel has them: has() tells.
  static Result<Userfaultfd> open(std::uint64_t features, std::uint64_t wanted = 0);

  bool has(std::uint64_t features) const noexcept { return (features & ~features_) == 0; }

  // False: system calls that meet a missing page fail with EFAULT instead of waiting.
  bool serves_system_calls() const noexcept { return serves_system_calls_; }
  int fd() const noexcept { return fd_.get(); }
  int end_fd() const noexcept { return end_.get(); }  // an eventfd: written to, it ends the FaultReader

  // Both return 0 or an errno. The range is whole pages of mappings that allow the mode.
  int register_missing(std::byte* begin, std::size_t bytes) const noexcept;
  int register_write_protect(std::byte* begin, std::size_t bytes) const noexcept;
  // For shared memory: write protection as above, and a thread that touches a page without an entry in the page table
  // waits, whether the file has a page there or a hole.
  int register_away_and_write_protect(std::byte* begin, std::size_t bytes) const noexcept;
  int register_missing_and_write_protect(std::byte* begin, std::size_t bytes) const noexcept;
  // Fills registered pages that are missing with copies, perhaps write-protected; waiting threads go on. 0 or an errno,
  // EEXIST where there is a page already (those before it are filled).
  int copy_in(std::byte* begin, const std::byte* source, std::size_t bytes, bool protect) const noexcept;
  // One registered page that is missing gets memory of its own: a kernel may refuse to move the shared page of zeros. 0
  // or an errno, EEXIST where there is a page.
  int fill_with_zeros(std::byte* page) const noexcept;
  int write_unprotect(std::byte* begin, std::size_t bytes) const noexcept;  // waiting threads go on. 0 or an errno
  int unregister(std::byte* begin, std::size_t bytes) const noexcept;
  // Registered pages, mapped or not, are protected: PAGEMAP_SCAN says written from the first write on. 0 or an errno.
  int write_protect(std::byte* begin, std::size_t bytes) const noexcept;

  // Wakes every thread that waits for a page of this range; they try again.
  void wake(std::byte* begin, std::size_t bytes) const noexcept;

  // Moves the pages of [source, source + bytes) to `destination` without copying them. Each page is at every instant
  // either there or here or both missing for the accessing thread. Waits while a page is pinned by a running transfer;
  // stops the program with a sentence where a page is pinned for good or a foreign call changed the mapping. Needs
  // feature_move.
  void move(std::byte* destination, std::byte* source, std::size_t bytes) const noexcept;
  // The same, but a page that stays pinned for 0.2 ms ends it: all pages are back at `source`, and the result is false.
  // A page that is missing at `source` moves as one of zeros.
  [[nodiscard]] bool try_move(std::byte* destination, std::byte* source, std::size_t bytes) const noexcept;

 private:
  Userfaultfd(Fd fd, Fd end, Fd pagemap, bool serves_system_calls, std::uint64_t features) noexcept
      : fd_(std::move(fd)),
        end_(std::move(end)),
        pagemap_(std::move(pagemap)),
        serves_system_calls_(serves_system_calls),
        features_(features) {}
  int change_protection(std::byte* begin, std::size_t bytes, std::uint64_t mode) const noexcept;
  int register_mode(std::byte* begin, std::size_t bytes, std::uint64_t mode) const noexcept;
  enum class Missing : std::uint8_t { stop_the_program, hold_zeros };  // pages at the source
  std::size_t move_until_busy(std::byte* destination, std::byte* source, std::size_t bytes,
                              Missing missing) const noexcept;  // bytes moved
  std::size_t moved_untold(const std::byte* destination, const std::byte* source, std::size_t bytes) const noexcept;

  Fd fd_, end_;
  Fd pagemap_;  // /proc/self/pagemap, where pages are to be moved
  bool serves_system_calls_ = false;
  std::uint64_t features_ = 0;
};

// Growing pauses between tries to move pages that a transfer has pinned. After a minute, longer than any transfer of a
// chunk, pause() stops the program with a sentence.
class Patience {
 public:
  void pause() noexcept;

 private:
  std::uint64_t since_ns_ = 0;  // of the first pause; 0: none yet
  long next_ns_ = 1'000;
};

struct MissingPage {
  std::byte* page = nullptr;  // its first byte
  bool write = false;
};

// Reads the faults of one userfaultfd until it is destroyed. `sink` runs on this thread and must not touch registered
// memory that is missing. It returns false for an address that it does not know, which stops the program.
//
// `serves_at_once`: when the sink returns, every thread that waited for the page has been woken. Then faults of the
// same page that were read with the first one are over, and are skipped: served late, they would make the page seem
// touched once more.
class [[nodiscard]] FaultReader {
 public:
  // borrowed, outlives it
  FaultReader(const Userfaultfd& userfaultfd, std::function<bool(const MissingPage&)> sink,
              bool serves_at_once = false);
  ~FaultReader();
  FaultReader(const FaultReader&) = delete;
  FaultReader& operator=(const FaultReader&) = delete;

 private:
  void run() noexcept;
  void drain() noexcept;

  int userfaultfd_, end_;
  bool serves_at_once_;
  std::function<bool(const MissingPage&)> sink_;
  std::thread thread_;
};

// "what: strerror; advice"
Error system_error(std::string what, int errno_value, std::string_view advice);

}  // namespace vedette
