// Fair shares.
#include "sim/lines.h"

#include <algorithm>

namespace vedette::sim {

void share_out(std::vector<Line>& lines, std::int64_t now) {
  std::size_t transferring = 0;
  for (Line& line : lines) {
    line.share = work_per_ns;
    transferring += line.transfers(now) ? 1 : 0;
  }
  if (transferring < 2) return;
  for (std::size_t first = 0; first < lines.size(); ++first) {
    const auto bus = lines[first].link->shared;
    if (!bus) continue;
    std::uint64_t left = 0, busy = 0;
    bool earlier = false;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].link->shared != bus) continue;
      earlier = earlier || i < first;
      left = std::max(left, lines[i].link->bytes_per_s);
      busy += lines[i].transfers(now);
    }
    if (earlier || busy < 2 || left == 0) continue;
    std::vector<Line*> poorest;
    for (Line& line : lines) {
      if (line.transfers(now) && line.link->shared == bus && line.link->bytes_per_s != 0) poorest.push_back(&line);
    }
    std::stable_sort(poorest.begin(), poorest.end(),
                     [](const Line* a, const Line* b) { return a->link->bytes_per_s < b->link->bytes_per_s; });
    for (std::size_t i = 0; i < poorest.size(); ++i) {
      const std::uint64_t own = poorest[i]->link->bytes_per_s, even = left / (poorest.size() - i),
                          gets = std::min(own, even);
      poorest[i]->share = std::max<std::int64_t>(
          1, static_cast<std::int64_t>(static_cast<long double>(gets) * static_cast<long double>(work_per_ns) /
                                       static_cast<long double>(own)));
      left -= gets;
    }
  }
}

std::int64_t next_end(const std::vector<Line>& lines, std::int64_t now) {
  std::int64_t first = never;
  for (const Line& line : lines) {
    if (!line.busy) continue;
    const std::int64_t end = now + (line.work + line.share - 1) / line.share;
    first = std::min(first, line.transfers(now) ? end : line.first_byte);
  }
  return first;
}

}  // namespace vedette::sim
