// Fair shares.
#include "sim/lines.h"

#include <algorithm>
#include <utility>

namespace vedette::sim {

namespace {

struct Taker {
  Line* line = nullptr;
  std::uint64_t wants = 0;  // bytes a second, of at least 1 that the link has
};

std::int64_t part_of(std::uint64_t rate, const Link& link) {
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<long double>(rate) * static_cast<long double>(work_per_ns) /
                                   static_cast<long double>(link.bytes_per_s)));
}

// The poorest first: each gets what it wants, or an even share of what is left.
void split(std::vector<Taker> takers, std::uint64_t left) {
  std::stable_sort(takers.begin(), takers.end(), [](const Taker& a, const Taker& b) { return a.wants < b.wants; });
  for (std::size_t i = 0; i < takers.size(); ++i) {
    const std::uint64_t gets = std::min(takers[i].wants, left / (takers.size() - i));
    takers[i].line->share = part_of(gets, *takers[i].line->link);
    left -= gets;
  }
}

void share_bus(std::vector<Line>& lines, std::int64_t now, std::size_t first) {
  const auto bus = lines[first].link->shared;
  std::uint64_t speed = 0;
  std::vector<Taker> takers;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Link& link = *lines[i].link;
    if (link.shared != bus) continue;
    if (i < first) return;  // that one has done it
    speed = std::max(speed, link.bytes_per_s);
    if (lines[i].transfers(now) && link.bytes_per_s != 0) takers.push_back({&lines[i], link.bytes_per_s});
  }
  if (takers.size() > 1) split(std::move(takers), speed);
}

void share_host_memory(std::vector<Line>& lines, std::int64_t now, const HostMemory& host) {
  std::uint64_t all = 0;
  std::vector<Taker> takers;
  for (Line& line : lines) {
    if (!line.transfers(now) || !host.limits(*line.link) || line.link->bytes_per_s == 0) continue;
    const auto wants =
        static_cast<std::uint64_t>(static_cast<long double>(line.link->bytes_per_s) *
                                   static_cast<long double>(line.share) / static_cast<long double>(work_per_ns));
    takers.push_back({&line, wants});
    all += wants;
  }
  if (all > host.left_for_links()) split(std::move(takers), host.left_for_links());
}

}  // namespace

void share_out(std::vector<Line>& lines, std::int64_t now, const HostMemory& host) {
  std::size_t transferring = 0;
  for (Line& line : lines) {
    line.share = work_per_ns;
    transferring += line.transfers(now) ? 1 : 0;
  }
  if (transferring < 2) return;
  for (std::size_t first = 0; first < lines.size(); ++first)
    if (lines[first].link->shared) share_bus(lines, now, first);
  if (host.bytes_per_s != 0) share_host_memory(lines, now, host);
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
