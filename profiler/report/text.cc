// A report for the terminal: the same headline and tables as the page. Names may hold anything: each is `printable`
// (base/printable.h), so that none forges a line, and the whole once more.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/printable.h"
#include "profiler/gpu_bytes.h"
#include "profiler/report/beside.h"
#include "profiler/report/report.h"
#include "profiler/report/words.h"

namespace vedette::report {

namespace {

constexpr std::size_t most_tensors = 40, name_width = 36, widest_name = 60;

// Of a column of names, so that those that belong together are told apart.
template <class Rows, class NameOf>
std::size_t width_of(const Rows& rows, std::size_t most, NameOf name_of_row) {
  std::size_t width = name_width;
  for (std::size_t i = 0; i < rows.size() && i < most; ++i)
    width = std::max(width, printable(name_of_row(rows[i])).size());
  return std::min(width, widest_name);
}

std::string times(const std::optional<double>& ratio) { return ratio ? fmt::format("{:.3f} x", *ratio) : "-"; }

using Pair = std::pair<std::string, std::string>;  // of the run, of the other

struct Lines {
  std::string text;

  void title(std::string_view words) { text += fmt::format("\n{}\n{}\n", words, std::string(words.size(), '-')); }
  void figure(std::string_view label, const std::string& value) { text += fmt::format("{:<26}{}\n", label, value); }
  void figure(std::string_view label, const Pair& values) {
    if (values.second.empty()) return figure(label, values.first);
    text += fmt::format("{:<26}{:>22}  {:>22}\n", label, values.first, values.second);
  }
};

std::string fits(const Headline& h) { return !h.fits ? "-" : *h.fits ? "yes" : "no"; }

std::string budget(const Headline& h) {
  if (h.budget.value == 0) return "-";
  return readable(h.budget) + (h.budget_share > 0 ? fmt::format(" ({:.0f} %)", h.budget_share * 100) : std::string());
}

// The machine's other load during a steady step.
void noise(Lines& out, const Report& a, const Report* b) {
  const bool known = a.noise.known || (b != nullptr && b->noise.known);
  const auto both = [&](auto of) { return Pair{of(a.noise), b != nullptr ? of(b->noise) : std::string()}; };
  const auto share = [](const std::optional<double>& part) {
    return part ? fmt::format("{:.1f} %", 100 * *part) : std::string("-");
  };
  if (known) {
    out.figure("processor time, switches", both([](const Noise& n) {
                 return n.known ? fmt::format("{}, {}", readable(n.processor), n.switches) : std::string("-");
               }));
    out.figure("stolen", both([&](const Noise& n) { return share(n.steal); }));
    out.figure("waits: cpu, memory, io", both([&](const Noise& n) {
                 return share(n.processor_wait) + ", " + share(n.memory_wait) + ", " + share(n.io_wait);
               }));
  }
  if (known || a.noise.disturbed)
    out.figure("disturbed", both([](const Noise& n) { return std::string(n.disturbed ? "yes" : "no"); }));
}

// Nothing where no GPU's counter was read.
void energy(Lines& out, const Report& a, const Report* b) {
  if (a.energy.steps == 0 && (b == nullptr || b->energy.steps == 0)) return;
  const auto told = [](const Energy& e) {
    return e.steps == 0 ? std::string("-")
                        : fmt::format("{:.3f} J, {:.0f} W, {}", e.median_j, e.watts, printable(e.device, 12));
  };
  const auto mean = [](const Energy& e) {
    return e.steps == 0 ? std::string("-") : fmt::format("{:.3f} J of {}", e.mean_j, e.steps);
  };
  out.figure("energy of a step, median", {told(a.energy), b != nullptr ? told(b->energy) : std::string()});
  out.figure("energy of a step, mean", {mean(a.energy), b != nullptr ? mean(b->energy) : std::string()});
}

// Nothing where fast memory is the machine's.
void gpu_memory(Lines& out, const Report& a, const Report* b) {
  if (a.origin.gpu.on_device.value == 0 && (b == nullptr || b->origin.gpu.on_device.value == 0)) return;
  const auto both = [&](auto of) { return Pair{of(a.origin.gpu), b != nullptr ? of(b->origin.gpu) : std::string()}; };
  out.figure("on the GPU, in all", both([](const GpuBytes& gpu) { return readable(gpu.on_device); }));
  out.figure("beside the budget", both([&](const GpuBytes& gpu) {
               return readable(gpu.beside) + (b == nullptr ? parts_beside(gpu) : std::string());
             }));
  out.figure("host memory, locked",
             both([&](const GpuBytes& gpu) { return b == nullptr ? words_of_locked(gpu) : readable(gpu.locked); }));
}

// Nothing where no disk was written.
void wear(Lines& out, const Report& a, const Report* b) {
  if (a.overhead.wear.words.empty() && (b == nullptr || b->overhead.wear.words.empty())) return;
  out.figure("written to the disk", {a.overhead.wear.words.empty() ? "-" : a.overhead.wear.words,
                                     b == nullptr                     ? ""
                                     : b->overhead.wear.words.empty() ? "-"
                                                                      : b->overhead.wear.words});
}

void headline(Lines& out, const Report& a, const Report* b) {
  const auto both = [&](auto of) { return Pair{of(a.headline), b != nullptr ? of(b->headline) : std::string()}; };
  if (b != nullptr) out.figure("", Pair{"this run", "the other"});
  out.figure("program",
             both([](const Headline& h) { return printable(h.program.empty() ? "-" : h.program, name_width); }));
  out.figure("policy",
             both([](const Headline& h) { return printable(h.policy.empty() ? "-" : h.policy, name_width); }));
  out.figure("stays within the budget", both(fits));
  out.figure("budget", both(budget));
  out.figure("peak of live memory", both([](const Headline& h) { return readable(h.peak); }));
  const auto measured = [&](auto of) {
    return both([&](const Headline& h) { return h.imported.empty() ? of(h) : std::string("-"); });
  };
  out.figure("resident at most", measured([](const Headline& h) { return readable(h.resident_max); }));
  out.figure("step, median",
             both([](const Headline& h) { return fmt::format("{} of {}", readable(h.median_step), h.steady_steps); }));
  out.figure("quartiles", both([](const Headline& h) {
               return readable(h.step_quartiles.begin) + " to " + readable(h.step_quartiles.end);
             }));
  noise(out, a, b);
  energy(out, a, b);
  gpu_memory(out, a, b);
  wear(out, a, b);
  out.figure("plain step", both([](const Headline& h) { return readable(h.plain_step); }));
  out.figure("speed, of plain", both([](const Headline& h) { return times(h.speed_of_plain); }));
  out.figure("bound, as profiled", both([](const Headline& h) { return readable(h.bound); }));
  out.figure("speed, of the bound", measured([](const Headline& h) { return times(h.speed_of_bound); }));
  out.figure("stalls in a step", measured([](const Headline& h) {
               return fmt::format("{} ({:.1f} %)", readable(h.stall), h.stall_share * 100);
             }));
  out.figure("moved in, out",
             measured([](const Headline& h) { return readable(h.moved.in) + ", " + readable(h.moved.out); }));
  if (a.headline.moved.in_place.value > 0 || (b != nullptr && b->headline.moved.in_place.value > 0))
    out.figure("used in place", measured([](const Headline& h) { return readable(h.moved.in_place); }));
  out.figure("faults in a step", measured([](const Headline& h) { return std::to_string(h.faults); }));
}

void waterfall(Lines& out, const Report& r) {
  if (!r.waterfall.known) return;
  const Waterfall& fall = r.waterfall;
  out.title("Where the step's time goes");
  out.figure("bound", readable(fall.bound));
  constexpr std::string_view labels[] = {"operators, longer", "stalls: late fetch", "stalls: no room", "stalls: write",
                                         "faults"};
  for (const LostTime& lost : fall.lost) {
    std::string where;
    for (std::size_t i = 0; i < lost.layers.size() && i < 3; ++i) {
      const auto row = std::find_if(r.layers.begin(), r.layers.end(),
                                    [&](const LayerRow& each) { return each.layer == lost.layers[i].layer; });
      const bool named = row != r.layers.end() && row->layer >= 0;
      where += fmt::format("{}{} {}", where.empty() ? "" : ", ",
                           named ? printable_name(row->name, name_width) : "(ops without a layer)",
                           readable(lost.layers[i].time));
    }
    const std::string time = lost.time.value == 0 ? "0 ms" : "+ " + readable(lost.time);
    out.figure(labels[static_cast<std::size_t>(lost.cause)],
               where.empty() ? time : fmt::format("{:<13}most in {}", time, where));
  }
  out.figure("step", readable(fall.step));
  if (fall.processor_wait && r.noise.disturbed)
    out.figure("without a processor", fmt::format("tasks waited for one in {:.0f} % of the time: no plan's doing",
                                                  100 * *fall.processor_wait));
  if (fall.ahead.value > 0)
    out.figure("faster than the bound by", readable(fall.ahead) + ": large ops ran in sections");
}

// The largest differences, with a bar from the middle: to the left where the other run is faster.
void differences(Lines& out, const Report& run, const Report& other) {
  constexpr std::size_t most_layers = 20, half_bar = 10;
  const std::vector<LayerDifference> rows = compared(run, other);
  if (rows.empty()) return;
  const auto largest = static_cast<double>(std::max<std::int64_t>(1, std::abs(rows.front().change.value)));
  out.title("Layers of both runs, by what changed of their time and stalls");
  const std::size_t width = width_of(rows, most_layers, [](const LayerDifference& d) { return d.name; });
  out.text += fmt::format("{:<{}} {:<10}{:>11}{:>11}{:>11}{:>11}{:>12}  {:^{}}\n", "layer", width, "phase", "time",
                          "the other", "stall", "the other", "change", "faster | slower", 2 * half_bar + 1);
  for (std::size_t i = 0; i < rows.size() && i < most_layers; ++i) {
    const LayerDifference& d = rows[i];
    const auto marks = static_cast<std::size_t>(
        std::lround(static_cast<double>(half_bar) * std::abs(static_cast<double>(d.change.value)) / largest));
    const std::string bar(marks, '#');
    const bool slower = d.change.value > 0;
    const std::string change = fmt::format("{}{}",
                                           slower               ? "+"
                                           : d.change.value < 0 ? "-"
                                                                : "",
                                           readable(Nanoseconds{std::abs(d.change.value)}));
    out.text += fmt::format("{:<{}} {:<10}{:>11}{:>11}{:>11}{:>11}{:>12}  {:>{}}|{:<{}}\n",
                            d.name.empty() ? "(ops without a layer)" : printable_name(d.name, width), width,
                            printable(d.phase), readable(d.here.time), readable(d.there.time), readable(d.here.stall),
                            readable(d.there.stall), change, slower ? "" : bar, half_bar, slower ? bar : "", half_bar);
  }
  if (rows.size() > most_layers)
    out.text += fmt::format("and {} more with less (--json has all)\n", rows.size() - most_layers);
}

void advice(Lines& out, const Report& r) {
  if (r.advised.lines.empty() && r.advised.note.empty()) return;
  out.title("What to change");
  for (const Advice& line : r.advised.lines) out.text += printable(line.sentence, 200) + "\n";
  if (!r.advised.note.empty()) out.text += printable(r.advised.note, 200) + "\n";
}

void layers(Lines& out, const Report& report) {
  if (report.layers.empty()) return;
  out.title("Layers, in the order in which they run");
  const std::size_t width = width_of(report.layers, report.layers.size(), [](const LayerRow& l) { return l.name; });
  out.text += fmt::format("{:<{}} {:<10}{:>10}{:>12}{:>12}{:>12}{:>12}{:>10}{:>8}\n", "layer", width, "phase", "time",
                          "read", "written", "moved in", "moved out", "stall", "faults");
  for (const LayerRow& l : report.layers) {
    out.text += fmt::format("{:<{}} {:<10}{:>10}{:>12}{:>12}{:>12}{:>12}{:>10}{:>8}\n",
                            l.layer < 0 ? "(ops without a layer)" : printable_name(l.name, width), width,
                            printable(l.phase), readable(l.time), readable(l.read), readable(l.written),
                            readable(l.moved_in), readable(l.moved_out), readable(l.stall), l.faults);
  }
}

void tensors(Lines& out, const Report& report) {
  if (report.tensors.empty()) return;
  std::vector<const TensorRow*> largest;
  for (const TensorRow& t : report.tensors) largest.push_back(&t);
  std::stable_sort(largest.begin(), largest.end(), [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
  out.title("Tensors, largest first");
  const std::size_t width = width_of(largest, most_tensors, [](const TensorRow* t) { return t->name; });
  out.text += fmt::format("{:<{}} {:<11}{:>11}{:>12}{:>7}{:>7} {:<12}{:<8}{:>6}{:>6}\n", "tensor", width, "role",
                          "bytes", "ops", "reads", "writes", "class", "tier", "in", "out");
  for (std::size_t i = 0; i < largest.size() && i < most_tensors; ++i) {
    const TensorRow& t = *largest[i];
    const std::string life = t.persistent ? "all" : t.life ? fmt::format("{}-{}", t.life->begin, t.life->end - 1) : "-";
    out.text +=
        fmt::format("{:<{}} {:<11}{:>11}{:>12}{:>7}{:>7} {:<12}{:<8}{:>6}{:>6}\n", printable_name(t.name, width), width,
                    printable(t.role), readable(t.bytes), life, t.reads, t.writes, name_of(t.warmth),
                    t.tier.empty() ? "-" : printable(t.tier, 7), t.fetches, t.evictions);
  }
  if (largest.size() > most_tensors)
    out.text += fmt::format("and {} more (--json has all)\n", largest.size() - most_tensors);
}

void sharing(Lines& out, const Report& r) {
  out.title("What lives briefly, and what shares");
  const ShortLived& s = r.short_lived;
  out.figure("short-lived tensors",
             fmt::format("{} of {}, {} of {}", s.tensors, s.all_tensors, readable(s.bytes), readable(s.all_bytes)));
  out.figure("alive at once",
             fmt::format("{}, and {} of scratch in one op", readable(s.peak), readable(s.scratch_peak)));
  if (!r.sharing.known) return;
  const auto change = [](const SharingOf& before, const SharingOf& after) {
    return fmt::format("{} -> {} shared falsely, {} -> {} dragged along", before.shared, after.shared,
                       readable(before.dragged), readable(after.dragged));
  };
  out.figure("pages", change(r.sharing.pages_before, r.sharing.pages_after));
  out.figure("chunks", change(r.sharing.chunks_before, r.sharing.chunks_after));
}

void curve(Lines& out, const Report& r) {
  if (r.reuse.curve.empty()) return;
  out.title("What other budgets would cost");
  out.text += fmt::format("{:>8}{:>14}{:>16}{:>16}{:>14}{:>14}\n", "of peak", "fast memory", "LRU fetches",
                          "simulated in", "step", "stall");
  for (const CurvePoint& p : r.reuse.curve) {
    out.text += fmt::format("{:>6.0f} %{:>14}{:>16}{:>16}{:>14}{:>14}{}\n", p.share * 100, readable(p.fast_memory),
                            readable(p.lru_in), readable(p.bytes_in), readable(p.step), readable(p.stall),
                            p.note.empty() ? "" : "  " + printable(p.note, 200));
  }
}

// The dearest tensors and groups, and what would make a tenth less memory cost nothing.
void prices(Lines& out, const Report& r) {
  const PriceList& p = r.prices;
  if (!p.known) return;
  constexpr std::size_t most_priced = 12, most_groups = 5;
  out.title("What memory costs: waits that no plan avoids");
  const auto ms = [](double ns) { return fmt::format("{:.3f} ms", ns / 1e6); };
  out.figure("a MiB less costs", ms(p.ns_per_mib) + " a step at least");
  out.figure("no plan waits less than",
             p.simulated_stall ? fmt::format("{}, simulated {}", readable(p.waiting), readable(*p.simulated_stall))
                               : readable(p.waiting));
  if (p.simulated && p.less && p.more)
    out.figure("10 % less, as it is, more", fmt::format("{}, {}, {}: a step, simulated", readable(*p.less),
                                                        readable(*p.simulated), readable(*p.more)));
  if (!p.note.empty()) out.text += printable(p.note, 300) + "\n";
  for (const FreeMemory& each : p.free) out.text += "- " + printable(each.sentence, 600) + "\n";
  if (p.tensors.empty()) return;
  const std::size_t width = width_of(p.tensors, most_priced, [](const PricedTensor& t) { return t.name; });
  out.text += fmt::format("{:<{}} {:<11}{:>11}{:>16}{:>14}{:>16}\n", "tensor", width, "role", "bytes", "gone, it saves",
                          "a MiB of it", "a MiB of budget");
  for (std::size_t i = 0; i < p.tensors.size() && i < most_priced; ++i) {
    const PricedTensor& t = p.tensors[i];
    out.text +=
        fmt::format("{:<{}} {:<11}{:>11}{:>16}{:>14}{:>16}\n", printable_name(t.name, width), width, printable(t.role),
                    readable(t.bytes), readable(t.gone), ms(t.ns_per_mib), ms(t.budget_ns_per_mib));
  }
  if (p.tensors.size() > most_priced)
    out.text += fmt::format("and {} more with less (--json has all)\n", p.tensors.size() - most_priced);
  std::string_view by;
  std::size_t told = 0;
  for (const PricedGroup& g : p.groups) {
    told = by == g.by ? told + 1 : 0;
    by = g.by;
    if (told >= most_groups) continue;
    out.text += fmt::format("{:<8}{:<{}} {:>4} tensors{:>11}{:>16}\n", told == 0 ? g.by : "",
                            printable_name(g.name.empty() ? "(none)" : g.name, width), width, g.tensors,
                            readable(g.bytes), readable(g.gone));
  }
}

void plan(Lines& out, const Report& r) {
  if (!r.plan.known) return;
  const PlanFigures& p = r.plan;
  out.title("The plan, and what happened in the shown step");
  out.figure("planned fetches", fmt::format("{}: {} in time, {} late, {} early, {} not needed", p.planned_fetches,
                                            p.in_time, p.late, p.early, p.not_needed));
  out.figure("fetched for nothing", std::to_string(p.wasted));
  out.figure("not planned", fmt::format("{} fetches, {} evictions", p.missed, p.unplanned_evictions));
  out.figure("stalls for operands", readable(p.late_wait));
}

void recomputed(Lines& out, const Report& r) {
  const Recomputed& made = r.recomputed;
  if (made.groups == 0) return;
  out.title("Recomputed in the shown step, instead of moved");
  out.figure("recomputed", fmt::format("{} in {} groups, by {} ops that ran again, in {}", readable(made.bytes),
                                       made.groups, made.ops, readable(made.time)));
  out.figure("did not travel", made.spared_time ? fmt::format("up to {}, which would keep the links busy for {}",
                                                              readable(made.spared), readable(*made.spared_time))
                                                : fmt::format("up to {}", readable(made.spared)));
  constexpr std::size_t most_told = 8;
  for (std::size_t i = 0; i < std::min(most_told, made.tensors.size()); ++i) {
    const RecomputedTensor& t = made.tensors[i];
    out.figure(i == 0 ? "most of" : "",
               fmt::format("{}, {}, {} times", printable(t.name, 40), readable(t.bytes), t.times));
    if (!t.reason.empty()) out.text += "  " + printable(t.reason, 400) + "\n";
  }
  for (const std::string& reason : r.plan.reasons) out.text += "  " + printable(reason, 400) + "\n";
}

void followed(Lines& out, const Report& r) {
  if (r.followed.size() < 2) return;
  out.title("What steps followed");
  out.text +=
      fmt::format("{:<12}{:>8}{:>14}{:>14}{:>14}{:>8}\n", "", "steps", "a step", "of it stalls", "moved", "faults");
  for (const Followed& f : r.followed) {
    const auto steps = static_cast<std::int64_t>(f.steps);
    out.text += fmt::format("{:<12}{:>8}{:>14}{:>14}{:>14}{:>8}\n", printable(f.phase), f.steps,
                            readable(Nanoseconds{f.time.value / steps}), readable(Nanoseconds{f.stall.value / steps}),
                            readable(Bytes{f.moved.value / f.steps}), f.faults);
  }
}

void overhead(Lines& out, const Report& r) {
  const Overhead& o = r.overhead;
  out.title("Unmanaged memory, and what profiling cost");
  out.figure("process at most",
             fmt::format("{}, outside of fast memory {}", readable(o.process), readable(o.unmanaged)));
  out.figure("profiling step",
             fmt::format("{}, {} the usual step", readable(o.profiling_step), times(o.profiling_cost)));
  out.figure("events",
             fmt::format("{} written, {} dropped", o.events_written.value_or(0), o.events_dropped.value_or(0)));
}

}  // namespace

std::string format_text(const Report& report, const Report* other) {
  Lines out;
  headline(out, report, other);
  if (other != nullptr && alike(report.headline, other->headline))
    out.text += "\nNote: the quartiles of both runs' steps overlap, so neither is called the faster.\n";
  if (other != nullptr) {
    out.title("What makes the difference, tensor by tensor");
    const Beside beside = beside_of(report, *other);
    out.text += beside.tensors.empty() ? "no tensor does\n" : text_of(beside);
    differences(out, report, *other);
  }
  for (const Report* r : {&report, other}) {
    if (r == nullptr) continue;
    if (other != nullptr)
      out.text += std::string(r == &report ? "\n== this run: " : "\n== the other: ") + printable(r->path, 200) + "\n";
    for (const std::string& remark : r->remarks) out.text += "\nNote: " + printable(remark) + "\n";
    waterfall(out, *r);
    advice(out, *r);
    layers(out, *r);
    tensors(out, *r);
    sharing(out, *r);
    curve(out, *r);
    prices(out, *r);
    plan(out, *r);
    recomputed(out, *r);
    followed(out, *r);
    overhead(out, *r);
  }
  return printable_lines(out.text);
}

}  // namespace vedette::report
