// Sees accesses by means of every Linux: armed pages are PROT_NONE, the first access of each ends in SIGSEGV, the
// handler notes it and opens the page. Works in every container and for any private or shared memory whose protection
// is otherwise read-write; system calls into armed pages fail with EFAULT (or stop short), which is why zap comes
// first.
//
//   armed (PROT_NONE) --read--> read seen (PROT_READ) --write--> written (PROT_READ | PROT_WRITE)
//          ^------------------------- collect -------------------------------'
//   A first access that writes goes straight to written: `read` says that a read came before the first write.
//
// Invariant: the state of a page is one byte, changed by fetch_or in the handler and by exchange in collect. The
// protection follows the state, so two threads that fault on one page at once open it twice and lose nothing. If
// the older of two mprotect calls lands last, the page is less open than its state says, and faults once more. The
// handler allocates nothing, and does not run while arm, collect or disarm changes protections (turnstile.h): it would
// open a page that is armed again, or away.
//
// Every opened run that lies alone splits its mapping in three, and a process may have only vm.max_map_count of them
// (ENOMEM after 32,743 alternate pages). The tracker counts its splits and, as they near the limit, opens and reports
// larger runs: 64 KiB, 2 MiB, at last 1 GiB. mechanism() says so from then on.
//
// arm, collect and disarm are called from one thread at a time.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/mapping.h"
#include "os/address_ranges.h"
#include "os/page_states.h"
#include "os/signals.h"
#include "os/turnstile.h"

namespace vedette {
namespace {

using State = PageStates::State;
constexpr State known = 1, armed = 2, read_seen = 4, written = 8;

// How far the splits have used up the limit, and the run that is opened from there on.
struct Width {
  unsigned eighths;
  unsigned page_shift;
  std::string_view mechanism;
};
constexpr std::array<Width, 4> widths = {{
    {0, 0, "mprotect + SIGSEGV, single pages"},
    {4, 4, "mprotect + SIGSEGV, single pages, then runs of 64 KiB (too many mappings: raise vm.max_map_count)"},
    {6, 9, "mprotect + SIGSEGV, single pages, then runs of 2 MiB (too many mappings: raise vm.max_map_count)"},
    {7, 18, "mprotect + SIGSEGV, single pages, then runs of 1 GiB (too many mappings: raise vm.max_map_count)"},
}};

bool touched_in(State state) noexcept { return (state & (read_seen | written)) != 0; }

class MprotectTracker final : public PageTracker {
 public:
  MprotectTracker(PageStates states, std::int64_t split_limit)
      : states_(std::move(states)), split_limit_(split_limit) {}
  ~MprotectTracker() override;

  Result<void> arm(std::span<const AddressRange> ranges) override;
  Result<void> collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>& touched) override;
  Result<void> disarm(std::span<const AddressRange> ranges) override;
  bool sees_system_calls() const noexcept override { return false; }
  std::string_view mechanism() const noexcept override {
    return widths[widest_.load(std::memory_order_relaxed)].mechanism;
  }

  SegvAnswer faulted(std::byte* at, bool write) noexcept;
  Result<void> claim_faults();

 private:
  State load(std::uintptr_t page) const noexcept { return states_.load(page); }
  int protection(State state) const noexcept {
    if ((state & armed) == 0 || (state & written) != 0) return PROT_READ | PROT_WRITE;
    return (state & read_seen) != 0 ? PROT_READ : PROT_NONE;
  }
  Result<void> protect(const AddressRange& range, int wanted);
  Result<void> change(const AddressRange& range, State next);
  std::int64_t boundaries(Span<std::uintptr_t> pages) const noexcept;
  std::size_t width() const noexcept;
  Span<std::uintptr_t> run_around(std::uintptr_t page, unsigned page_shift) const noexcept;
  bool open(Span<std::uintptr_t> run, bool write) noexcept;

