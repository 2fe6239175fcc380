// Sees accesses as minor faults of userfaultfd: the bytes stay in the file, the page-table entries of armed pages are
// cleared, and who touches a page is told before it goes on. A page that is read is mapped write-protected, so that its
// first write is told as well.
//
//   armed (no entry) --read--> mapped, protected --write--> mapped, open
//          ^--------------------- collect ----------------------'
//
// Faults come as messages to a thread, which keeps their order and serves system calls where userfaultfd is privileged.
// Or they come as SIGBUS to the thread that faults, in half the time of a message; then system calls fail with EFAULT.
// Facts and costs: two to ten times the zap tracker's, whose place this is on kernels from 6.4 to 6.6.
//
// What always holds: the state of a page changes before its entry, so a fault that meets another on the same page finds
// the page served or serves it again; both do no harm. Nothing is served while arm, collect or disarm changes entries
// (turnstile.h): the answer to an old fault would map a page where there may be another frame's by now. arm, collect
// and disarm are called from one thread at a time.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/assert.h"
#include "base/fd.h"
#include "os/parking.h"
#include "os/served_tracker.h"
#include "os/uapi.h"

namespace vedette {
namespace {

// untouched pages between touched ones that one call clears as well: cheaper than two calls
constexpr std::size_t zap_gap_pages = 96;

class MinorTracker final : public ServedTracker {
 public:
  MinorTracker(Userfaultfd userfaultfd, PageStates states) : ServedTracker(std::move(userfaultfd), std::move(states)) {}
  ~MinorTracker() override;

  Result<void> arm(std::span<const AddressRange> ranges) override;
  Result<void> collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>& touched) override;
  Result<void> disarm(std::span<const AddressRange> ranges) override;
  std::string_view mechanism() const noexcept override {
    return by_signals() ? "userfaultfd minor faults, SIGBUS" : "userfaultfd minor faults, messages to a thread";
  }

 private:
  bool answer(std::byte* page, State state, bool write) noexcept override;
  static void zap(const AddressRange& range);
};

// --- faults
// ------------------------------------------------------------------------------------------------------------

bool MinorTracker::answer(std::byte* begin, State, bool write) noexcept {
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(begin) / page_size;
  states_.add(page, write ? written : read_seen);
  const bool protect = !write && (states_.load(page) & written) == 0;
  const int error = userfaultfd_.map_present(begin, page_size, protect);
  if (error == EEXIST && write) return userfaultfd_.write_unprotect(begin, page_size) == 0;
  if (error == EEXIST) userfaultfd_.wake(begin, page_size);
  return error == 0 || error == EEXIST;
}

MinorTracker::~MinorTracker() {
  states_.for_runs(armed, [this](const AddressRange& run) { userfaultfd_.unregister(run.begin, run.bytes); });
  stop();
}

// --- ranges
// ------------------------------------------------------------------------------------------------------------

void MinorTracker::zap(const AddressRange& range) {
  if (::madvise(range.begin, range.bytes, MADV_DONTNEED) != 0)
    die("the page-table entries of tracked memory cannot be cleared (MADV_DONTNEED)");
}

Result<void> MinorTracker::arm(std::span<const AddressRange> ranges) {
  join_ranges(ranges, joined_);
  for (const AddressRange& range : joined_) {
    if (auto known = states_.name(range); !known) return known;
    const auto pages = PageStates::pages_of(range);
    for (std::uintptr_t page = pages.begin; page < pages.end; ++page) states_.add(page, named);
    // A page without memory in the file would be a missing fault, which nobody is told.
    if ((states_.load(pages.begin) & armed) == 0) {
      if (const int error = populate(range.begin, range.bytes); error != 0)
        return system_error("filling tracked memory", error, "");
    }
    const Closed closed(turnstile_);
    if (const int error = userfaultfd_.register_minor_and_write_protect(range.begin, range.bytes); error != 0) {
      return system_error("registering tracked memory for minor faults", error,
                          "it must be shared memory of nobody else's userfaultfd");
    }
    for (std::uintptr_t page = pages.begin; page < pages.end; ++page) states_.exchange(page, named | armed);
    zap(range);
  }
  return {};
}

Result<void> MinorTracker::collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>& touched) {
  join_ranges(ranges, joined_);
  const std::size_t first = touched.size();
  const Closed closed(turnstile_);
  for (const AddressRange& range : joined_) {
    const auto pages = PageStates::pages_of(range);
    Span<std::uintptr_t> clearing{0, 0};
    for (std::uintptr_t page = pages.begin; page < pages.end; ++page) {
      const State state = states_.load(page);
      VEDETTE_ASSERT((state & armed) != 0);
      if ((state & (read_seen | written)) == 0) continue;
      states_.exchange(page, named | armed);
      append_touched(touched, first,
                     {.pages = {PageStates::address_of(page), page_size},
                      .read = (state & read_seen) != 0,
                      .written = (state & written) != 0});
      if (clearing.end > 0 && page - clearing.end > zap_gap_pages) {
        zap({PageStates::address_of(clearing.begin), (clearing.end - clearing.begin) * page_size});
        clearing.end = 0;
      }
      clearing = {clearing.end == 0 ? page : clearing.begin, page + 1};
    }
    if (clearing.end > 0) zap({PageStates::address_of(clearing.begin), (clearing.end - clearing.begin) * page_size});
  }
  return {};
}

