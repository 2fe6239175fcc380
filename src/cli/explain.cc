// The sentences.
#include "cli/explain.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "cli/lab.h"
#include "model/liveness.h"
#include "model/producers.h"

namespace vedette::cli {
namespace {

TensorIndex find(const Trace& trace, const std::string& which) {
  if (!which.empty() && std::all_of(which.begin(), which.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
      which.size() < 9) {
    const auto number = static_cast<std::uint32_t>(std::stoul(which));
    if (number < trace.tensors.size()) return {number};
  }
  std::vector<std::uint32_t> named;
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    if (trace.tensors[t].name == which) named.push_back(t);
  }
  if (named.size() == 1) return {named[0]};
  if (named.empty()) {
    std::string some;
    for (std::size_t t = 0; t < std::min<std::size_t>(3, trace.tensors.size()); ++t)
      some += fmt::format("{} '{}', ", t, trace.tensors[t].name);
    throw malformed(fmt::format("the trace has no tensor '{}', by name or number; it has {}: {}...", which,
                                trace.tensors.size(), some));
  }
  throw malformed(
      fmt::format("{} tensors are called '{}'; name one by its number, such as {}", named.size(), which, named[0]));
}

class Story {
 public:
  Story(const Trace& trace, const Machine& machine, const Plan& plan, TensorIndex t)
      : trace_(trace), machine_(machine), plan_(plan), t_(t), uses_(uses(trace)[t.value]) {
    if (!plan.recomputations.empty()) producers_ = producers(trace);
    find_load();
  }

  std::vector<std::string> tell() {
    introduce();
    std::size_t told = 0;
    for (const Move& move : plan_.moves) {
      if (move.extent.tensor != t_) continue;
      if (++told > most_moves) continue;
      if (move.verb == Verb::evict) leave(move);
      if (move.verb == Verb::fetch) come(move);
      if (move.verb == Verb::drop) drop(move);
    }
    if (told > most_moves) say(fmt::format("{} more moves of its parts are of the same kind.", told - most_moves));
    for (const Recomputation& each : plan_.recomputations) {
      if (each.tensor == t_)
        say(
            fmt::format("Before {} it is recomputed by {}, which takes {:.3f} ms{}; bringing it would keep the link "
                        "busy for {:.3f} "
                        "ms.",
                        op(each.before), op(each.producer), ms(producers_[each.producer.value].time),
                        chain(each.producer), ms(trip(home_link()))));
    }
    if (told == 0) stay();
    for (std::size_t s = 0; s < said_.size(); ++s)
      if (times_[s] > 1 && said_[s].front() != ' ') said_[s] += fmt::format(" {} parts of it do so.", times_[s]);
    return std::move(said_);
  }

 private:
  static constexpr std::size_t most_moves = 24;

  // Parts of a tensor that move alike are told once.
  void say(std::string sentence) {
    const auto told = std::find(said_.begin(), said_.end(), sentence);
    if (told != said_.end())
      ++times_[static_cast<std::size_t>(told - said_.begin())];
    else
      said_.push_back(std::move(sentence)), times_.push_back(1);
  }
  // "op 3 'mm'", and in which step where that is not the one of `now`: what comes at or before it comes in the next.
  std::string op(OpIndex i, OpIndex now) const { return op(i) + (i <= now ? " of the next step" : ""); }
  std::string op(OpIndex i) const { return fmt::format("op {} '{}'", i.value, trace_.ops[i.value].name); }
  const std::string& tier(TierIndex k) const { return machine_.tiers[k.value].name; }
  Bytes size_of(const Extent& extent) const { return bytes_of(extent, trace_); }
  Nanoseconds trip(const Link* link) const {
    return link == nullptr ? Nanoseconds{}
                           : transfer_time(trace_.tensors[t_.value].bytes, link->bytes_per_s) + link->latency;
  }

  const Link* home_link() const { return machine_.tiers.size() < 2 ? nullptr : machine_.link({1}, {0}); }

  void find_load() {
    const std::vector<Span<OpIndex>> living = lives(trace_);
    load_.resize(trace_.ops.size());
    for (std::size_t t = 0; t < living.size(); ++t) {
      for (std::uint32_t i = living[t].begin.value; i < living[t].end.value; ++i) load_[i] += trace_.tensors[t].bytes;
    }
    for (std::size_t i = 0; i < load_.size(); ++i) load_[i] += trace_.ops[i].workspace;
  }

  void introduce() {
    const Tensor& tensor = trace_.tensors[t_.value];
    std::string where =
        tensor.persistent ? fmt::format("persists and lies in {} when a step begins", tier(plan_.home[t_.value]))
        : uses_.empty()   ? std::string("is never used")
                          : fmt::format("is born at {} and last used at {}", op(uses_.front()), op(uses_.back()));
    say(fmt::format("Tensor {} '{}' ({}) {}; {}.", t_.value, tensor.name, readable(tensor.bytes), where,
                    uses_.size() == 1 ? "one op uses it" : fmt::format("{} ops use it", uses_.size())));
  }

