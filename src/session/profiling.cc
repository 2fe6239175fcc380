// The profiling step among the others: when page tracking begins and ends, and what the log gets from it.
#include <algorithm>

#include "session/state.h"

namespace vedette::detail {

// Watching pages slows ops down, and plans want to know how long an op takes without: the step before has most of them.
void SessionState::remember_times() {
  usual_times.clear();
  if (profiled_once || options.profile == ProfileTicks::operands) return;
  for (std::size_t i = 0; i < log_hashes.size(); ++i) usual_times[log_hashes[i]].push_back(log.ops[i].time);
}

void SessionState::start_profiling() {
  if (options.profile == ProfileTicks::operands) return;
  pages = PageProfile::start({.engine = engine.get(),
                              .arena = base(),
                              .chunk = options.chunk,
                              .chunks = chunks,
                              .ticks = options.profile,
                              .tracker = tracker,
                              .passed_over = passed_over,
                              .or_mprotect = options.tracker == "best",
                              .on_message = options.on_message});
  if (pages != nullptr) {
    for (auto& [offset, live] : tensors) pages->lives(offset, live.bytes.value, log_tensor(offset, live));
    pages->watch();
  }
  last_end = monotonic_now();
}

void SessionState::finish_profiling() {
  if (pages != nullptr) {
    pages->finish(log);
    pages.reset();
    std::unordered_map<std::uint64_t, std::size_t> nth;
    for (std::size_t i = 0; i < log.ops.size(); ++i) {
      const auto usual = usual_times.find(log_hashes[i]);
      if (usual == usual_times.end()) continue;
      const std::size_t n = nth[log_hashes[i]]++;
      if (n < usual->second.size()) log.ops[i].time = std::min(log.ops[i].time, usual->second[n]);
    }
  }
  if (step > options.warmup_steps && !log.ops.empty()) profiled_once = true;
}

}  // namespace vedette::detail
