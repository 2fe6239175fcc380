// The pages that the program touched since the last collect(), reads and writes apart. One interface, several trackers.
//
// Between arm() and collect() any thread and (zap) any system call may read and write the tracked memory. An access
// during arm() or collect() may be reported one tick later.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/architecture.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette {

struct AddressRange {  // whole pages
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  bool operator==(const AddressRange&) const = default;
};

struct TouchedRange {
  AddressRange pages;
  // `written` is exact, and so is `read` where written is false. Of a written page no tracker sees every read: zap
  // reports read = true for it always, the others only when a read came before the first write. An instruction that
  // does both is a write on some processors. So a profile asks only `written` of such a page.
  bool read = false, written = false;
  bool operator==(const TouchedRange&) const = default;
};

class PageTracker {
 public:
  virtual ~PageTracker() = default;
  // Forgets earlier accesses of these ranges; from now on accesses are seen. Ranges are mapped as the tracker needs.
  // Memory that is mapped anew after arm() (a chunk that was hidden and shown again) must be armed again, else zap
  // reports its reads as writes. Accesses before it was hidden are reported only if collect() came first.
  virtual Result<void> arm(std::span<const AddressRange> ranges) = 0;
  // Appends the pages of `ranges` touched since they were armed, in order of address, merged; and arms those pages
  // again.
  virtual Result<void> collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>& touched) = 0;
  // No more tracking of these ranges: all pages accessible at full speed. Touches every page, so none may be away.
  virtual Result<void> disarm(std::span<const AddressRange> ranges) = 0;

  virtual bool sees_system_calls() const noexcept = 0;
  // False: a page that was armed may come back as another piece of physical memory with the same bytes, so nothing may
  // have it registered or be in the middle of a transfer into it.
  virtual bool keeps_frames() const noexcept { return true; }
  virtual std::string_view mechanism() const noexcept = 0;
};

// zap: memfd pages mapped shared (ChunkMemory of open_file_memory, or any such mapping); page tables are cleared
// between ticks, the kernel refills them with no handler, PAGEMAP_SCAN tells refilled and written entries. Linux >=
// 6.7.
Result<std::unique_ptr<PageTracker>> open_zap_tracker();
// mprotect(PROT_NONE) + SIGSEGV, chaining to handlers installed before: any memory, any kernel, no privileges; system
// calls into armed memory fail with EFAULT. Beyond `split_limit` mappings (0: as many as vm.max_map_count allows) pages
// are reported in larger runs, and mechanism() says so.
Result<std::unique_ptr<PageTracker>> open_mprotect_tracker(std::uint32_t split_limit = 0);
// Missing pages of userfaultfd, told to a thread: private anonymous memory that no other userfaultfd has registered,
// whose bytes wait at other addresses until they are touched. System calls are seen where userfaultfd is privileged,
// and fail with EFAULT elsewhere. Linux >= 5.7.
Result<std::unique_ptr<PageTracker>> open_missing_tracker();

}  // namespace vedette
