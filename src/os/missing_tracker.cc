// Sees accesses as missing pages of userfaultfd: the bytes of armed pages wait in a shadow, the pages themselves are
// taken away, and an access is noted before its page gets the bytes back. A page that is read comes back
// write-protected, so that its first write is noted as well.
//
//   armed (missing, bytes in the shadow) --read--> there, protected --write--> there, open
//          ^-------------------------------- collect --------------------------------'
//
// For private anonymous memory, where neither zap nor minor faults reach, on any kernel with userfaultfd from 5.7 on.
// Faults come as messages to a thread, which serves system calls too where userfaultfd is privileged.
//
// A page is taken away in three steps, 1. protect 2. copy to the shadow 3. drop, and no fault is served meanwhile
// (turnstile.h): a thread that writes in between waits, and gets the copied bytes back. So no byte is lost by any
// access at any time. But the page that comes back is another piece of physical memory, so transfers that the program
// has in flight into armed memory (O_DIRECT, DMA) are lost: keeps_frames() is false.
//
// No other code may discard armed memory (madvise): its bytes would be gone, and arming would wait for a page that is
// missing.
//
// Invariant, outside of the turnstile: an armed page is missing exactly while its state is neither read nor written,
// and only then are its bytes in the shadow. The shadow is given back page by page as they return. Both together take
// no more memory than was tracked, and while arming at most `take_at_once` more.
//
// arm, collect and disarm are called from one thread at a time.
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/assert.h"
#include "os/kernel_order.h"
#include "os/page_states.h"
#include "os/page_tracker.h"
#include "os/parking.h"
#include "os/turnstile.h"
#include "os/uapi.h"
#include "os/uffd.h"

namespace vedette {
namespace {

constexpr std::size_t take_at_once = std::size_t{2} << 20;

// Where the bytes of missing pages wait: for each gigabyte of which a page was named, as many addresses, filled where
// they are needed.
class Shadow {
 public:
  static Result<Shadow> create() {
    auto table = Mapping::reserve({block_count * sizeof(std::byte*)}, {page_size});
    if (!table) return table.error();
    return Shadow(std::move(table).value());
  }
  Result<void> name(const AddressRange& range) {
    const std::uintptr_t begin = number(range.begin), end = number(end_of(range) - 1);
    for (std::uintptr_t block = begin; block <= end; ++block) {
      if (entry(block).load(std::memory_order_relaxed) != nullptr) continue;
      auto mapping = Mapping::reserve({block_bytes}, {page_size});
      if (!mapping) return mapping.error();
      // Small pages, which can be given back one by one; nothing for a child, which has no arena either.
      ::madvise(mapping->data(), block_bytes, MADV_NOHUGEPAGE);
      ::madvise(mapping->data(), block_bytes, MADV_DONTFORK);
      entry(block).store(mapping->data(), std::memory_order_release);  // pairs with the acquire in of()
      blocks_.push_back(std::move(mapping).value());
    }
    return {};
  }
  // Of named pages. A run may cross into the next gigabyte: pieces_of() cuts there.
  std::byte* of(const std::byte* page) const noexcept {
    return entry(number(page)).load(std::memory_order_acquire) + reinterpret_cast<std::uintptr_t>(page) % block_bytes;
  }
  // Calls `with(AddressRange)` for pieces of at most take_at_once, each in one block; stops at the first error and
  // returns it.
  template <class With>
  static int for_pieces(const AddressRange& range, With with) {
    for (std::size_t done = 0; done < range.bytes;) {
      std::byte* const begin = range.begin + done;
      const std::size_t bytes =
          std::min(range.bytes - done, take_at_once - reinterpret_cast<std::uintptr_t>(begin) % take_at_once);
      if (const int error = with(AddressRange{begin, bytes}); error != 0) return error;
      done += bytes;
    }
    return 0;
  }

 private:
  static constexpr std::size_t block_bytes = std::size_t{1} << PageStates::block_bits;
  static constexpr std::size_t block_count = std::size_t{1} << (PageStates::address_bits - PageStates::block_bits);

