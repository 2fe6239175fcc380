// Steps as they ran: when ops, stalls and moves were. Of each stall: the move that it waited for, the tensor that the
// move brought or took, why the bytes were not there, and the change that would have brought them in time.
//
// A stall ends with the last move that ended in it: of an op's operands a fetch, of an allocation a write.
#include <algorithm>
#include <map>
#include <set>

#include "base/readable.h"
#include "model/liveness.h"
#include "profiler/report/report.h"
#include "profiler/report/words.h"

namespace vedette::report {

namespace {

constexpr std::size_t most_events = 120'000;  // of all steps together: some 6 MB of page

struct Names {  // of what lies in chunks, in the profile of a bucket
  const Profile* profile = nullptr;
  std::map<std::uint64_t, std::vector<std::uint32_t>> tensors;         // by chunk
  std::map<std::uint64_t, std::pair<std::uint32_t, std::string>> why;  // by chunk: the op that a fetch is due before
};

Names names_of(const Run& run, const std::string& bucket) {
  Names names;
  for (const Profile& profile : run.profiles)
    if (profile.bucket == bucket) names.profile = &profile;
  if (names.profile == nullptr || run.chunk.value == 0) return names;
  const Profile& profile = *names.profile;
  std::set<std::uint64_t> moved;  // a file may have tensors of any size, but its moves are counted
  for (const StepEvents& step : run.events)
    for (const MoveRow& move : step.moves) moved.insert(move.chunk);
  const auto for_moved = [&](std::uint64_t begin, std::uint64_t end, const auto& act) {
    for (auto c = moved.lower_bound(begin); c != moved.end() && *c < end; ++c) act(*c);
  };
  for (std::uint32_t t = 0; t < profile.places.size(); ++t) {
    const std::uint64_t bytes = profile.trace.tensors[t].bytes.value;
    if (!profile.places[t] || bytes == 0) continue;
    const std::uint64_t first = *profile.places[t] / run.chunk.value;
    const std::uint64_t last = run.machine.whole_tensors ? first : (*profile.places[t] + bytes - 1) / run.chunk.value;
    for_moved(first, last + 1, [&](std::uint64_t c) { names.tensors[c].push_back(t); });
  }
  if (!run.plan || run.plan->bucket != bucket) return names;
  for (const PlannedMove& move : run.plan->moves) {
    const auto& chunks = run.plan->units.at(move.unit).chunks;
    if (move.verb != "fetch" || !chunks) continue;
    for_moved(chunks->begin, chunks->end, [&](std::uint64_t c) { names.why.try_emplace(c, move.due, move.reason); });
  }
  return names;
}

class Steps {
 public:
  Steps(const Run& run, const StepEvents& events, const Names& names) : run_(run), events_(events), names_(names) {
    if (names.profile != nullptr && names.profile->trace.ops.size() == events.ops.size())
      life_ = lives(names.profile->trace), uses_ = uses(names.profile->trace);
  }

  StepTimeline made() const {
    StepTimeline step{.step = events_.step, .phase = events_.phase, .time = events_.ended - events_.began};
    for (const OpRow& op : events_.ops) {
      step.ops.push_back({.name = op.name,
                          .layer = layer_of(op.op),
                          .time = {op.began - events_.began, op.ended - events_.began},
                          .stream = op.stream});
    }
    for (const MoveRow& move : events_.moves) step.moves.push_back(shown(move));
    for (const StallRow& stall : events_.stalls) step.stalls.push_back(explained(stall));
    return step;
  }

 private:
  std::int64_t layer_of(std::uint32_t op) const {
    if (life_.empty() || op >= names_.profile->trace.ops.size() || !names_.profile->trace.ops[op].layer) return -1;
    return names_.profile->trace.ops[op].layer->value;
  }

  // The op that is under way at that time, or the next one.
  std::uint32_t op_at(Nanoseconds time) const {
    const auto at = std::upper_bound(events_.ops.begin(), events_.ops.end(), time,
                                     [](Nanoseconds t, const OpRow& op) { return t < op.ended; });
    return at == events_.ops.end() ? static_cast<std::uint32_t>(events_.ops.size()) - 1
                                   : static_cast<std::uint32_t>(at - events_.ops.begin());
  }

  // Of the tensors in a chunk those that live when it moves; of them the one that is used next, round the step's seam.
  std::optional<std::uint32_t> tensor_of(const MoveRow& move) const {
    const auto found = names_.tensors.find(move.chunk);
    if (found == names_.tensors.end() || life_.empty()) return std::nullopt;
    const std::uint32_t now = op_at(move.verb == "fetch" ? move.ended : move.started);
    const auto count = static_cast<std::uint32_t>(events_.ops.size());
    std::optional<std::uint32_t> best;
    std::uint32_t nearest = ~0u;
    for (const std::uint32_t t : found->second) {
      const bool persists = names_.profile->trace.tensors[t].persistent;
      if (!persists && (now + 1 < life_[t].begin.value || now >= life_[t].end.value)) continue;
      for (const OpIndex use : uses_[t]) {
        const std::uint32_t distance = use.value >= now ? use.value - now : use.value + count - now;
        if (distance < nearest) nearest = distance, best = t;
      }
    }
    return best;
  }