  PageStates states_;
  Turnstile turnstile_;
  std::vector<AddressRange> joined_;
  std::int64_t split_limit_;
  std::atomic<std::int64_t> splits_{0};  // places inside tracked memory where the protection changes
  std::atomic<std::size_t> widest_{0};   // into widths
  std::optional<SegvClaim> claim_;
};

Span<std::uintptr_t> pages_of(const AddressRange& range) { return PageStates::pages_of(range); }
std::byte* address_of(std::uintptr_t page) { return PageStates::address_of(page); }

MprotectTracker::~MprotectTracker() {
  states_.for_runs(armed, [this](const AddressRange& run) { static_cast<void>(protect(run, PROT_READ | PROT_WRITE)); });
  claim_.reset();
}

// Where the protection changes between neighbours, from the page before `pages` to the page after.
std::int64_t MprotectTracker::boundaries(Span<std::uintptr_t> pages) const noexcept {
  std::int64_t count = 0;
  int before = protection(load(pages.begin - 1));
  for (std::uintptr_t page = pages.begin; page <= pages.end; ++page) {
    const int here = protection(load(page));
    count += here != before ? 1 : 0;
    before = here;
  }
  return count;
}

Result<void> MprotectTracker::protect(const AddressRange& range, int wanted) {
  if (::mprotect(range.begin, range.bytes, wanted) == 0) return {};
  const int error = errno;
  return Error{.cause = Cause::system,
               .message = std::string("mprotect of tracked memory: ") + std::strerror(error) +
                          (error == ENOMEM ? "; raise vm.max_map_count" : ""),
               .errno_value = error};
}

// Closing sets the states first, so that a fault that comes in between is told at the next collect; opening sets them
// last, so that one that comes in between still finds its page tracked.
Result<void> MprotectTracker::change(const AddressRange& range, State next) {
  if (auto named = states_.name(range); !named) return named;
  const auto pages = pages_of(range);
  const std::int64_t before = boundaries(pages);
  const auto set_states = [&] {
    for (std::uintptr_t page = pages.begin; page < pages.end; ++page) states_.exchange(page, next);
  };
  const Closed nobody_serves(turnstile_);
  if ((next & armed) != 0) set_states();
  const int wanted = (next & armed) != 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
  if (auto changed = protect(range, wanted); !changed) return changed;
  if ((next & armed) == 0) set_states();
  splits_.fetch_add(boundaries(pages) - before, std::memory_order_relaxed);
  return {};
}

Result<void> MprotectTracker::arm(std::span<const AddressRange> ranges) {
  join_ranges(ranges, joined_);
  for (const AddressRange& range : joined_) {
    if (auto closed = change(range, known | armed); !closed) return closed;
  }
  return {};
}

Result<void> MprotectTracker::collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>& touched) {
  join_ranges(ranges, joined_);
  const std::size_t first = touched.size();
  const Closed nobody_serves(turnstile_);
  for (const AddressRange& range : joined_) {
    const auto pages = pages_of(range);
    Span<std::uintptr_t> closing{pages.end, pages.end};
    std::int64_t boundaries_before = 0;
    int left = protection(load(pages.begin - 1));
    for (std::uintptr_t page = pages.begin; page < pages.end; ++page) {
      State state = load(page);
      VEDETTE_ASSERT((state & armed) != 0);
      boundaries_before += protection(state) != left ? 1 : 0;
      left = protection(state);
      if (!touched_in(state)) continue;
      // The state goes first, the protection follows: a fault in between is told at the next collect.
      state = states_.exchange(page, known | armed);
      append_touched(touched, first,
                     {.pages = {address_of(page), page_size},
                      .read = (state & read_seen) != 0,
                      .written = (state & written) != 0});
      closing = {std::min(closing.begin, page), page + 1};
    }
    // One call closes everything between the first and the last touched page: those in between are closed already or
    // close now.
    if (closing.begin == pages.end) continue;
    boundaries_before += protection(load(pages.end)) != left ? 1 : 0;
    const AddressRange between{address_of(closing.begin), (closing.end - closing.begin) * page_size};
    if (auto closed = protect(between, PROT_NONE); !closed) return closed;
    splits_.fetch_add(boundaries({pages.begin, pages.begin}) + boundaries({pages.end, pages.end}) - boundaries_before,
                      std::memory_order_relaxed);
  }
  return {};
}