  // Ops that run besides, where the producer changed the tensor in place.
  std::string chain(OpIndex producer) const {
    const bool alone = producers_[producer.value].time == trace_.ops[producer.value].time;
    return alone ? "" : " together with the ops that made what it changes";
  }

  // The fullest op from a on until before b, around the step.
  OpIndex fullest(std::uint32_t a, std::uint32_t b) const {
    const auto ops = static_cast<std::uint32_t>(trace_.ops.size());
    std::uint32_t best = a % ops;
    for (std::uint32_t i = a, n = 0; i % ops != b % ops && n < ops; ++i, ++n) {
      if (load_[i % ops] > load_[best]) best = i % ops;
    }
    return {best};
  }
  std::optional<OpIndex> next_use(OpIndex after) const {
    const auto next = std::upper_bound(uses_.begin(), uses_.end(), after);
    if (next != uses_.end()) return *next;
    if (trace_.tensors[t_.value].persistent && !uses_.empty()) return uses_.front();
    return std::nullopt;
  }
  Nanoseconds between(std::uint32_t a, std::uint32_t b) const {
    const auto ops = static_cast<std::uint32_t>(trace_.ops.size());
    Nanoseconds time;
    for (std::uint32_t i = a % ops, n = 0; i != b % ops && n < ops; i = (i + 1) % ops, ++n) time += trace_.ops[i].time;
    return time;
  }

  void leave(const Move& move) {
    const auto next = next_use(move.issue);
    const OpIndex full = fullest(move.issue.value + 1, next ? next->value : move.issue.value);
    const Link* link = machine_.link(move.source, move.target);
    const Nanoseconds takes =
        link == nullptr ? Nanoseconds{} : transfer_time(size_of(move.extent), link->bytes_per_s) + link->latency;
    say(fmt::format(
        "After {} {} of it leaves {} for {}, because {}, and the step needs up to {} {} ({}), of the {} there are.",
        op(move.issue), readable(size_of(move.extent)), tier(move.source), tier(move.target),
        next ? fmt::format("nobody uses it before {}, {:.1f} ms later", op(*next, move.issue),
                           ms(between(move.issue.value + 1, next->value)))
             : std::string("nobody uses it again in this step"),
        readable(load_[full.value]), next ? "in between" : "after that", op(full),
        readable(machine_.tiers[0].capacity)));
    say(
        fmt::format("  Writing takes {:.3f} ms at the most (nothing where {} still has the same bytes); its room is "
                    "wanted when {} begins.",
                    ms(takes), tier(move.target), op(move.due, move.issue)));
  }
  void come(const Move& move) {
    const Link* link = machine_.link(move.source, move.target);
    const Nanoseconds takes =
        link == nullptr ? Nanoseconds{} : transfer_time(size_of(move.extent), link->bytes_per_s) + link->latency;
    const Nanoseconds lead = move.issue == move.due ? Nanoseconds{} : between(move.issue.value, move.due.value);
    const std::string why =
        move.issue == move.due ? std::string("that op needs it at once")
                               : fmt::format("{} needs it {:.3f} ms later",
                                             move.due < move.issue ? op(move.due, move.issue) : op(move.due), ms(lead));
    say(fmt::format("When {} begins {} of it is fetched from {}, because {}; the transfer takes {:.3f} ms{}.",
                    op(move.issue), readable(size_of(move.extent)), tier(move.source), why, ms(takes),
                    lead >= takes ? " and is hidden unless others are ahead of it" : ", so the op waits for the rest"));
  }
  void drop(const Move& move) { say(fmt::format("After {} its bytes are thrown away.", op(move.issue))); }

  void stay() {
    Bytes most;
    for (const Bytes load : load_) most = std::max(most, load);
    if (most <= machine_.tiers[0].capacity) {
      say(fmt::format("It never moves: all that lives at once, {} at most, fits into {}.", readable(most), tier({0})));
    } else if (!uses_.empty() && uses_.back().value - uses_.front().value <= 2) {
      say("It never moves: it lives too short to be worth a transfer.");
    } else {
      say("It never moves: others whose next use is further away, or that are cheaper to bring back, make the room "
          "that the step needs.");
    }
  }

  const Trace& trace_;
  const Machine& machine_;
  const Plan& plan_;
  TensorIndex t_;
  std::vector<OpIndex> uses_;
  std::vector<Bytes> load_;    // [op]: what lives then
  std::vector<Op> producers_;  // [op], where something is recomputed
  std::vector<std::string> said_;
  std::vector<std::size_t> times_;  // of each sentence
};

}  // namespace

std::vector<std::string> explain(const Trace& trace, const Machine& machine, const Plan& plan,
                                 const std::string& which) {
  return Story(trace, machine, plan, find(trace, which)).tell();
}

}  // namespace vedette::cli
