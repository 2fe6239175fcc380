// Sees accesses without a single handler ("zap"). Arming clears the page-table entries of shared memfd pages; the bytes
// stay in the page cache and the kernel puts an entry back at the first access, as for any minor fault. PAGEMAP_SCAN
// then tells which entries are back (PRESENT: touched) and which have lost their write protection (WRITTEN: written).
//
//   arm       protect every page, then clear the entries: a write-protection marker per page stays behind
//   access    a read brings back a protected entry; a write removes the protection (asynchronously, without a message)
//   collect   1. scan: entries that are PRESENT, protecting them again in the same call   2. clear those entries
//
// What always holds: WRITTEN counts only where PRESENT, and only after arm(): an entry that was never protected reports
// written from birth. So memory that was mapped anew (MAP_FIXED, mremap) must be armed anew. The owner of the memory
// registers it with userfaultfd. This lets the kernel drop protection by itself (WP_ASYNC), and it switches off
// fault-around, which would bring back sixteen entries for one read. The protection is set through PAGEMAP_SCAN, so the
// tracker needs no userfaultfd of its own and works with any owner's.
//
// arm, collect and disarm are called from one thread at a time.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/fd.h"
#include "os/address_ranges.h"
#include "os/parking.h"
#include "os/tracked_memory.h"
#include "os/uapi.h"

namespace vedette {
namespace {

constexpr std::size_t regions_per_scan = 2048;  // 48 KiB; the kernel fills 512 at a time
// A system call that clears one entry costs as much as walking past 110 empty ones (1.1 us against 10 ns each), so
// touched pages nearer than this are cleared in one call.
const std::size_t zap_gap_bytes = 96 * page_size;
constexpr int madvise_populate_write = 23;  // Linux 5.14

std::uint64_t address(const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); }

Error failed(const char* what) {
  const int error = errno;
  return {.cause = error == EPERM ? Cause::unsupported : Cause::system,
          .message = std::string(what) + ": " + std::strerror(error) +
                     (error == EPERM ? "; tracked memory must be registered with a userfaultfd that has WP_ASYNC" : ""),
          .errno_value = error};
}

class ZapTracker final : public PageTracker {
 public:
  explicit ZapTracker(Fd pagemap) : pagemap_(std::move(pagemap)), regions_(regions_per_scan) {}

  Result<void> arm(std::span<const AddressRange> ranges) override;
  Result<void> collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>& touched) override;
  Result<void> disarm(std::span<const AddressRange> ranges) override;
  bool sees_system_calls() const noexcept override { return true; }
  std::string_view mechanism() const noexcept override {
    return "zap: page tables cleared between ticks, PAGEMAP_SCAN";
  }

 private:
  Result<void> collect_one(const AddressRange& range, std::size_t first, std::vector<TouchedRange>& touched);
  Result<void> zap(const AddressRange& range);

  Fd pagemap_;
  std::vector<AddressRange> joined_;
  std::vector<uapi::PageRegion> regions_;
};

Result<void> ZapTracker::arm(std::span<const AddressRange> ranges) {
  join_ranges(ranges, joined_);
  for (const AddressRange& range : joined_) {
    // Protecting comes first because it refuses memory that is not registered, which clearing might destroy.
    uapi::PagemapScanArguments scan{};
    scan.size = sizeof scan;
    scan.flags = uapi::scan_wp_matching | uapi::scan_check_wpasync;
    scan.start = address(range.begin);
    scan.end = address(end_of(range));
    if (::ioctl(pagemap_.get(), uapi::pagemap_scan, &scan) < 0) return failed("arming pages (PAGEMAP_SCAN)");
    if (auto zapped = zap(range); !zapped) return zapped;
  }
  return {};
}

Result<void> ZapTracker::collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>& touched) {
  join_ranges(ranges, joined_);
  const std::size_t first = touched.size();
  for (const AddressRange& range : joined_) {
    if (auto collected = collect_one(range, first, touched); !collected) return collected;
  }
  return {};
}