  explicit Shadow(Mapping table) : table_(std::move(table)) {}
  static std::uintptr_t number(const std::byte* page) noexcept {
    return reinterpret_cast<std::uintptr_t>(page) / block_bytes;
  }
  std::atomic_ref<std::byte*> entry(std::uintptr_t block) const noexcept {
    return std::atomic_ref<std::byte*>(reinterpret_cast<std::byte**>(table_.data())[block]);
  }

  Mapping table_;
  std::vector<Mapping> blocks_;
};

class MissingTracker final : public PageTracker {
 public:
  MissingTracker(Userfaultfd userfaultfd, PageStates states, Shadow shadow)
      : userfaultfd_(std::move(userfaultfd)),
        states_(std::move(states)),
        shadow_(std::move(shadow)),
        reader_(std::make_unique<FaultReader>(
            userfaultfd_, [this](const MissingPage& missing) { return serve(missing.page, missing.write); }, true)) {}
  ~MissingTracker() override;

  Result<void> arm(std::span<const AddressRange> ranges) override;
  Result<void> collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>& touched) override;
  Result<void> disarm(std::span<const AddressRange> ranges) override;
  bool keeps_frames() const noexcept override { return false; }
  bool sees_system_calls() const noexcept override { return userfaultfd_.serves_system_calls(); }
  std::string_view mechanism() const noexcept override { return "userfaultfd missing pages, messages to a thread"; }

 private:
  using State = PageStates::State;
  static constexpr State armed = 1, read_seen = 2, written = 4, named = 8;

  bool serve(std::byte* at, bool write) noexcept;
  bool answer(std::byte* page, State state, bool write) noexcept;
  static bool touched_in(State state) noexcept { return (state & (read_seen | written)) != 0; }
  Result<void> register_new(const AddressRange& range);
  int take_away(const AddressRange& range) noexcept;
  int bring_back(const AddressRange& range) noexcept;
  int release(const AddressRange& range) noexcept;
  void set(Span<std::uintptr_t> pages, State state) noexcept;
  template <class Is, class With>
  int for_runs(const AddressRange& range, Is is, With with);

