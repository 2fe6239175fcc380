// Where pages lay while each layer ran: near all along, fetched for it, or dragged along with pages that it touched.
//
// A chunk with pages that a layer touches is fetched for it when a fetch of the chunk ended since the chunk was touched
// before in this step. Tensors that live in such a chunk and are not touched by the layer are dragged along.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "model/liveness.h"
#include "profiler/report/report.h"

namespace vedette::report {

namespace {

constexpr std::uint64_t most_chunks_placed = 4'000'000;  // of all tensors

struct LayerRun {  // ops of one layer in a row
  std::int64_t layer = -1;
  std::uint32_t first = 0, last = 0;
};

std::vector<LayerRun> runs_of(const Trace& trace) {
  std::vector<LayerRun> runs;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const std::int64_t number = layer_of(trace.ops[i]);
    if (runs.empty() || runs.back().layer != number) runs.push_back({.layer = number, .first = i, .last = i});
    runs.back().last = i;
  }
  return runs;
}

class Places {
 public:
  Places(const Run& run, const Heat& heat)
      : run_(run),
        profile_(*run.shown_profile()),
        life_(lives(profile_.trace)),
        page_(profile_.trace.page_bytes.value) {
    for (std::uint32_t t = 0; t < profile_.places.size(); ++t) {
      const std::uint64_t bytes = profile_.trace.tensors[t].bytes.value;
      if (!profile_.places[t] || bytes == 0) continue;
      for (std::uint64_t c = chunk_of(*profile_.places[t]); c <= chunk_of(*profile_.places[t] + bytes - 1); ++c)
        tensors_[c].push_back(t);
    }
    for (const HeatRange& range : heat.ranges) by_layer_[range.layer].push_back(&range);
    for (const MoveRow& move : run.moves)
      if (move.verb == "fetch") fetched_[move.chunk].push_back(move.ended);
    for (auto& [chunk, ends] : fetched_) std::sort(ends.begin(), ends.end());
  }

  std::vector<HeatPlace> made() {
    for (const LayerRun& each : runs_of(profile_.trace)) add(each);
    std::sort(found_.begin(), found_.end());
    std::vector<HeatPlace> merged;
    for (const HeatPlace& place : found_) {
      HeatPlace* const last = merged.empty() ? nullptr : &merged.back();
      if (last != nullptr &&
          std::tie(last->layer, last->tensor, last->lay) == std::tie(place.layer, place.tensor, place.lay) &&
          place.pages.begin <= last->pages.end)
        last->pages.end = std::max(last->pages.end, place.pages.end);
      else
        merged.push_back(place);
    }
    return merged;
  }

 private:
  std::uint64_t chunk_of(std::uint64_t byte) const { return byte / run_.chunk.value; }

  // The pages of a tensor that lie in a chunk, of those given.
  Span<std::uint64_t> within(std::uint32_t tensor, std::uint64_t chunk, Span<std::uint64_t> pages) const {
    const std::uint64_t place = *profile_.places[tensor];
    const std::uint64_t begin = std::max(chunk * run_.chunk.value, place) - place;
    const std::uint64_t end = std::max((chunk + 1) * run_.chunk.value, place) - place;
    return {std::max(pages.begin, begin / page_), std::min(pages.end, (end + page_ - 1) / page_)};
  }
  void add_place(std::int64_t layer, std::uint32_t tensor, Span<std::uint64_t> pages, Lay lay) {
    if (pages.begin < pages.end) found_.push_back({.layer = layer, .tensor = tensor, .pages = pages, .lay = lay});
  }

  // Each layer's ranges are those of all its ops: a layer that runs in several pieces has them in each.
  void add(const LayerRun& layer) {
    const Nanoseconds ended = run_.ops[layer.last].ended;
    std::map<std::uint64_t, bool> chunks;  // touched: whether it was fetched for that
    std::set<std::uint32_t> touched;
    for (const HeatRange* range : by_layer_[layer.layer]) {
      const std::uint32_t t = range->tensor;
      const std::uint64_t bytes = profile_.trace.tensors[t].bytes.value;
      if (t >= profile_.places.size() || !profile_.places[t] || bytes == 0 || !lives_in(t, layer)) continue;
      touched.insert(t);
      const std::uint64_t place = *profile_.places[t];
      const std::uint64_t first = place + std::min(range->pages.begin * page_, bytes - 1);
      const std::uint64_t last = place + std::min(range->pages.end * page_, bytes) - 1;
      for (std::uint64_t c = chunk_of(first); c <= chunk_of(last); ++c) {
        const auto [known, fresh] = chunks.try_emplace(c, false);
        if (fresh) known->second = came(c, ended);
        add_place(layer.layer, t, within(t, c, range->pages), known->second ? Lay::fetched : Lay::near);
      }
    }
    for (const auto& [chunk, was_fetched] : chunks) {
      before_[chunk] = ended;
      for (const std::uint32_t t : tensors_[chunk]) {
        if (touched.contains(t) || !lives_in(t, layer)) continue;
        const std::uint64_t pages = (profile_.trace.tensors[t].bytes.value + page_ - 1) / page_;
        add_place(layer.layer, t, within(t, chunk, {0, pages}), Lay::dragged);
      }
    }
  }
  bool lives_in(std::uint32_t tensor, const LayerRun& layer) const {
    return life_[tensor].begin.value <= layer.last && life_[tensor].end.value > layer.first;
  }
  bool came(std::uint64_t chunk, Nanoseconds until) const {
    const auto found = fetched_.find(chunk);
    if (found == fetched_.end()) return false;
    const auto before = before_.find(chunk);
    const Nanoseconds from = before == before_.end() ? Nanoseconds{INT64_MIN} : before->second;
    const auto next = std::upper_bound(found->second.begin(), found->second.end(), from);
    return next != found->second.end() && *next <= until;
  }

  const Run& run_;
  const Profile& profile_;
  std::vector<Span<OpIndex>> life_;
  std::uint64_t page_;
  std::map<std::uint64_t, std::vector<std::uint32_t>> tensors_;  // by chunk
  std::map<std::int64_t, std::vector<const HeatRange*>> by_layer_;
  std::map<std::uint64_t, std::vector<Nanoseconds>> fetched_;  // by chunk: when fetches ended
  std::map<std::uint64_t, Nanoseconds> before_;                // by chunk: when it was touched last
  std::vector<HeatPlace> found_;
};

}  // namespace

std::string_view name_of(Lay lay) noexcept {
  constexpr std::string_view names[] = {"near", "fetched", "dragged"};
  return names[static_cast<std::size_t>(lay)];
}

std::vector<HeatPlace> places_of(const Run& run, const Heat& heat) {
  const Profile* const profile = run.shown_profile();
  if (!run.follows_profile() || profile->places.empty() || run.chunk.value == 0 || run.machine.whole_tensors ||
      run.ops.empty() || profile->trace.page_bytes.value == 0)
    return {};
  std::uint64_t chunks = 0;
  for (std::size_t t = 0; t < profile->places.size(); ++t)
    if (profile->places[t]) chunks += profile->trace.tensors[t].bytes.value / run.chunk.value + 2;
  if (chunks > most_chunks_placed) return {};
  return Places(run, heat).made();
}

}  // namespace vedette::report
