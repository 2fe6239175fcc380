// A report as JSON: printed by `--json`, and the data of the page. docs/report.md lists the keys; tests/report checks
// the list.
#include <cmath>
#include <nlohmann/json.hpp>

#include "profiler/gpu_bytes.h"
#include "profiler/report/beside.h"
#include "profiler/report/json_values.h"
#include "profiler/report/report.h"

namespace vedette::report {

namespace {

using json_values::Json;
using json_values::of;

template <class T>
Json list(const std::vector<T>& values);  // defined last, where it knows all of them

// An import has no residency, moves and stalls, and without a budget there are no shares of one.
Json of(const Headline& h) {
  const bool measured = h.imported.empty(), budgeted = h.budget.value > 0;
  const auto where = [](bool known, Json value) { return known ? std::move(value) : Json(nullptr); };
  return {{"program", h.program},
          {"policy", h.policy},
          {"imported", where(!measured, h.imported)},
          {"ops", h.ops},
          {"fits", h.fits ? Json(*h.fits) : Json(nullptr)},
          {"budget_bytes", where(budgeted, of(h.budget))},
          {"peak_bytes", of(h.peak)},
          {"resident_max_bytes", where(measured, of(h.resident_max))},
          {"budget_share", where(budgeted, of(h.budget_share))},
          {"steps", h.steps},
          {"steady_steps", h.steady_steps},
          {"median_step_ns", of(h.median_step)},
          {"step_quartiles_ns", of(h.step_quartiles)},
          {"plain_step_ns", of(h.plain_step)},
          {"speed_of_plain", of(h.speed_of_plain)},
          {"compute_ns", of(h.compute)},
          {"bound_ns", of(h.bound)},
          {"speed_of_bound", where(measured, of(h.speed_of_bound))},
          {"stall_ns", where(measured, of(h.stall))},
          {"stall_share", where(measured, of(h.stall_share))},
          {"bytes_in", where(measured, of(h.moved.in))},
          {"bytes_out", where(measured, of(h.moved.out))},
          {"bytes_dropped", where(measured, of(h.moved.dropped))},
          {"bytes_in_place", where(measured, of(h.moved.in_place))},
          {"faults", where(measured, h.faults)},
          {"dropped_events", h.dropped_events}};
}

Json of(const Wear& w) {
  if (!w.known) return nullptr;
  return {{"disk_bytes_out", of(w.a_step)},
          {"bytes_a_day", of(w.bytes_a_day)},
          {"endurance", w.rated},
          {"share_a_day", of(w.share_a_day)},
          {"words", w.words}};
}

Json of(const GpuBytes& gpu) {
  if (gpu.on_device.value == 0) return nullptr;
  Json all;
  for (const GpuBytesField& each : gpu_bytes_fields) all[each.key] = (gpu.*each.bytes).value;
  return all;
}

Json of(const Origin& o) {
  return {{"started", o.started},
          {"command", o.command},
          {"vedette", o.vedette},
          {"commit", o.commit},
          {"libtorch", o.libtorch},
          {"cpu", o.cpu},
          {"kernel", o.kernel},
          {"cores", o.cores},
          {"memory_bytes", of(o.memory)},
          {"mechanism", o.mechanism},
          {"budget_changes", of(o.sizes.changes)}};
}

Json of(const LayerTime& l) { return Json::array({l.layer, of(l.time)}); }

Json of(const LostTime& l) {
  return {{"cause", name_of(l.cause)},
          {"time_ns", of(l.time)},
          {"in_bound_ns", of(l.in_bound)},
          {"layers", list(l.layers)}};
}

Json of(const Waterfall& w) {
  return {{"known", w.known},
          {"bound_ns", of(w.bound)},
          {"step_ns", of(w.step)},
          {"ahead_ns", of(w.ahead)},
          {"lost", list(w.lost)},
          {"beside_moves_ns", of(w.beside_moves)},
          {"processor_wait", of(w.processor_wait)}};
}

Json of(const Advice& a) {
  return {{"change", name_of(a.change)},  {"sentence", a.sentence},     {"step_ns", of(a.step)},
          {"budget_bytes", of(a.budget)}, {"chunk_bytes", of(a.chunk)}, {"policy", a.policy},
          {"late_fewer", a.late_fewer}};
}

Json of(const Advised& a) { return {{"lines", list(a.lines)}, {"simulated_ns", of(a.simulated)}, {"note", a.note}}; }

Json of(const StepRow& s) {
  return {{"step", s.step},
          {"phase", s.phase},
          {"bucket", s.bucket},
          {"time_ns", of(s.time())},
          {"stall_ns", s.counters.stall_ns},
          {"bytes_in", s.counters.bytes_in.value},
          {"bytes_out", s.counters.bytes_out.value},
          {"bytes_dropped", s.counters.bytes_dropped.value},
          {"bytes_in_place", s.counters.bytes_in_place.value},
          {"far_bytes_in", s.counters.far_bytes_in.value},
          {"far_bytes_out", s.counters.far_bytes_out.value},
          {"moved_between_slow_tiers", s.counters.moved_between_slow_tiers.value},
          {"faults", s.counters.faults},
          {"peak_bytes", s.counters.peak_bytes.value},
          {"resident_max_bytes", s.counters.resident_max_bytes.value},
          {"process_bytes", of(s.process)},
          {"energy_mj", s.energy ? Json(s.energy->millijoules) : Json(nullptr)},
          {"processor_ns", s.noise ? of(s.noise->processor) : Json(nullptr)},
          {"switches", s.noise ? Json(s.noise->switches) : Json(nullptr)},
          {"steal_ns", s.noise ? of(s.noise->machine.steal) : Json(nullptr)},
          {"processor_wait_ns", s.noise ? of(s.noise->machine.processor_wait) : Json(nullptr)},
          {"memory_wait_ns", s.noise ? of(s.noise->machine.memory_wait) : Json(nullptr)},
          {"io_wait_ns", s.noise ? of(s.noise->machine.io_wait) : Json(nullptr)}};
}

Json of(const Noise& n) {
  return {{"known", n.known},
          {"processor_ns", n.known ? of(n.processor) : Json(nullptr)},
          {"switches", n.known ? Json(n.switches) : Json(nullptr)},
          {"steal_share", of(n.steal)},
          {"processor_wait_share", of(n.processor_wait)},
          {"memory_wait_share", of(n.memory_wait)},
          {"io_wait_share", of(n.io_wait)},
          {"disturbed", n.disturbed},
          {"why", n.why}};
}

Json of(const Energy& e) {
  if (e.steps == 0) return nullptr;
  return {{"device", e.device},
          {"steps", e.steps},
          {"median_j", of(e.median_j)},
          {"mean_j", of(e.mean_j)},
          {"watts", of(e.watts)}};
}

Json of(const CauseTotal& c) {
  return {{"verb", c.verb}, {"cause", c.cause}, {"tier", c.tier}, {"moves", c.moves}, {"bytes", of(c.bytes)}};
}

Json of(const Machine& machine) {
  Json tiers = Json::array(), links = Json::array();
  for (const Tier& t : machine.tiers)
    tiers.push_back({{"name", t.name}, {"capacity_bytes", of(t.capacity)}, {"addressable", t.addressable}});
  for (const Link& l : machine.links) {
    links.push_back({{"source", l.source.value},
                     {"target", l.target.value},
                     {"bytes_per_s", l.bytes_per_s},
                     {"alone_bytes_per_s", l.alone_bytes_per_s > 0 ? Json(l.alone_bytes_per_s) : Json(nullptr)},
                     {"latency_ns", of(l.latency)}});
  }
  return {{"tiers", tiers}, {"links", links}};
}

Json of(const MemorySample& s) { return Json::array({of(s.time), of(s.live), of(s.resident)}); }
Json of(const MoveRate& r) { return Json::array({of(r.time.begin), of(r.time.end), of(r.in), of(r.out)}); }
Json of(const Followed& f) {
  return {{"phase", f.phase},        {"steps", f.steps},           {"time_ns", of(f.time)},
          {"stall_ns", of(f.stall)}, {"moved_bytes", of(f.moved)}, {"faults", f.faults}};
}
Json of(const PhaseSpan& p) { return {{"phase", p.phase}, {"time_ns", of(p.time)}}; }

Json of(const Memory& m) {
  return {{"live_source", m.live_source},
          {"samples", list(m.samples)},
          {"moved", list(m.moved)},
          {"phases", list(m.phases)}};
}

Json of(const HeatRow& r) { return Json::array({r.first_tensor, r.last_tensor, r.pages}); }
Json of(const HeatRange& r) { return Json::array({r.tensor, r.layer, r.pages.begin, r.pages.end, r.reads, r.writes}); }
Json of(const HeatPlace& p) {
  return Json::array({p.tensor, p.layer, p.pages.begin, p.pages.end, static_cast<int>(p.lay)});
}
Json of(const std::vector<float>& row) {
  Json all = Json::array();
  for (const float value : row) {
    const double rounded = std::round(static_cast<double>(value) * 1000) / 1000;
    if (rounded == std::floor(rounded))
      all.push_back(static_cast<std::int64_t>(rounded));
    else
      all.push_back(rounded);
  }
  return all;
}

Json of(const Heat& h) {
  return {{"page_bytes", of(h.page_bytes)},
          {"counted", name_of(h.counted)},
          {"notes", h.notes},
          {"columns", h.columns},
          {"rows", list(h.rows)},
          {"order", h.order},
          {"reads", list(h.reads)},
          {"writes", list(h.writes)},
          {"ranges", list(h.ranges)},
          {"ranges_left_out", h.ranges_left_out},
          {"places", list(h.places)}};
}

Json of(const LayerRow& l) {
  return {{"layer", l.layer},
          {"name", l.name},
          {"phase", l.phase},
          {"ops", l.ops},
          {"time_ns", of(l.time)},
          {"read_bytes", of(l.read)},
          {"written_bytes", of(l.written)},
          {"moved_in_bytes", of(l.moved_in)},
          {"moved_out_bytes", of(l.moved_out)},
          {"stall_ns", of(l.stall)},
          {"faults", l.faults}};
}

Json of(const LayerCost& c) {
  return {{"time_ns", of(c.time)}, {"stall_ns", of(c.stall)}, {"moved_bytes", of(c.moved)}};
}

Json of(const LayerDifference& d) {
  return {
      {"name", d.name}, {"phase", d.phase}, {"run", of(d.here)}, {"other", of(d.there)}, {"change_ns", of(d.change)}};
}

Json of(const TensorRow& t) {
  Json life = t.life ? Json::array({t.life->begin, t.life->end}) : Json(nullptr);
  return {{"tensor", t.tensor},
          {"name", t.name},
          {"role", t.role},
          {"shape", t.shape},
          {"site", t.site},
          {"stack", t.stack.empty() ? Json(nullptr) : Json(t.stack)},
          {"bytes", of(t.bytes)},
          {"persistent", t.persistent},
          {"life", life},
          {"first_layer", t.first_layer},
          {"last_layer", t.last_layer},
          {"reads", t.reads},
          {"writes", t.writes},
          {"longest_gap_ns", of(t.longest_gap)},
          {"class", name_of(t.warmth)},
          {"tier", t.tier},
          {"fetches", t.fetches},
          {"evictions", t.evictions}};
}

Json of(const ShortLived& s) {
  return {{"tensors", s.tensors},         {"all_tensors", s.all_tensors}, {"bytes", of(s.bytes)},
          {"all_bytes", of(s.all_bytes)}, {"peak_bytes", of(s.peak)},     {"scratch_peak_bytes", of(s.scratch_peak)}};
}

Json of(const SharingOf& s) { return {{"used", s.used}, {"shared", s.shared}, {"dragged_bytes", of(s.dragged)}}; }

Json of(const Sharing& s) {
  return {{"known", s.known},
          {"pages_before", of(s.pages_before)},
          {"pages_after", of(s.pages_after)},
          {"chunks_before", of(s.chunks_before)},
          {"chunks_after", of(s.chunks_after)}};
}

Json of(const ReuseBin& b) { return {{"least_bytes", of(b.least)}, {"accesses", b.accesses}, {"bytes", of(b.bytes)}}; }

Json of(const CurvePoint& p) {
  return {{"share", of(p.share)},         {"fast_memory_bytes", of(p.fast_memory)},
          {"lru_in_bytes", of(p.lru_in)}, {"transfer_ns", of(p.transfer)},
          {"bound_ns", of(p.bound)},      {"step_ns", of(p.step)},
          {"stall_ns", of(p.stall)},      {"bytes_in", of(p.bytes_in)},
          {"bytes_out", of(p.bytes_out)}, {"note", p.note}};
}

Json of(const Reuse& r) {
  return {{"histogram", list(r.histogram)}, {"curve", list(r.curve)}, {"simulated", r.simulated}, {"policy", r.policy}};
}

Json of(const PricedTensor& t) {
  return {{"tensor", t.tensor},
          {"name", t.name},
          {"layer", t.layer},
          {"role", t.role},
          {"bytes", of(t.bytes)},
          {"gone_ns", of(t.gone)},
          {"ns_per_mib", of(t.ns_per_mib)},
          {"budget_ns_per_mib", of(t.budget_ns_per_mib)}};
}

Json of(const PricedGroup& g) {
  return {{"by", g.by}, {"name", g.name}, {"tensors", g.tensors}, {"bytes", of(g.bytes)}, {"gone_ns", of(g.gone)}};
}

Json of(const FreeMemory& f) {
  return {{"change", f.change},   {"sentence", f.sentence}, {"bytes", of(f.bytes)},
          {"tensors", f.tensors}, {"factor", of(f.factor)}, {"step_ns", of(f.step)}};
}

Json of(const PriceList& p) {
  return {{"known", p.known},
          {"note", p.note},
          {"waiting_ns", of(p.waiting)},
          {"ns_per_mib", of(p.ns_per_mib)},
          {"simulated_ns", of(p.simulated)},
          {"simulated_stall_ns", of(p.simulated_stall)},
          {"less_ns", of(p.less)},
          {"more_ns", of(p.more)},
          {"runs", list(p.runs)},
          {"tensors", list(p.tensors)},
          {"groups", list(p.groups)},
          {"free", list(p.free)}};
}

Json of(const PlanMoveRow& m) {
  return {{"position", m.position}, {"verb", m.verb},        {"unit", m.unit},
          {"fate", m.fate},         {"issue", m.issue},      {"due", m.due},
          {"bytes", of(m.bytes)},   {"lead_ns", of(m.lead)}, {"reason", m.reason}};
}

Json of(const PlanFigures& p) {
  return {{"known", p.known},
          {"plan", p.plan},
          {"planned_fetches", p.planned_fetches},
          {"planned_evictions", p.planned_evictions},
          {"in_time", p.in_time},
          {"late", p.late},
          {"early", p.early},
          {"not_needed", p.not_needed},
          {"wasted", p.wasted},
          {"missed", p.missed},
          {"unplanned_evictions", p.unplanned_evictions},
          {"operand_wait_ns", of(p.late_wait)},
          {"early_limit_ns", of(p.early_limit)},
          {"moves", list(p.moves)},
          {"reasons", p.reasons}};
}

Json of(const RecomputedTensor& t) {
  return {{"tensor", t.tensor}, {"name", t.name}, {"bytes", of(t.bytes)}, {"times", t.times}, {"reason", t.reason}};
}

Json of(const Recomputed& r) {
  return {{"groups", r.groups},           {"ops", r.ops},
          {"bytes", of(r.bytes)},         {"time_ns", of(r.time)},
          {"spared_bytes", of(r.spared)}, {"spared_ns", of(r.spared_time)},
          {"tensors", list(r.tensors)}};
}

Json of(const TimelineOp& o) {
  Json op = Json::array({o.name, o.layer, of(o.time.begin), of(o.time.end)});
  if (o.stream) op.push_back(*o.stream);
  return op;
}
Json of(const TimelineMove& m) {
  return Json::array(
      {m.verb, m.cause, m.tensor, m.chunk, of(m.bytes), of(m.issued), of(m.time.begin), of(m.time.end), m.tier});
}
Json of(const TimelineStall& s) {
  return Json::array({s.op, s.in_allocation, of(s.time.begin), of(s.time.end), s.move, s.why, s.remedy});
}
Json of(const StepTimeline& t) {
  return {{"step", t.step},     {"phase", t.phase},       {"time_ns", of(t.time)},
          {"ops", list(t.ops)}, {"moves", list(t.moves)}, {"stalls", list(t.stalls)}};
}

Json of(const Overhead& o) {
  return {{"process_bytes", of(o.process)},
          {"unmanaged_bytes", of(o.unmanaged)},
          {"profiling_step_ns", of(o.profiling_step)},
          {"warm_up_step_ns", of(o.warm_up_step)},
          {"profiling_cost", of(o.profiling_cost)},
          {"events_written", of(o.events_written)},
          {"events_dropped", of(o.events_dropped)}};
}

template <class T>
Json list(const std::vector<T>& values) {
  Json all = Json::array();
  for (const T& value : values) all.push_back(of(value));
  return all;
}

Json of(const Report& r) {
  Json all;
  all["path"] = r.path;
  all["remarks"] = r.remarks;
  all["headline"] = of(r.headline);
  all["origin"] = of(r.origin);
  all["waterfall"] = of(r.waterfall);
  all["advised"] = of(r.advised);
  all["machine"] = of(r.machine);
  all["steps"] = list(r.steps.rows);
  all["steps_left_out"] = r.steps.left_out;
  all["shown_step"] = of(r.steps.shown);
  all["causes"] = list(r.causes);
  all["memory"] = of(r.memory);
  all["heat"] = of(r.heat);
  all["layers"] = list(r.layers);
  all["tensors"] = list(r.tensors);
  all["tensors_left_out"] = r.tensors_left_out;
  all["short_lived"] = of(r.short_lived);
  all["sharing"] = of(r.sharing);
  all["reuse"] = of(r.reuse);
  all["prices"] = of(r.prices);
  all["plan"] = of(r.plan);
  all["recomputed"] = of(r.recomputed);
  all["noise"] = of(r.noise);
  all["energy"] = of(r.energy);
  all["gpu"] = of(r.origin.gpu);
  all["wear"] = of(r.overhead.wear);
  all["timeline"] = {{"steps", list(r.timeline.steps)}, {"steps_left_out", r.timeline.steps_left_out}};
  all["followed"] = list(r.followed);
  all["overhead"] = of(r.overhead);
  return all;
}

}  // namespace

std::string format_json(const Report& report, const Report* other, const Beside* beside) {
  Json all;
  all["format"] = "vedette-report-1";
  all["run"] = of(report);
  if (other != nullptr) {
    all["other"] = of(*other);
    all["beside"] = json_of(beside != nullptr ? *beside : beside_of(report, *other));
    all["compared"] = Json::array();
    for (const LayerDifference& each : compared(report, *other)) all["compared"].push_back(of(each));
  }
  // A name may hold any bytes: those that are not UTF-8 are replaced, or there would be no JSON at all.
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace vedette::report
