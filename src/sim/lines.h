// Links with their queues, and the buses that they share. Pure.
#pragma once
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "vedette/model.h"

namespace vedette::sim {

inline constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

// Work on a link is counted in fractions of a nanosecond of the link alone, so that links that share a bus have whole
// shares.
inline constexpr std::int64_t work_per_ns = 1 << 18;

struct Job {  // a piece in a queue
  std::uint32_t piece = 0, ticket = 0;
  bool urgent = false;
};

struct Line {  // a link and its queue
  const Link* link = nullptr;
  std::deque<Job> queue;
  bool busy = false;
  std::uint32_t running = 0;  // the piece that moves
  std::int64_t work = 0;      // of the running job that is left, in 1/work_per_ns ns of the whole link
  std::int64_t share = 0;     // work done a ns, while as many lines are busy as now
  // how much a job of so many bytes is, of the latest one: most are of few sizes
  std::uint64_t timed = 0;
  std::int64_t whole_work = 0;
  std::int64_t began = 0, first_byte = 0, ended = -1;  // until its first byte a job takes no share of a bus

  bool transfers(std::int64_t now) const { return busy && now >= first_byte; }
};

// Sets the share of each line that transfers. On a bus a line that wants less than an even share gets all that it
// wants, and the others split the rest. So do lines that use the host's memory, with what they have of their buses.
void share_out(std::vector<Line>& lines, std::int64_t now, const HostMemory& host);

// When the next job ends or begins to transfer; never where no line is busy.
std::int64_t next_end(const std::vector<Line>& lines, std::int64_t now);

}  // namespace vedette::sim