Result<void> MinorTracker::disarm(std::span<const AddressRange> ranges) {
  join_ranges(ranges, joined_);
  const Closed closed(turnstile_);
  for (const AddressRange& range : joined_) {
    const auto pages = PageStates::pages_of(range);
    for (std::uintptr_t page = pages.begin; page < pages.end; ++page) states_.exchange(page, named);
    if (const int error = userfaultfd_.unregister(range.begin, range.bytes); error != 0)
      return system_error("unregistering tracked memory", error, "");
  }
  return {};
}

// One page is read and then written, by system calls only where those are served; the tracker must tell both.
Result<void> behaves(MinorTracker& tracker) {
  const auto wrong = [](const char* what) {
    return Error{
        .cause = Cause::unavailable, .message = std::string("userfaultfd minor faults: ") + what, .errno_value = 0};
  };
  const Fd file{::memfd_create("vedette-probe", MFD_CLOEXEC)};
  if (!file || ::ftruncate(file.get(), 4 * page_size) != 0) return wrong("no shared memory to try them");
  auto memory = Mapping::reserve({4 * page_size}, {page_size});
  if (!memory) return memory.error();
  std::byte* const begin = memory->data();
  if (::mmap(begin, 4 * page_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED)
    return wrong("no memory");
  begin[page_size] = std::byte{42};
  const AddressRange all[] = {{begin, 4 * page_size}};
  if (auto started = tracker.arm(all); !started) return started;
  const std::byte there = *static_cast<volatile std::byte*>(begin + page_size);
  *static_cast<volatile std::byte*>(begin + page_size) = std::byte{43};
  static_cast<void>(*static_cast<volatile std::byte*>(begin + 3 * page_size));
  std::vector<TouchedRange> touched;
  if (auto collected = tracker.collect(all, touched); !collected) return collected;
  const bool right = there == std::byte{42} && touched.size() == 2 && touched[0].pages.begin == begin + page_size &&
                     touched[0].written && touched[1].pages.begin == begin + 3 * page_size && !touched[1].written;
  if (auto ended = tracker.disarm(all); !ended) return ended;
  if (!right) return wrong("other pages were told than were touched");
  return {};
}

}  // namespace

Result<std::unique_ptr<PageTracker>> open_minor_tracker(bool signals) {
  const std::uint64_t needed = uapi::feature_minor_shmem | uapi::feature_wp_hugetlbfs_shmem |
                               uapi::feature_wp_unpopulated | uapi::feature_pagefault_flag_wp |
                               (signals ? uapi::feature_sigbus : 0);
  auto userfaultfd = Userfaultfd::open(needed);
  if (!userfaultfd) return userfaultfd.error();
  auto states = PageStates::create();
  if (!states) return states.error();
  auto tracker = std::make_unique<MinorTracker>(std::move(*userfaultfd), std::move(*states));
  if (auto started = tracker->start(signals); !started) return started.error();
  if (auto right = behaves(*tracker); !right) return right.error();
  return std::unique_ptr<PageTracker>(std::move(tracker));
}

}  // namespace vedette
