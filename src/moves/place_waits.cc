// A step on three clocks, with what each byte of the range waits for: see place_waits.h.
#include "moves/place_waits.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

namespace vedette::detail {
namespace {

// When the bytes of a range may be written: behind an op that used them, or behind a copy.
struct Free {
  Nanoseconds from;
  std::optional<std::uint32_t> behind = {};  // an op
};

// Of each byte of a range. Intervals do not overlap.
class FreeFrom {
 public:
  std::vector<Free> take(Span<std::uint64_t> bytes) {
    std::vector<Free> taken;
    auto each = from_.upper_bound(bytes.begin);
    if (each != from_.begin() && std::prev(each)->second.end > bytes.begin) --each;
    while (each != from_.end() && each->first < bytes.end) {
      const auto [begin, old] = *each;
      each = from_.erase(each);
      taken.push_back(old.free);
      if (begin < bytes.begin) from_[begin] = {bytes.begin, old.free};
      if (old.end > bytes.end) from_[bytes.end] = old;
    }
    return taken;
  }
  void give(Span<std::uint64_t> bytes, Free free) {
    if (bytes.begin == bytes.end) return;
    take(bytes);
    from_[bytes.begin] = {bytes.end, free};
  }

 private:
  struct Until {
    std::uint64_t end = 0;
    Free free;
  };
  std::map<std::uint64_t, Until> from_;
};

class Walk {
 public:
  Walk(const StepInTime& step, const MoveTable& parts, const PlannedPlaces& places, const Machine& machine)
      : step_(step), parts_(parts), places_(places), machine_(machine), units_(step.units.trace.tensors.size()) {
    for (std::uint32_t u = 0; u < units_.size(); ++u) unit_at_[step.units.where[u].first] = u;
    for (const auto& [chunks, offset] : places.at_start) unit(chunks).place = offset;
    std::vector<std::pair<std::uint32_t, Change>> changes;
    for (std::uint32_t u = 0; u < units_.size(); ++u) {
      const Span<std::uint32_t> life = step.moments.lives[u];
      if (life.begin == 0) continue;
      changes.push_back({life.begin, {Change::What::birth, u}});
      changes.push_back({life.end, {Change::What::death, u}});
    }
    for (std::uint32_t p = 0; p < parts.size(); ++p) {
      changes.push_back({step.moments.ops[p].begin, {Change::What::begin, p}});
      changes.push_back({step.moments.ops[p].end, {Change::What::end, p}});
    }
    changes_ = Grouped<Change>(step.moments.length + std::size_t{1}, changes);
  }
  Nanoseconds once() {
    const Nanoseconds began = ops_;
    waited_for_.assign(parts_.size(), false);
    for (std::size_t moment = 0; moment < changes_.size(); ++moment) {
      for (const Change& each : changes_[moment]) {
        switch (each.what) {
          case Change::What::birth:
            born(each.index);
            break;
          case Change::What::death:
            die(units_[each.index]);
            break;
          case Change::What::begin:
            begin(each.index);
            break;
          case Change::What::end:
            end(each.index);
            break;
        }
      }
    }
    return ops_ - began;
  }
  std::vector<bool>&& waited_for() { return std::move(waited_for_); }

 private:
  struct Change {
    enum class What : std::uint8_t { birth, death, begin, end } what = What::birth;
    std::uint32_t index = 0;  // of a unit or an op
  };
  struct Unit {
    std::optional<std::uint64_t> place;
    Nanoseconds ready, at_host;  // the copies to fast memory, and out of it, have ended
    bool unchanged = false;
    std::optional<std::uint32_t> last_use = {};  // an op; nullopt: none since it has its place
  };