  Userfaultfd userfaultfd_;
  PageStates states_;
  Shadow shadow_;
  Turnstile turnstile_;
  std::vector<AddressRange> joined_;
  std::unique_ptr<FaultReader> reader_;  // the last: its thread uses the others
};

Error failed(const char* what, int error) {
  return system_error(std::string(what).append(" memory tracked by missing pages"), error,
                      error == EBUSY || error == EINVAL
                          ? "it must be private anonymous memory of nobody else's userfaultfd"
                      : error == ENOMEM ? "free memory or raise vm.max_map_count"
                                        : "");
}

// Runs of pages whose state `is`, in order of address; stops at the first error and returns it.
template <class Is, class With>
int MissingTracker::for_runs(const AddressRange& range, Is is, With with) {
  const auto pages = PageStates::pages_of(range);
  for (std::uintptr_t page = pages.begin; page < pages.end; ++page) {
    if (!is(states_.load(page))) continue;
    std::uintptr_t end = page + 1;
    while (end < pages.end && is(states_.load(end))) ++end;
    if (const int error = with(AddressRange{PageStates::address_of(page), (end - page) * page_size}); error != 0)
      return error;
    page = end;
  }
  return 0;
}

void MissingTracker::set(Span<std::uintptr_t> pages, State state) noexcept {
  for (std::uintptr_t page = pages.begin; page < pages.end; ++page) states_.exchange(page, state);
}

// --- faults
// ------------------------------------------------------------------------------------------------------------

// False: the page is not ours.
bool MissingTracker::serve(std::byte* at, bool write) noexcept {
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(at) / page_size;
  if ((states_.load(page) & named) == 0) return false;
  std::byte* const begin = PageStates::address_of(page);
  const Serving serving(turnstile_);
  const State state = states_.load(page);
  if ((state & armed) != 0) return answer(begin, state, write);
  userfaultfd_.wake(begin, page_size);  // let go of meanwhile: the present owner answers
  return true;
}

// A page may be reported more than once, also after its fault is over: COPY fills missing pages only.
bool MissingTracker::answer(std::byte* begin, State state, bool write) noexcept {
  const int error = touched_in(state) ? EEXIST : userfaultfd_.copy_in(begin, shadow_.of(begin), page_size, !write);
  if (error != 0 && error != EEXIST) return false;
  states_.add(reinterpret_cast<std::uintptr_t>(begin) / page_size, write ? written : read_seen);
  if (error == 0) return clear_entries(shadow_.of(begin), page_size) == 0;
  if (write) return userfaultfd_.write_unprotect(begin, page_size) == 0;
  userfaultfd_.wake(begin, page_size);
  return true;
}

MissingTracker::~MissingTracker() {
  {
    const Closed closed(turnstile_);
    // memory that has gone needs nothing
    states_.for_runs(armed, [this](const AddressRange& run) { static_cast<void>(release(run)); });
  }
  reader_.reset();
}

// --- ranges
// ------------------------------------------------------------------------------------------------------------

// 1. protect   2. copy   3. drop. Every page of the range is there, and is armed afterwards.
int MissingTracker::take_away(const AddressRange& range) noexcept {
  return Shadow::for_pieces(range, [this](const AddressRange& piece) {
    if (const int error = userfaultfd_.write_protect(piece.begin, piece.bytes); error != 0) return error;
    const OrderedByKernel copy;  // threads that write wait from here on
    std::memcpy(shadow_.of(piece.begin), piece.begin, piece.bytes);
    if (clear_entries(piece.begin, piece.bytes) != 0)
      die("pages of tracked memory cannot be taken away (MADV_DONTNEED)");
    set(PageStates::pages_of(piece), named | armed);
    return 0;
  });
}

int MissingTracker::bring_back(const AddressRange& range) noexcept {
  return Shadow::for_pieces(range, [this](const AddressRange& piece) {
    if (const int error = userfaultfd_.copy_in(piece.begin, shadow_.of(piece.begin), piece.bytes, false); error != 0)
      return error;
    return clear_entries(shadow_.of(piece.begin), piece.bytes);
  });
}

// Armed pages are there again, open, and no longer tracked. The turnstile is closed. An error leaves pages missing
// whose bytes are in the shadow.
int MissingTracker::release(const AddressRange& range) noexcept {
  const auto missing = [](State state) { return (state & armed) != 0 && !touched_in(state); };
  if (const int error = for_runs(range, missing, [this](const AddressRange& run) { return bring_back(run); });
      error != 0)
    return error;
  if (const int error = userfaultfd_.write_unprotect(range.begin, range.bytes); error != 0) return error;
  if (const int error = userfaultfd_.unregister(range.begin, range.bytes); error != 0) return error;
  set(PageStates::pages_of(range), named);
  return 0;
}

// A page that was never touched would be missing before its bytes are in the shadow, so all are made first.
Result<void> MissingTracker::register_new(const AddressRange& range) {
  set(PageStates::pages_of(range), named);
  if (const int error = populate(range.begin, range.bytes); error != 0) return failed("filling", error);
  if (const int error = userfaultfd_.register_missing_and_write_protect(range.begin, range.bytes); error != 0)
    return failed("registering", error);
  if (const int error = take_away(range); error != 0) return failed("arming", error);
  // A page of shared memory is still in its file: an access would go unnoticed.
  unsigned char in_memory = 0;
  if (::mincore(range.begin, page_size, &in_memory) == 0 && (in_memory & 1) == 0) return {};
  set(PageStates::pages_of(range), named);
  userfaultfd_.unregister(range.begin, range.bytes);
  return failed("arming", EINVAL);
}

Result<void> MissingTracker::arm(std::span<const AddressRange> ranges) {
  join_ranges(ranges, joined_);
  for (const AddressRange& range : joined_) {
    if (auto known = states_.name(range); !known) return known;
    if (auto known = shadow_.name(range); !known) return known;
    const Closed closed(turnstile_);
    const auto again = [](State state) { return (state & armed) != 0 && touched_in(state); };
    const int error = for_runs(range, again, [this](const AddressRange& run) { return take_away(run); });
    if (error != 0) return failed("arming", error);
    Result<void> all;
    const auto fresh = [](State state) { return (state & armed) == 0; };
    static_cast<void>(for_runs(range, fresh, [&](const AddressRange& run) {
      all = register_new(run);
      return all ? 0 : 1;
    }));
    if (!all) return all;
  }
  return {};
}

Result<void> MissingTracker::collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>& touched) {
  join_ranges(ranges, joined_);
  const std::size_t first = touched.size();
  const Closed closed(turnstile_);
  for (const AddressRange& range : joined_) {
    const int error = for_runs(range, touched_in, [&](const AddressRange& run) {
      const auto pages = PageStates::pages_of(run);
      for (std::uintptr_t page = pages.begin; page < pages.end; ++page) {
        const State state = states_.load(page);
        append_touched(touched, first,
                       {.pages = {PageStates::address_of(page), page_size},
                        .read = (state & read_seen) != 0,
                        .written = (state & written) != 0});
      }
      return take_away(run);
    });
    if (error != 0) return failed("arming", error);
  }
  return {};
}

