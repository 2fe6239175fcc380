#include "pack/verify.h"

#include <algorithm>
#include <map>

namespace vedette::pack {
namespace {

struct Event {
  Time when;
  bool arrives;  // else it leaves; leaving buffers go first
  std::uint32_t buffer;
};

std::vector<Event> events_of(const Problem& problem) {
  std::vector<Event> events;
  std::size_t away = 0;
  for (std::uint32_t b = 0; b < problem.buffers.size(); ++b) {
    const Span<Time> life = problem.buffers[b].life;
    const bool lives = life.begin < life.end && problem.buffers[b].bytes.value > 0;
    if (lives) events.push_back({life.begin, true, b}), events.push_back({life.end, false, b});
    for (; away < problem.away.size() && problem.away[away].buffer == b; ++away) {
      const Span<Time> when = problem.away[away].when;
      if (lives) events.push_back({when.begin, false, b}), events.push_back({when.end, true, b});
    }
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.when != b.when ? a.when < b.when : (a.arrives != b.arrives ? b.arrives : a.buffer < b.buffer);
  });
  return events;
}

std::optional<std::string> misplaced(const Problem& problem, std::uint32_t b, std::uint64_t offset) {
  const Buffer& buffer = problem.buffers[b];
  const std::string who = "buffer " + std::to_string(b) + " at " + std::to_string(offset);
  if (offset % buffer.alignment != 0) return who + " is not aligned to " + std::to_string(buffer.alignment) + ".";
  if (problem.chunk == 0 || buffer.bytes.value == 0) return std::nullopt;
  const std::uint64_t touched = (offset + buffer.bytes.value - 1) / problem.chunk - offset / problem.chunk + 1;
  const std::uint64_t least = (buffer.bytes.value - 1) / problem.chunk + 1;
  if (touched > least)
    return who + " touches " + std::to_string(touched) + " chunks, where " + std::to_string(least) + " would do.";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_fault(const Problem& problem, const std::vector<std::uint64_t>& offset,
                                      std::optional<Bytes> capacity) {
  if (offset.size() != problem.buffers.size()) return "there are not as many offsets as buffers.";
  for (std::uint32_t b = 0; b < offset.size(); ++b) {
    if (auto fault = misplaced(problem, b, offset[b])) return fault;
    if (capacity && offset[b] + problem.buffers[b].bytes.value > capacity->value)
      return "buffer " + std::to_string(b) + " ends above the capacity.";
  }
  std::map<std::uint64_t, std::uint32_t> here;  // buffers that are there now, by offset
  for (const Event& event : events_of(problem)) {
    const std::uint64_t begin = offset[event.buffer], end = begin + problem.buffers[event.buffer].bytes.value;
    if (!event.arrives) {
      here.erase(begin);
      continue;
    }
    const auto above = here.lower_bound(begin);
    const std::string both =
        "buffer " + std::to_string(event.buffer) + " at time " + std::to_string(event.when) + " meets buffer ";
    if (above != here.end() && above->first < end) return both + std::to_string(above->second) + ".";
    if (above != here.begin()) {
      const auto below = std::prev(above);
      if (below->first + problem.buffers[below->second].bytes.value > begin)
        return both + std::to_string(below->second) + ".";
    }
    here.emplace(begin, event.buffer);
  }
  return std::nullopt;
}

}  // namespace vedette::pack