  TimelineMove shown(const MoveRow& move) const {
    TimelineMove row{.verb = move.verb,
                     .cause = move.cause,
                     .tensor = -1,
                     .chunk = move.chunk,
                     .bytes = move.bytes,
                     .issued = move.issued - events_.began,
                     .time = {move.started - events_.began, move.ended - events_.began},
                     .tier = move.tier};
    if (const auto tensor = tensor_of(move)) row.tensor = *tensor;
    return row;
  }

  std::string op_name(std::uint32_t op) const {
    return op < events_.ops.size() ? "op " + std::to_string(op) + " (" + events_.ops[op].name + ")" : "no op";
  }
  std::string name_of(const MoveRow& move) const {
    const auto tensor = tensor_of(move);
    return tensor ? names_.profile->trace.tensors[*tensor].name : "chunk " + std::to_string(move.chunk);
  }

  // The last that ended in the stall.
  std::optional<std::size_t> waited_for(const StallRow& stall) const {
    std::optional<std::size_t> last;
    for (std::size_t i = 0; i < events_.moves.size(); ++i) {
      const MoveRow& move = events_.moves[i];
      const bool kind = stall.in_allocation == (move.verb != "fetch");
      if (!kind || move.ended <= stall.began || move.ended > stall.ended) continue;
      if (!last || move.ended > events_.moves[*last].ended) last = i;
    }
    return last;
  }

  TimelineStall explained(const StallRow& stall) const {
    TimelineStall row{.op = stall.op,
                      .in_allocation = stall.in_allocation,
                      .time = {stall.began - events_.began, stall.ended - events_.began}};
    const auto move = waited_for(stall);
    if (!move) {
      row.why = stall.in_allocation ? "An allocation waited for room, and no write ended meanwhile."
                                    : "The op waited, and no fetch ended meanwhile.";
      return row;
    }
    row.move = static_cast<std::int64_t>(*move);
    const MoveRow& m = events_.moves[*move];
    row.why = why(stall, m);
    row.remedy = remedy(stall, m);
    return row;
  }

  std::string why(const StallRow& stall, const MoveRow& move) const {
    std::string words = op_name(stall.op) + " waited " + readable(stall.time()) +
                        (stall.in_allocation ? " for the room of " : " for ") + name_of(move) + " (" +
                        readable(move.bytes) + "): ";
    if (move.cause == "planned")
      words += "its " + move.verb + " was planned and asked for in " + op_name(op_at(move.issued));
    else
      words +=
          "no plan had its " + move.verb + ", which " + (move.cause == "room" ? "made room" : "the wait asked for");
    const Nanoseconds queued = move.started - move.issued;
    if (4 * queued.value > (move.ended - move.started).value)
      words += ", and lay " + readable(queued) + " behind other moves of its link";
    const auto reason = names_.why.find(move.chunk);
    if (move.verb == "fetch" && reason != names_.why.end() && !reason->second.second.empty())
      words += "; the policy's reason: " + reason->second.second;
    return words + ".";
  }

  // The op in which the move had to begin to end before the wait.
  std::string remedy(const StallRow& stall, const MoveRow& move) const {
    const Nanoseconds late = move.ended - stall.began;
    const Nanoseconds queued = move.started - move.issued;
    const Nanoseconds length = move.ended - move.started;
    const Nanoseconds from = move.started - late;
    std::string words;
    if (from < events_.began)
      words = "It would have been in time had it begun " + readable(late) + " earlier, in the step before";
    else
      words = "It would have been in time had it begun " + readable(late) + " earlier, in " + op_name(op_at(from));
    if (queued >= late && move.cause == "planned")
      words += "; it was asked for early enough, so a faster link or fewer bytes before it would do";
    else if (length > late && stall.time() < length)
      words += ", or in smaller pieces of which the first were used sooner";
    return words + ".";
  }

  const Run& run_;
  const StepEvents& events_;
  const Names& names_;
  std::vector<Span<OpIndex>> life_;
  std::vector<std::vector<OpIndex>> uses_;
};

}  // namespace

Timeline timeline_of(const Run& run) {
  Timeline timeline;
  std::map<std::string, Names> names;
  std::size_t events = 0;
  for (const StepEvents& step : run.events) {
    events += step.ops.size() + step.moves.size() + step.stalls.size();
    if (events > most_events && !timeline.steps.empty()) break;
    auto found = names.find(step.bucket);
    if (found == names.end()) found = names.emplace(step.bucket, names_of(run, step.bucket)).first;
    timeline.steps.push_back(Steps(run, step, found->second).made());
  }
  std::stable_sort(timeline.steps.begin(), timeline.steps.end(),
                   [](const StepTimeline& a, const StepTimeline& b) { return a.step < b.step; });
  timeline.steps_left_out = run.steps.size() - timeline.steps.size();
  return timeline;
}

}  // namespace vedette::report
