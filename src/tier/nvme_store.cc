// The nvme tier: slots of a preallocated file without a name. This file opens the file, grows it and finds the words
// for the user; the transfers are an IoQueue's (uring_io.cc, thread_io.cc).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/children.h"
#include "base/fd.h"
#include "base/readable.h"
#include "base/size_limit.h"
#include "tier/io_queue.h"
#include "tier/store.h"

namespace vedette {
namespace {

constexpr Bytes largest_slot = 1_GiB;  // one registered buffer, one system call

// The file's size for `wanted` bytes: at most a quarter more, 16 MiB at least, in fewer and longer extents than growing
// slot by slot.
std::uint64_t size_for(std::uint64_t wanted) noexcept {
  constexpr std::uint64_t least_step = (16_MiB).value, most_step = (256_MiB).value;
  const std::uint64_t step = std::clamp(std::bit_floor(wanted / 4), least_step, most_step);
  return (wanted + step - 1) / step * step;
}

struct StoreFile {
  Fd fd;
  bool direct = false;
};

Error file_error(const std::string& directory, int code) {
  return Error{.cause = code == ENOSPC || code == EDQUOT ? Cause::out_of_memory : Cause::system,
               .message = "opening a store in " + directory + ": " + std::strerror(code) +
                          "; name a directory of a local file system that this user may write",
               .errno_value = code};
}

// O_TMPFILE: no name, gone with the process. File systems without it get a name for an instant.
Fd open_nameless(const std::string& directory, int flags) {
  Fd fd(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600));
  if (fd || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string path = directory + "/vedette-XXXXXX";
  fd = Fd(::mkostemp(path.data(), O_CLOEXEC | flags));
  if (fd) ::unlink(path.c_str());
  return fd;
}

Result<StoreFile> open_file(const std::string& directory, bool direct) {
  if (direct) {
    StoreFile file{open_nameless(directory, O_DIRECT), true};
    if (file.fd) return file;
    if (errno != EINVAL) return file_error(directory, errno);
  }
  // Bytes are on the disk when their write ends: a later failure would go unseen.
  StoreFile file{open_nameless(directory, O_DSYNC), false};
  if (!file.fd) return file_error(directory, errno);
  return file;
}

class NvmeStore final : public OneTierStore {
 public:
  NvmeStore(const NvmeStoreOptions& options, StoreFile file, std::unique_ptr<IoQueue> queue, std::string remark)
      : options_(options), file_(std::move(file)), queue_(std::move(queue)), remark_(std::move(remark)) {
    describe();
  }

  Result<void> reserve(std::uint32_t slots) override;
  void shrink(std::uint32_t slots) noexcept override;
  void register_memory(std::byte* memory, Bytes bytes) override {
    queue_->register_memory(memory, bytes);
    describe();
  }
  void submit(std::span<const StoreRequest> requests) noexcept override;
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override;
  void wake() noexcept override { queue_->wake(); }
  std::uint32_t depth() const noexcept override { return options_.depth; }
  Bytes slot_bytes() const noexcept override { return options_.slot_bytes; }
  std::string_view mechanism() const noexcept override { return mechanism_; }

 private:
  int grow(std::uint64_t bytes) noexcept;
  void describe();
  void notice_cut() noexcept;

  NvmeStoreOptions options_;
  StoreFile file_;
  ClosedInChildren alone_{file_.fd.get()};
  std::unique_ptr<IoQueue> queue_;  // after file_: it borrows the descriptor
  std::string remark_;              // wished for and not there
  std::string mechanism_;
  std::mutex growing_;
  std::atomic<std::uint64_t> reserved_ = 0;  // bytes of the file; changed under growing_
  bool sparse_ = false;                      // the file system cannot preallocate; under growing_

