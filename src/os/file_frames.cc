#include "os/file_frames.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "base/size_limit.h"
#include "os/kernel_order.h"
#include "os/uapi.h"

namespace vedette {

namespace {

// An entry a page, also where the frame is one huge page, else one access would seem to touch all of them.
bool advise_shared(std::byte* begin, std::size_t bytes) noexcept {
  if (::madvise(begin, bytes, MADV_NOHUGEPAGE) != 0 && errno != EINVAL) return false;
  return ::madvise(begin, bytes, MADV_DONTFORK) == 0;
}

}  // namespace

Result<std::unique_ptr<FileFrames>> FileFrames::open(const Layout& layout, const Userfaultfd& userfaultfd) {
  if (!userfaultfd.has(features)) {
    return Error{
        .cause = Cause::unavailable,
        .message =
            "shared memory as fast memory: userfaultfd tells no minor faults of it; Linux 5.14 or later is needed"};
  }
  Fd file{::memfd_create("vedette-frames", MFD_CLOEXEC)};
  if (!file) return system_error("memfd_create", errno, "raise ulimit -n");
  ::fchmod(file.get(), S_IRUSR | S_IWUSR);  // memfds are born with every right for everybody
  const SizeLimitIsAnError limit;
  if (::ftruncate(file.get(), static_cast<off_t>(layout.budget_bytes())) != 0) {
    return system_error("ftruncate of a memfd", errno, "raise the file size limit (ulimit -f)");
  }
  auto alias =
      Mapping::reserve({layout.frame_bytes()}, {std::max<std::uint64_t>(layout.chunk_bytes(), huge_page_bytes)});
  if (!alias) return alias.error();
  // Without access first: after mlockall(MCL_FUTURE) the mapping would be filled at once.
  if (::mmap(alias->data(), layout.frame_bytes(), PROT_NONE, MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED ||
      ::munlock(alias->data(), layout.frame_bytes()) != 0 ||
      ::mprotect(alias->data(), layout.budget_bytes(), PROT_READ | PROT_WRITE) != 0) {
    return system_error("mapping a memfd", errno, "");
  }
  if (::madvise(alias->data(), layout.frame_bytes(), MADV_DONTFORK) != 0)
    return system_error("madvise of a memfd", errno, "");
  if (auto preferred = prefer(alias->data(), layout.frame_bytes(), layout.node()); !preferred) return preferred.error();
  return std::unique_ptr<FileFrames>(new FileFrames(layout, userfaultfd, std::move(file), std::move(*alias)));
}

int FileFrames::use(FrameIndex frame) noexcept {
  const SizeLimitIsAnError limit;
  return used_.grow(layout_.offset(frame) + layout_.chunk_bytes(), [&](std::size_t bytes) {
    return ::ftruncate(file_.get(), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  });
}

// Makes huge pages of a frame that has no memory yet: zeroed, mapped at the alias. Of a hole the kernel makes none, so
// a byte of each is written. False where it cannot (Linux < 6.1, no huge page free, huge pages of shared memory
// denied): the frame then has a small page here and there.
bool FileFrames::make_huge(FrameIndex frame) noexcept {
  if (layout_.chunk_bytes() % huge_page_bytes != 0) return false;
  for (std::size_t i = 0; i < layout_.chunk_bytes(); i += huge_page_bytes) {
    if (::pwrite(file_.get(), "", 1, static_cast<off_t>(layout_.offset(frame) + i)) != 1) return false;
  }
  return ::madvise(parked(frame), layout_.chunk_bytes(), uapi::madvise_collapse) == 0;
}

// Huge pages where the kernel makes them: five times faster to fill and to give back than small ones, and one given
// back becomes the huge page of a fast frame at once. Small ones it must join first, and often prefers not to.
int FileFrames::allocate(FrameIndex frame) noexcept {
  if (const int used = use(frame); used != 0) return used;
  const int error = make_pages(frame);
  return error == 0 ? in_node(frame) : error;
}

// ENOMEM: the node that frames are of has no more; then nothing of the frame is left.
int FileFrames::in_node(FrameIndex frame) noexcept {
  if (!layout_.node()) return 0;
  int error = populate(parked(frame), layout_.chunk_bytes());
  const InNode placed = placed_in_node(parked(frame), {layout_.chunk_bytes()}, *layout_.node());
  if (error == 0) error = placed.error != 0 ? placed.error : placed.all ? 0 : ENOMEM;
  if (error != 0) release(frame);
  return error;
}

int FileFrames::make_pages(FrameIndex frame) noexcept {
  if (make_huge(frame)) return 0;
  const auto offset = static_cast<off_t>(layout_.offset(frame)), bytes = static_cast<off_t>(layout_.chunk_bytes());
  while (::fallocate(file_.get(), 0, offset, bytes) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// Of small pages a system call takes half the time of touching and copying (0.7 ms against 1.3 for 2 MiB): none is
// cleared first, none mapped.
int FileFrames::allocate(FrameIndex frame, const std::byte* bytes) noexcept {
  if (const int error = use(frame); error != 0) return error;
  if (make_huge(frame)) {
    std::memcpy(parked(frame), bytes, layout_.chunk_bytes());
    return in_node(frame);
  }
  const auto offset = static_cast<off_t>(layout_.offset(frame));
  for (std::size_t done = 0; done < layout_.chunk_bytes();) {
    const ssize_t written =
        ::pwrite(file_.get(), bytes + done, layout_.chunk_bytes() - done, offset + static_cast<off_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written < 0 ? errno : ENOMEM;
      release(frame);
      return error;
    }
    done += static_cast<std::size_t>(written);
  }
  return in_node(frame);
}

void FileFrames::read(FrameIndex frame, std::byte* bytes) const noexcept {
  const auto offset = static_cast<off_t>(layout_.offset(frame));
  for (std::size_t done = 0; done < layout_.chunk_bytes();) {
    const ssize_t got =
        ::pread(file_.get(), bytes + done, layout_.chunk_bytes() - done, offset + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) die("a frame of a memfd cannot be read (pread)");
    done += static_cast<std::size_t>(got);
  }
}

void FileFrames::release(FrameIndex frame) noexcept {
  const auto offset = static_cast<off_t>(layout_.offset(frame)), bytes = static_cast<off_t>(layout_.chunk_bytes());
  while (::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes) != 0) {
    if (errno != EINTR) die("a frame of a memfd cannot be given back (fallocate)");
  }
}

void FileFrames::show(FrameIndex frame, std::byte* chunk) noexcept {
  const std::size_t bytes = layout_.chunk_bytes();
  const auto offset = static_cast<off_t>(layout_.offset(frame));
  const OrderedByKernel mapping;  // which is no write
  if (::mmap(chunk, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_.get(), offset) == MAP_FAILED) {
    die("mmap of a frame over its chunk failed; too many mappings (vm.max_map_count)");
  }
  ::munlock(chunk, bytes);  // as mlockall(MCL_FUTURE) has it; else its entries could not be cleared
  if (!advise_shared(chunk, bytes)) die("madvise of a chunk failed; too many mappings (vm.max_map_count)");
  if (userfaultfd_.register_write_protect(chunk, bytes) != 0) {
    die("userfaultfd: a chunk cannot be registered again; too many mappings (vm.max_map_count)");
  }
  // Armed before threads are woken: pages touched by a thread that has waited for the chunk are seen, too.
  if (userfaultfd_.write_protect(chunk, bytes) != 0) die("userfaultfd: a chunk cannot be write protected");
  userfaultfd_.wake(chunk, bytes);
  // The alias of a frame that is shown is unused; without its entries the kernel counts the pages once (RssShmem). I/O
  // brings them back when it reaches the frame there.
  ::madvise(parked(frame), bytes, MADV_DONTNEED);
}

void FileFrames::hide(std::byte* chunk) noexcept {
  const std::size_t bytes = layout_.chunk_bytes();
  // Faults that are under way finish before the registration returns; later ones wait. Then the entries go.
  if (userfaultfd_.register_away_and_write_protect(chunk, bytes) != 0) {
    die("userfaultfd: a chunk cannot be registered again; too many mappings (vm.max_map_count)");
  }
  if (clear_entries(chunk, bytes) != 0) die("the page-table entries of a chunk cannot be cleared (MADV_DONTNEED)");
}

}  // namespace vedette