Result<void> ZapTracker::collect_one(const AddressRange& range, std::size_t first, std::vector<TouchedRange>& touched) {
  uapi::PagemapScanArguments scan{};
  scan.size = sizeof scan;
  scan.flags = uapi::scan_wp_matching | uapi::scan_check_wpasync;
  scan.start = address(range.begin);
  scan.end = address(end_of(range));
  scan.vec = reinterpret_cast<std::uintptr_t>(regions_.data());
  scan.vec_len = regions_.size();
  scan.category_mask = uapi::page_is_present;
  scan.return_mask = uapi::page_is_present | uapi::page_is_written;
  while (scan.start < scan.end) {
    const int found = ::ioctl(pagemap_.get(), uapi::pagemap_scan, &scan);
    if (found < 0) return failed("reading which pages were touched (PAGEMAP_SCAN)");
    const std::span regions(regions_.data(), static_cast<std::size_t>(found));
    AddressRange clear{range.begin, 0};
    for (const uapi::PageRegion& region : regions) {
      const AddressRange pages{range.begin + (region.start - address(range.begin)), region.end - region.start};
      const bool written = (region.categories & uapi::page_is_written) != 0;
      append_touched(touched, first, {.pages = pages, .read = true, .written = written});
      if (clear.bytes > 0 && pages.begin - end_of(clear) > static_cast<std::ptrdiff_t>(zap_gap_bytes)) {
        if (auto zapped = zap(clear); !zapped) return zapped;
        clear.bytes = 0;
      }
      if (clear.bytes == 0) clear.begin = pages.begin;
      clear.bytes = static_cast<std::size_t>(end_of(pages) - clear.begin);
    }
    if (clear.bytes > 0) {
      if (auto zapped = zap(clear); !zapped) return zapped;
    }
    if (regions.size() < regions_.size()) break;
    // Not from walk_end: Linux 6.18 leaves it behind the last region after more than 512 of them (measured), which
    // would tell pages twice.
    scan.start = regions.back().end;
  }
  return {};
}

Result<void> ZapTracker::zap(const AddressRange& range) {
  if (clear_entries(range.begin, range.bytes) == 0) return {};
  return failed("clearing page-table entries (MADV_DONTNEED)");
}

// Writing faults through MADV_POPULATE_WRITE bring every entry back without protection, all in one system call.
Result<void> ZapTracker::disarm(std::span<const AddressRange> ranges) {
  join_ranges(ranges, joined_);
  for (const AddressRange& range : joined_) {
    if (::madvise(range.begin, range.bytes, madvise_populate_write) != 0)
      return failed("disarming (MADV_POPULATE_WRITE)");
  }
  return {};
}

// Trusts nothing but behaviour: one page read, one written, one left alone, then the written one read.
Result<void> behaves(PageTracker& tracker) {
  auto memory = TrackedMemory::create({4 * page_size});
  if (!memory) return memory.error();
  auto* const bytes = reinterpret_cast<volatile unsigned char*>(memory->data());
  const AddressRange all[] = {memory->range()};
  std::vector<TouchedRange> first, second;
  if (auto armed = tracker.arm(all); !armed) return armed;
  [[maybe_unused]] unsigned char read = bytes[page_size];
  bytes[3 * page_size] = 1;
  if (auto collected = tracker.collect(all, first); !collected) return collected;
  read = bytes[3 * page_size];
  if (auto collected = tracker.collect(all, second); !collected) return collected;
  const bool right = first.size() == 2 && first[0].pages == AddressRange{memory->data() + page_size, page_size} &&
                     !first[0].written && first[1].pages == AddressRange{memory->data() + 3 * page_size, page_size} &&
                     first[1].written && second.size() == 1 && second[0].pages == first[1].pages && !second[0].written;
  if (right) return {};
  return Error{
      .cause = Cause::unavailable,
      .message = "PAGEMAP_SCAN told other pages than those touched; this kernel cannot be trusted with zap tracking"};
}

}  // namespace

Result<std::unique_ptr<PageTracker>> open_zap_tracker() {
  Fd pagemap{::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)};
  if (!pagemap) {
    return Error{
        .cause = Cause::unavailable,
        .message = std::string("/proc/self/pagemap: ") + std::strerror(errno) +
                   (errno == EACCES ? "; a process that has changed its user must be dumpable (PR_SET_DUMPABLE)"
                                    : "; mount /proc"),
        .errno_value = errno};
  }
  auto tracker = std::make_unique<ZapTracker>(std::move(pagemap));
  if (auto right = behaves(*tracker); !right) return right.error();
  return std::unique_ptr<PageTracker>(std::move(tracker));
}

}  // namespace vedette