Result<void> MprotectTracker::disarm(std::span<const AddressRange> ranges) {
  join_ranges(ranges, joined_);
  for (const AddressRange& range : joined_) {
    if (auto opened = change(range, known); !opened) return opened;
  }
  return {};
}

std::size_t MprotectTracker::width() const noexcept {
  const std::int64_t eighths = splits_.load(std::memory_order_relaxed) * 8 / split_limit_;
  std::size_t width = 0;
  while (width + 1 < widths.size() && eighths >= widths[width + 1].eighths) ++width;
  return width;
}

// The armed pages around `page` without a gap, inside the aligned run of 2^page_shift pages that holds it.
Span<std::uintptr_t> MprotectTracker::run_around(std::uintptr_t page, unsigned page_shift) const noexcept {
  const std::uintptr_t begin = page >> page_shift << page_shift;
  Span<std::uintptr_t> run{page, page + 1};
  while (run.begin > begin && (load(run.begin - 1) & armed) != 0) --run.begin;
  while (run.end < begin + (std::uintptr_t{1} << page_shift) && (load(run.end) & armed) != 0) ++run.end;
  return run;
}

bool MprotectTracker::open(Span<std::uintptr_t> run, bool write) noexcept {
  const std::int64_t before = boundaries(run);
  State all = 0;
  for (std::uintptr_t page = run.begin; page < run.end; ++page) {
    const State seen = write ? written : read_seen;
    all |= static_cast<State>(states_.add(page, seen) | seen);
  }
  // A single page that another thread has just written stays writable. In a longer run written pages may close for
  // writing and fault once more, which costs time and no truth.
  const bool writable = write || (run.end - run.begin == 1 && (all & written) != 0);
  const int wanted = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  const std::size_t bytes = (run.end - run.begin) * page_size;
  if (::mprotect(address_of(run.begin), bytes, wanted) != 0) return false;
  splits_.fetch_add(boundaries(run) - before, std::memory_order_relaxed);
  return true;
}

SegvAnswer MprotectTracker::faulted(std::byte* at, bool write) noexcept {
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(at) / page_size;
  if ((load(page) & known) == 0) return SegvAnswer::pass;
  const Serving serving(turnstile_);
  const State state = load(page);
  if ((state & armed) == 0) return (state & known) != 0 ? SegvAnswer::stale : SegvAnswer::pass;
  for (std::size_t wide = width(); wide < widths.size(); ++wide) {
    if (wide > widest_.load(std::memory_order_relaxed)) widest_.store(wide, std::memory_order_relaxed);
    if (open(run_around(page, widths[wide].page_shift), write)) return SegvAnswer::retry;
  }
  return SegvAnswer::pass;  // not even one mprotect over everything: nothing of ours can help
}

// One claim over all addresses, because the states tell in two loads which pages are ours.
Result<void> MprotectTracker::claim_faults() {
  auto claim = SegvClaim::make(
      SegvOrder::tracker, reinterpret_cast<std::byte*>(page_size),
      (std::size_t{1} << PageStates::address_bits) - page_size,
      [](void* self, std::byte* at, bool write) noexcept {
        return static_cast<MprotectTracker*>(self)->faulted(at, write);
      },
      this);
  if (!claim) return claim.error();
  claim_.emplace(std::move(claim).value());
  return {};
}

// The mappings that a process may have, less those that everybody else in it may need.
std::int64_t default_split_limit() {
  long limit = 65530;
  if (std::FILE* const file = std::fopen("/proc/sys/vm/max_map_count", "re")) {
    if (std::fscanf(file, "%ld", &limit) != 1) limit = 65530;
    std::fclose(file);
  }
  return std::max(limit - 16384, limit / 2);
}

}  // namespace

Result<std::unique_ptr<PageTracker>> open_mprotect_tracker(std::uint32_t split_limit) {
  auto states = PageStates::create();
  if (!states) return states.error();
  auto tracker = std::make_unique<MprotectTracker>(std::move(states).value(),
                                                   split_limit > 0 ? std::int64_t{split_limit} : default_split_limit());
  if (auto claimed = tracker->claim_faults(); !claimed) return claimed.error();
  return std::unique_ptr<PageTracker>(std::move(tracker));
}

}  // namespace vedette
