#include "pack/sections.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "pack/radix.h"

namespace vedette::pack {
namespace {

std::uint64_t rounded(const Buffer& buffer) {
  return (buffer.bytes.value + buffer.alignment - 1) / buffer.alignment * buffer.alignment;
}

struct Piece {  // a stretch of a buffer's life in which it is there
  std::uint32_t buffer;
  Span<Time> when;
};

std::vector<Piece> pieces_of(const Problem& problem) {
  std::vector<Piece> pieces;
  pieces.reserve(problem.buffers.size() + problem.away.size());
  std::size_t next = 0;
  for (std::uint32_t b = 0; b < problem.buffers.size(); ++b) {
    Time at = problem.buffers[b].life.begin;
    const Time end = problem.buffers[b].life.end;
    for (; next < problem.away.size() && problem.away[next].buffer == b; ++next) {
      const Span<Time> away = problem.away[next].when;
      if (at < std::min(away.begin, end)) pieces.push_back({b, {at, std::min(away.begin, end)}});
      at = std::max(at, away.end);
    }
    if (at < end) pieces.push_back({b, {at, end}});
  }
  return pieces;
}

// Deaths come before births of the same time. The key of a time orders as the time does, one bit is left for the kind.
std::uint64_t key(Time when, bool birth) {
  return (static_cast<std::uint64_t>(when) ^ (std::uint64_t{1} << 63)) << 1 | (birth ? 1 : 0);
}

// In order of time, deaths first: {key, 2 * piece + birth}.
std::vector<Keyed> events_of(const std::vector<Piece>& pieces) {
  Time low = 0;
  if (!pieces.empty())
    low = std::min_element(pieces.begin(), pieces.end(), [](auto& a, auto& b) {
            return a.when.begin < b.when.begin;
          })->when.begin;
  std::vector<Keyed> events;
  events.reserve(pieces.size() * 2);
  for (std::uint32_t p = 0; p < pieces.size(); ++p) {
    events.push_back({key(pieces[p].when.begin - low, true), 2 * p + 1});
    events.push_back({key(pieces[p].when.end - low, false), 2 * p});
  }
  radix_sort(events);
  return events;
}

}  // namespace

Timeline cut_time(const Problem& problem) {
  const std::vector<Piece> pieces = pieces_of(problem);
  Timeline timeline;
  timeline.first.assign(problem.buffers.size() + 1, 0);
  timeline.pieces.resize(pieces.size());
  for (const Piece& piece : pieces) ++timeline.first[piece.buffer + 1];
  for (std::size_t b = 0; b < problem.buffers.size(); ++b) timeline.first[b + 1] += timeline.first[b];
  // A section ends where a birth follows a death: before that, the living only grow, and its last instant meets all
  // that the others meet.
  bool died = false;
  std::uint32_t section = 0;
  for (const Keyed& event : events_of(pieces)) {
    Sections& covered = timeline.pieces[event.value / 2];  // pieces are in the order of their buffers
    if ((event.value & 1) != 0) {
      if (died) ++section, died = false;
      covered.begin = section;
    } else {
      covered.end = section + 1;
      died = true;
    }
  }
  timeline.count = pieces.empty() ? 0 : section + 1;
  return timeline;
}

std::vector<std::uint64_t> loads(const Problem& problem, const Timeline& timeline) {
  std::vector<std::uint64_t> load(timeline.count + 1, 0);  // differences first; wrapping is fine
  for (std::uint32_t b = 0; b < problem.buffers.size(); ++b) {
    const Buffer& buffer = problem.buffers[b];
    const std::uint64_t bytes = rounded(buffer);
    for (const Sections& piece : timeline.of(b)) load[piece.begin] += bytes, load[piece.end] -= bytes;
  }
  for (std::uint32_t s = 0; s < timeline.count; ++s) load[s + 1] += load[s];
  load.resize(timeline.count);
  return load;
}

Bytes most_live(const Problem& problem) {
  std::uint64_t unit = 0;
  for (const Buffer& buffer : problem.buffers) unit = std::gcd(unit, buffer.alignment);
  const std::vector<Piece> pieces = pieces_of(problem);
  // Every offset is a multiple of the unit, so of the buffers that live at once all but the highest end on one, too.
  std::vector<std::uint64_t> padded(problem.buffers.size());
  for (std::size_t b = 0; b < padded.size(); ++b) padded[b] = (problem.buffers[b].bytes.value + unit - 1) / unit * unit;
  std::multiset<std::uint64_t> paddings;  // of those that live, where there are any
  std::uint64_t live = 0, most = 0;
  for (const Keyed& event : events_of(pieces)) {
    const std::uint32_t b = pieces[event.value / 2].buffer;
    const std::uint64_t padding = padded[b] - problem.buffers[b].bytes.value;
    const bool birth = (event.value & 1) != 0;
    live = birth ? live + padded[b] : live - padded[b];
    if (unit > 1 && birth) paddings.insert(padding);
    if (unit > 1 && !birth) paddings.erase(paddings.find(padding));
    if (birth) most = std::max(most, live - (paddings.empty() ? 0 : *paddings.rbegin()));
  }
  return {most};
}

}  // namespace vedette::pack