  // The migrator's alone.
  std::uint32_t cuts_ = 0;                    // how often others have cut the file
  std::vector<std::uint32_t> written_after_;  // by slot: cuts_ when it was last written
  std::vector<StoreRequest> sent_;            // of one submit()
  std::vector<StoreCompletion> refused_;      // reads of bytes that are gone
};

void NvmeStore::describe() {
  mechanism_ = queue_->mechanism() + (file_.direct ? ", O_DIRECT" : ", buffered");
  if (options_.direct && !file_.direct) mechanism_ += " (this file system refuses O_DIRECT)";
  for (const std::string& words : {queue_->remark(), remark_}) {
    if (!words.empty()) mechanism_ += ", " + words;
  }
}

// Makes [0, bytes) of the file exist; 0 or an errno. Bytes that a failed attempt took are given back.
int NvmeStore::grow(std::uint64_t bytes) noexcept {
  const auto begin = static_cast<off_t>(reserved_);
  const auto end = static_cast<off_t>(bytes);
  int code = 0;
  const SizeLimitIsAnError limit;
  do {
    code = sparse_ || ::fallocate(file_.fd.get(), 0, begin, end - begin) == 0 ? 0 : errno;
  } while (code == EINTR);
  if (code == EOPNOTSUPP) sparse_ = true;
  if (sparse_) code = ::ftruncate(file_.fd.get(), end) == 0 ? 0 : errno;
  if (code == 0) {
    reserved_ = bytes;
  } else {
    [[maybe_unused]] const int given_back = ::ftruncate(file_.fd.get(), begin);
  }
  return code;
}

// A file that another program has cut reads as its end, and after the next write behind that as zeros, which would be
// numbers. One fstat a submit() (0.3 us) sees it: bytes that were written before are gone, the file gets its length
// back, and later writes lose nothing.
void NvmeStore::notice_cut() noexcept {
  struct stat now {};
  const std::uint64_t wanted = reserved_.load();  // never more than the file has, also while another thread grows it
  if (::fstat(file_.fd.get(), &now) != 0 || static_cast<std::uint64_t>(now.st_size) >= wanted) return;
  ++cuts_;
  const std::lock_guard lock(growing_);
  // a refusal: writes grow it
  [[maybe_unused]] const int grown = ::ftruncate(file_.fd.get(), static_cast<off_t>(reserved_.load()));
}

void NvmeStore::submit(std::span<const StoreRequest> requests) noexcept {
  notice_cut();
  sent_.clear();
  for (const StoreRequest& request : requests) {
    const std::size_t slot = request.slot.value;
    if (slot >= written_after_.size()) written_after_.resize(std::max(slot + 1, written_after_.size() * 2));
    if (request.direction == StoreRequest::Direction::write) written_after_[slot] = cuts_;
    if (written_after_[slot] == cuts_) {
      sent_.push_back(request);
    } else {
      refused_.push_back({.token = request.token, .error = EIO});
    }
  }
  if (!sent_.empty()) queue_->submit(sent_);
}

std::size_t NvmeStore::wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept {
  if (refused_.empty()) return queue_->wait(out, timeout);
  const std::size_t count = std::min(out.size(), refused_.size());
  std::copy_n(refused_.begin(), count, out.begin());
  refused_.erase(refused_.begin(), refused_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

Result<void> NvmeStore::reserve(std::uint32_t slots) {
  const std::lock_guard lock(growing_);
  const std::uint64_t wanted = slots * options_.slot_bytes.value;
  if (wanted <= reserved_) return {};
  const std::uint64_t stepped = size_for(wanted);
  int code = grow(stepped);
  if (code != 0) code = grow(wanted);
  if (code == 0) return {};
  const bool full = code == ENOSPC || code == EDQUOT || code == EFBIG;
  return Error{.cause = full ? Cause::out_of_memory : Cause::system,
               .message = (full ? "disk full: " : std::string(std::strerror(code)) + ": ") + options_.directory +
                          " has no room for " + readable_exactly({wanted}) + " of slow memory (" +
                          readable({reserved_}) + " are there)" +
                          (code == EDQUOT  ? ", the quota is reached"
                           : code == EFBIG ? ", the limit of a file's size is reached (ulimit -f)"
                                           : "") +
                          "; free some or name another directory",
               .errno_value = code};
}

void NvmeStore::shrink(std::uint32_t slots) noexcept {
  const std::lock_guard lock(growing_);
  const std::uint64_t wanted = slots * options_.slot_bytes.value;
  const std::uint64_t stepped = size_for(wanted);
  if (stepped >= reserved_) return;
  reserved_ = stepped;  // before the file is cut, which notice_cut() would else take for another program's doing
  [[maybe_unused]] const int cut = ::ftruncate(file_.fd.get(), static_cast<off_t>(stepped));
}

Result<std::unique_ptr<IoQueue>> open_queue(const NvmeStoreOptions& options, int file, std::string& remark) {
  const IoQueueOptions queue{.file = file,
                             .slot_bytes = options.slot_bytes,
                             .depth = options.depth,
                             .register_buffers = options.mechanism != IoMechanism::uring};
  if (options.mechanism == IoMechanism::threads) return open_thread_queue(queue);
  auto ring = open_uring_queue(queue);
  if (ring || options.mechanism != IoMechanism::best) return ring;
  remark = "because of " + ring.error().message;
  return open_thread_queue(queue);
}

}  // namespace

Result<std::unique_ptr<Store>> open_nvme_store(const NvmeStoreOptions& options) {
  const std::uint64_t slot = options.slot_bytes.value;
  if (slot == 0 || slot % io_alignment != 0 || slot > largest_slot.value) {
    return Error{.cause = Cause::malformed_input,
                 .message = "a slot of " + readable_exactly({slot}) + ": want a multiple of 4096 bytes, at most 1 GiB"};
  }
  if (options.depth == 0 || options.depth > 4096) {
    return Error{.cause = Cause::malformed_input,
                 .message = "a store depth of " + std::to_string(options.depth) + ": want 1 to 4096"};
  }
  auto file = open_file(options.directory, options.direct);
  if (!file) return file.error();
  std::string remark;
  auto queue = open_queue(options, file->fd.get(), remark);
  if (!queue) return queue.error();
  return std::unique_ptr<Store>(
      std::make_unique<NvmeStore>(options, std::move(*file), std::move(*queue), std::move(remark)));
}

}  // namespace vedette
