// A queue of copies, through three equal steps: see copies_out.h.
#include "moves/copies_out.h"

#include <deque>
#include <utility>

#include "base/grouped.h"

namespace vedette::detail {

std::vector<std::uint32_t> ends_within(std::span<const CopyOut> copies, std::span<const Bytes> resident, Bytes room) {
  const auto moments = static_cast<std::uint32_t>(resident.size());
  std::vector<std::pair<std::uint32_t, std::uint32_t>> begin, end;  // a moment, and the copy
  std::vector<std::uint32_t> ends(copies.size());
  for (std::uint32_t c = 0; c < copies.size(); ++c) {
    begin.push_back({copies[c].moments.begin, c});
    end.push_back({copies[c].moments.end, c});
    ends[c] = copies[c].moments.end;
  }
  const Grouped<std::uint32_t> begins_at(moments, begin), ends_at(moments, end);
  struct Running {
    std::uint32_t copy = 0, since = 0;
  };
  constexpr std::uint32_t not_now = ~0u;
  std::vector<std::uint32_t> since(copies.size(), not_now);
  std::deque<Running> oldest_first;  // and some that have ended
  Bytes taken;
  const auto stop = [&](std::uint32_t c, std::uint32_t moment) {
    if (since[c] == not_now) return;
    since[c] = not_now;
    taken -= copies[c].bytes;
    ends[c] = moment;
  };
  constexpr std::uint32_t steps = 3;  // the second begins with what the first leaves, and the third is as the second
  for (std::uint32_t now = 0; now < steps * moments; ++now) {
    const std::uint32_t moment = now % moments;
    for (const std::uint32_t c : ends_at[moment]) stop(c, moment);
    for (const std::uint32_t c : begins_at[moment]) {
      since[c] = now;
      taken += copies[c].bytes;
      oldest_first.push_back({c, now});
    }
    for (; resident[moment] + taken > room && !oldest_first.empty(); oldest_first.pop_front()) {
      const Running oldest = oldest_first.front();
      if (since[oldest.copy] == oldest.since) stop(oldest.copy, moment);
    }
  }
  return ends;
}

}  // namespace vedette::detail