Result<void> MissingTracker::disarm(std::span<const AddressRange> ranges) {
  join_ranges(ranges, joined_);
  const Closed closed(turnstile_);
  for (const AddressRange& range : joined_) {
    const auto is_armed = [](State state) { return (state & armed) != 0; };
    if (for_runs(range, is_armed, [this](const AddressRange& run) { return release(run); }) != 0)
      die("pages of tracked memory cannot be given back: the system has no memory left, or somebody changed the "
          "mapping");
  }
  return {};
}

// One page is read and then written, one read, two left alone, and every byte is there afterwards.
Result<void> behaves(MissingTracker& tracker) {
  auto memory = Mapping::reserve({4 * page_size}, {page_size});
  if (!memory) return memory.error();
  std::byte* const begin = memory->data();
  for (std::size_t page = 0; page < 4; ++page) begin[page * page_size] = static_cast<std::byte>(40 + page);
  const AddressRange all[] = {{begin, 4 * page_size}};
  if (auto started = tracker.arm(all); !started) return started;
  const std::byte there = *static_cast<volatile std::byte*>(begin + page_size);
  *static_cast<volatile std::byte*>(begin + page_size) = std::byte{50};
  static_cast<void>(*static_cast<volatile std::byte*>(begin + 3 * page_size));
  std::vector<TouchedRange> touched;
  if (auto collected = tracker.collect(all, touched); !collected) return collected;
  if (auto ended = tracker.disarm(all); !ended) return ended;
  const bool right = there == std::byte{41} && touched.size() == 2 && touched[0].pages.begin == begin + page_size &&
                     touched[0].written && touched[1].pages.begin == begin + 3 * page_size && !touched[1].written;
  const bool kept =
      begin[0] == std::byte{40} && begin[page_size] == std::byte{50} && begin[2 * page_size] == std::byte{42};
  if (right && kept) return {};
  return Error{.cause = Cause::unavailable,
               .message = std::string("userfaultfd missing pages: ")
                              .append(kept ? "other pages were told than were touched" : "bytes were lost")};
}

}  // namespace

Result<std::unique_ptr<PageTracker>> open_missing_tracker() {
  auto userfaultfd = Userfaultfd::open(uapi::feature_pagefault_flag_wp);
  if (!userfaultfd) return userfaultfd.error();
  auto states = PageStates::create();
  if (!states) return states.error();
  auto shadow = Shadow::create();
  if (!shadow) return shadow.error();
  auto tracker = std::make_unique<MissingTracker>(std::move(*userfaultfd), std::move(*states), std::move(*shadow));
  if (auto right = behaves(*tracker); !right) return right.error();
  return std::unique_ptr<PageTracker>(std::move(tracker));
}

}  // namespace vedette
