// The bytes that a least-recently-used fast tier would fetch in a step, by playing it for one capacity.
//
// Mattson's pass over reuse distances (1970), which serves all capacities at once, needs a cache that only uses fill. A
// training step also frees: dead tensors leave without being evicted, so a smaller cache's content is no subset of a
// larger one's. Each capacity is therefore played on its own. The rules are those of the policy `on-demand` in a replay
// with two tiers that moves whole tensors to the byte; tests/report/lru.cc holds both to the same figures.
#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "model/liveness.h"
#include "profiler/report/report.h"

namespace vedette::report {

namespace {

constexpr int steps = 3;  // the last is counted: the first ones bring the fast tier to the state that repeats

class LeastRecentlyUsed {
 public:
  LeastRecentlyUsed(const Trace& trace, Bytes capacity)
      : trace_(trace), capacity_(capacity.value), tensors_(trace.tensors.size()), deaths_(trace.ops.size()) {
    births_.resize(trace.ops.size());
    const auto alive = lives(trace);
    for (std::uint32_t t = 0; t < tensors_.size(); ++t) {
      tensors_[t].place = trace.tensors[t].persistent ? Place::away : Place::nowhere;
      if (trace.tensors[t].persistent || alive[t].begin == alive[t].end) continue;
      births_[alive[t].begin.value].push_back(t);
      deaths_[alive[t].end.value - 1].push_back(t);
    }
  }

  // The bytes that one more step fetches; nullopt: an op does not fit.
  std::optional<Bytes> step() {
    std::uint64_t fetched = 0;
    for (std::uint32_t op = 0; op < trace_.ops.size(); ++op) {
      const auto more = run(op);
      if (!more) return std::nullopt;
      fetched += *more;
    }
    return Bytes{fetched};
  }

 private:
  enum class Place : std::uint8_t { nowhere, near, away };
  struct State {
    Place place = Place::nowhere;
    std::uint64_t used = 0;  // the clock at its last use
  };
  // Ascending by use; of those used together the larger leaves first, then the one with the smaller number.
  using Key = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>;

  std::uint64_t size(std::uint32_t t) const { return trace_.tensors[t].bytes.value; }
  Key key(std::uint32_t t) const { return {tensors_[t].used, ~size(t), t}; }

  void use(std::uint32_t t, std::uint64_t when) {
    if (tensors_[t].place == Place::near) near_.erase(key(t));
    tensors_[t].used = when;
    if (tensors_[t].place == Place::near) near_.insert(key(t));
  }
  void arrive(std::uint32_t t) {
    tensors_[t].place = Place::near;
    near_.insert(key(t));
    full_ += size(t);
  }
  void leave(std::uint32_t t, Place to) {
    if (tensors_[t].place == Place::near) {
      near_.erase(key(t));
      full_ -= size(t);
    }
    tensors_[t].place = to;
  }

  // False: the rest are operands of the running op.
  bool make_room(std::uint64_t bytes, const std::vector<TensorIndex>& busy) {
    auto victim = near_.begin();
    while (full_ + bytes > capacity_) {
      while (victim != near_.end() && std::binary_search(busy.begin(), busy.end(), TensorIndex{std::get<2>(*victim)}))
        ++victim;
      if (victim == near_.end()) return false;
      const std::uint32_t t = std::get<2>(*victim++);
      leave(t, Place::away);
    }
    return true;
  }

  std::optional<std::uint64_t> run(std::uint32_t op) {
    const std::vector<TensorIndex> busy = operands(trace_.ops[op]);
    ++clock_;
    for (const TensorIndex t : busy) use(t.value, clock_);
    std::uint64_t fetched = 0, room = trace_.ops[op].workspace.value;
    std::vector<std::uint32_t> coming;
    for (const TensorIndex t : busy) {
      if (tensors_[t.value].place == Place::near) continue;
      if (tensors_[t.value].place == Place::away) {
        fetched += size(t.value);
        use(t.value, ++clock_);
      }
      room += size(t.value);
      coming.push_back(t.value);
    }
    if (!make_room(room, busy)) return std::nullopt;
    for (const std::uint32_t t : coming) arrive(t);
    for (const std::uint32_t t : births_[op]) use(t, ++clock_);
    for (const std::uint32_t t : deaths_[op]) leave(t, Place::nowhere);
    return fetched;
  }

  const Trace& trace_;
  std::uint64_t capacity_, full_ = 0, clock_ = 0;
  std::vector<State> tensors_;
  std::set<Key> near_;
  std::vector<std::vector<std::uint32_t>> births_, deaths_;  // by op
};

}  // namespace

std::optional<Bytes> lru_fetches(const Trace& trace, Bytes capacity) {
  LeastRecentlyUsed memory(trace, capacity);
  std::optional<Bytes> fetched;
  for (int i = 0; i < steps; ++i) {
    fetched = memory.step();
    if (!fetched) return std::nullopt;
  }
  return fetched;
}

}  // namespace vedette::report