  Unit& unit(ChunkRange chunks) { return units_[unit_at_.at(chunks.first().value)]; }
  Span<std::uint64_t> bytes(const Unit& unit) const { return {*unit.place, *unit.place + bytes_of(unit).value}; }
  Bytes bytes_of(const Unit& unit) const {
    return step_.units.trace.tensors[static_cast<std::size_t>(&unit - units_.data())].bytes;
  }
  Nanoseconds transfer(TierIndex from, TierIndex to, Bytes bytes) const {
    const Link* const link = machine_.link(from, to);
    if (link == nullptr || link->bytes_per_s == 0) return {};
    return link->latency + transfer_time(bytes, link->bytes_per_s);
  }
  Nanoseconds when_free(const Unit& unit, bool for_a_copy) {
    Nanoseconds latest;
    for (const Free& each : free_.take(bytes(unit))) {
      latest = std::max(latest, each.from);
      if (for_a_copy && each.behind) waited_for_[*each.behind] = true;
    }
    return latest;
  }
  void born(std::uint32_t index) {
    const auto found = places_.births.find(step_.units.where[index].first);
    if (found == places_.births.end()) return;  // elsewhere
    Unit& unit = units_[index];
    unit = {.place = found->second, .last_use = running_};
    ops_ = std::max(ops_, when_free(unit, false));
  }
  void die(Unit& unit) {
    if (unit.place) leave_place(unit, {.from = std::max(ops_, unit.ready), .behind = unit.last_use});
  }
  void leave_place(Unit& unit, Free free) {
    free_.give(bytes(unit), free);
    unit.place.reset();
    unit.last_use.reset();
    unit.unchanged = false;
  }
  void begin(std::uint32_t op) {
    running_ = op;
    const OpMoves moves = parts_[op];
    for (const OpMoves::Fetch& fetch : moves.fetches) {
      Unit& of = unit(fetch.chunks);
      if (of.place || !fetch.place) continue;
      of.place = *fetch.place;
      in_ = std::max({in_, when_free(of, true), of.at_host}) + transfer(fetch.source, {0}, bytes_of(of));
      of.ready = in_;
      of.unchanged = fetch.unchanged;
    }
    for (const OpMoves::Made& made : moves.made) {
      Unit& of = unit(made.chunks);
      if (of.place || !made.place) continue;
      of.place = *made.place;
      ops_ = std::max(ops_, when_free(of, false));
    }
    const Op& what = step_.units.trace.ops[op];
    for (const auto* const list : {&what.reads, &what.writes})
      for (const TensorIndex t : *list) {
        ops_ = std::max(ops_, units_[t.value].ready);
        units_[t.value].last_use = op;
      }
  }
  void end(std::uint32_t op) {
    ops_ += step_.units.trace.ops[op].time;
    for (const OpMoves::Departure& departure : parts_[op].departures) {
      Unit& of = unit(departure.chunks);
      if (!of.place) continue;
      of.at_host = std::max(ops_, of.ready);
      if (departure.dead || of.unchanged) {
        leave_place(of, {.from = of.at_host, .behind = of.last_use});
        continue;
      }
      if (of.last_use) waited_for_[*of.last_use] = true;
      const TierIndex to = departure.target == TierIndex{0} ? TierIndex{1} : departure.target;
      of.at_host = out_ = std::max(out_, of.at_host) + transfer({0}, to, bytes_of(of));
      leave_place(of, {.from = of.at_host});
    }
  }

  const StepInTime& step_;
  const MoveTable& parts_;
  const PlannedPlaces& places_;
  const Machine& machine_;
  std::vector<Unit> units_;
  std::unordered_map<std::uint32_t, std::uint32_t> unit_at_;  // by first chunk
  Grouped<Change> changes_;                                   // by moment
  FreeFrom free_;
  std::vector<bool> waited_for_;          // in the latest step, by part
  std::optional<std::uint32_t> running_;  // the latest part that began
  Nanoseconds ops_, in_, out_;            // how far each stream has come
};

}  // namespace

TimeInPlaces time_in_places(const StepInTime& step, const MoveTable& parts, const PlannedPlaces& places,
                            const Machine& machine) {
  Walk walk(step, parts, places, machine);
  walk.once();
  walk.once();
  const Nanoseconds took = walk.once();
  return {.step = took, .waited_for = walk.waited_for()};
}

}  // namespace vedette::detail
