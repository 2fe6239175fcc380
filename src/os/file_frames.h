// Frames that the zap tracker can watch: chunk-sized pieces of one memfd, huge pages where the kernel makes
// them, but shown with an entry for each 4 KiB. The whole file is mapped once more at an alias, so a frame can be
// reached by I/O wherever it is shown, and no access through the alias is ever tracked.
//
//   show   mmap the piece over the chunk (one step, no hole), register it for asynchronous write protection, protect
//          it, wake its waiters: so it is shown as PageTracker::arm() leaves it, and may be collected without
//   hide   register it for minor and missing faults as well, then clear its page-table entries
//
// Registered so, a touch of a page without an entry waits, system calls included: the chunk is away although its
// mapping still names the file. The mapping stays until the next show there. Meanwhile the frame may be shown elsewhere
// and hold other bytes (the page is in the file: a minor fault), or be given back (a hole: a missing fault). So a chunk
// is never replaced by a placeholder, and there is no moment in which it would have to be unreadable (SIGSEGV, EFAULT)
// or readable as zeros.
//
// As with mremap, a transfer that the program itself has in flight into the chunk is not waited for.
#pragma once
#include <cstddef>
#include <memory>

#include "base/children.h"
#include "base/fd.h"
#include "base/mapping.h"
#include "os/parking.h"
#include "os/uapi.h"
#include "os/uffd.h"
#include "vedette/result.h"

namespace vedette {

class FileFrames {
 public:
  static constexpr std::uint64_t features = uapi::feature_missing_shmem | uapi::feature_minor_shmem |
                                            uapi::feature_wp_hugetlbfs_shmem | uapi::feature_wp_unpopulated |
                                            uapi::feature_wp_async;

  // No frame has memory yet. `userfaultfd` is borrowed and was opened with `features`.
  static Result<std::unique_ptr<FileFrames>> open(const Layout&, const Userfaultfd& userfaultfd);

  int allocate(FrameIndex frame) noexcept;                          // 0 or an errno; zeroed
  int allocate(FrameIndex frame, const std::byte* bytes) noexcept;  // 0 or an errno; a copy of a chunk's worth of bytes
  void read(FrameIndex frame, std::byte* bytes) const noexcept;     // a chunk's worth
  void release(FrameIndex frame) noexcept;                          // gives the memory back
  void show(FrameIndex frame, std::byte* chunk) noexcept;           // whatever was mapped at `chunk` is replaced
  void hide(std::byte* chunk) noexcept;
  std::byte* parked(FrameIndex frame) const noexcept { return alias_.data() + layout_.offset(frame); }

 private:
  FileFrames(const Layout& layout, const Userfaultfd& userfaultfd, Fd file, Mapping alias) noexcept
      : layout_(layout),
        userfaultfd_(userfaultfd),
        file_(std::move(file)),
        alias_(std::move(alias)),
        used_(alias_.data(), layout.budget_bytes()) {}

  int use(FrameIndex frame) noexcept;  // 0 or an errno
  bool make_huge(FrameIndex frame) noexcept;
  int make_pages(FrameIndex frame) noexcept;
  int in_node(FrameIndex frame) noexcept;

  Layout layout_;
  const Userfaultfd& userfaultfd_;
  Fd file_;
  ClosedInChildren alone_{file_.get()};
  Mapping alias_;
  UsedPart used_;  // of it, and of the file
};

}  // namespace vedette
