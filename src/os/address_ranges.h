// Lists of page ranges, as the page trackers take and give them: sorted by address, joined where they meet.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "base/assert.h"
#include "os/page_tracker.h"

namespace vedette {

inline std::byte* end_of(const AddressRange& range) noexcept { return range.begin + range.bytes; }

// The pages of `ranges`, each once, in order of address, as few ranges as possible; into `joined`, whose memory is
// reused.
inline void join_ranges(std::span<const AddressRange> ranges, std::vector<AddressRange>& joined) {
  joined.assign(ranges.begin(), ranges.end());
  std::sort(joined.begin(), joined.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.begin < b.begin; });
  std::size_t kept = 0;
  for (const AddressRange& range : joined) {
    VEDETTE_ASSERT(reinterpret_cast<std::uintptr_t>(range.begin) % page_size == 0 && range.bytes % page_size == 0);
    if (range.bytes == 0) continue;
    if (kept > 0 && range.begin <= end_of(joined[kept - 1])) {
      AddressRange& last = joined[kept - 1];
      last.bytes = static_cast<std::size_t>(std::max(end_of(last), end_of(range)) - last.begin);
    } else {
      joined[kept++] = range;
    }
  }
  joined.resize(kept);
}

// Appends pages that lie behind all of `touched` since index `first`, to its last range where they continue it.
inline void append_touched(std::vector<TouchedRange>& touched, std::size_t first, const TouchedRange& next) {
  if (touched.size() > first) {
    TouchedRange& last = touched.back();
    if (end_of(last.pages) == next.pages.begin && last.read == next.read && last.written == next.written) {
      last.pages.bytes += next.pages.bytes;
      return;
    }
  }
  touched.push_back(next);
}

}  // namespace vedette
