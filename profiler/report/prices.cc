// The price of memory, tensor by tensor, and changes with which a tenth less of it costs nothing.
//
// Prices are the derivatives of the proven bound (vedette/bound.h): of the waits that no plan avoids. What a plan waits
// beyond them has no price, so the simulated steps with a tenth less and more stand beside. As in the table of
// budgets, tensors move to the byte.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "model/liveness.h"
#include "profiler/report/report.h"
#include "profiler/report/words.h"

namespace vedette::report {

namespace {

constexpr double a_tenth = 0.1, same_step = 0.005;
constexpr double mib = 1024 * 1024;
constexpr std::array faster_links = {1.1, 1.25, 1.5, 1.75, 2.0, 3.0, 4.0, 8.0};
constexpr std::size_t most_rounds = 12, most_named = 6;

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }
Nanoseconds whole(double ns) { return {static_cast<std::int64_t>(ns)}; }

class Pricing {
 public:
  Pricing(const Run& run, const ReportOptions& options)
      : run_(run),
        pricer_(options.pricer),
        policy_(options.policy.empty() ? run.policy : options.policy),
        step_(simulated_trace(run)),
        machine_(options.machine ? *options.machine : run.machine) {
    const Trace& names = run.shown_profile()->trace;
    std::map<std::string_view, std::uint32_t> number;
    for (std::uint32_t t = 0; t < names.tensors.size(); ++t) number.emplace(names.tensors[t].name, t);
    for (const Tensor& part : step_.tensors) tensor_of_.push_back(number.at(part.name));  // of a tensor or its part
    machine_.granule = {1};
    if (run.budget.value > 0) machine_.tiers[0].capacity = run.budget;
  }

  PriceList list(const std::vector<TensorRow>& rows) {
    PriceList list{.known = true};
    const MemoryPrices prices = pricer_.prices(step_, machine_);
    list.waiting = whole(prices.waiting_ns);
    list.ns_per_mib = sum(prices.op_ns_per_byte) * mib;
    list.runs = ops_of(prices);
    add_tensors(list, prices, rows);
    add_groups(list, "layer", [](const PricedTensor& t) { return t.layer; });
    add_groups(list, "role", [](const PricedTensor& t) { return t.role; });
    add_groups(list, "alike", [](const PricedTensor& t) { return without_numbers(t.name); });
    if (!pricer_.simulate) return list;
    const auto now = simulate(step_, machine_);
    if (!now) {
      list.note = "No step was simulated: " + now.error().message + ".";
      return list;
    }
    list.simulated = now->step;
    list.simulated_stall = now->stall;
    if (const auto more = simulate(step_, with_memory(1 + a_tenth))) list.more = more->step;
    make_a_tenth_free(list, *now);
    return list;
  }

 private:
  Result<Simulated> simulate(const Trace& trace, const Machine& machine) {
    return pricer_.simulate(trace, machine, policy_);
  }
  Machine with_memory(double factor) const {
    Machine machine = machine_;
    machine.tiers[0].capacity = {
        static_cast<std::uint64_t>(static_cast<double>(machine_.tiers[0].capacity.value) * factor)};
    return machine;
  }

  static std::vector<Span<std::uint32_t>> ops_of(const MemoryPrices& prices) {
    std::vector<Span<std::uint32_t>> runs;
    for (const Span<OpIndex>& each : prices.runs) {  // two steps have most of them twice
      const Span<std::uint32_t> ops{each.begin.value, each.end.value};
      if (std::find(runs.begin(), runs.end(), ops) == runs.end()) runs.push_back(ops);
    }
    return runs;
  }

  void add_tensors(PriceList& list, const MemoryPrices& prices, const std::vector<TensorRow>& rows) const {
    std::vector<double> before(step_.ops.size() + 1);
    for (std::size_t op = 0; op < step_.ops.size(); ++op) before[op + 1] = before[op] + prices.op_ns_per_byte[op];
    const auto alive = lives(step_);
    std::map<std::uint32_t, double> gone;
    std::map<std::uint32_t, double> held;
    for (std::size_t t = 0; t < step_.tensors.size(); ++t) {
      gone[tensor_of_[t]] += prices.tensor_ns[t];
      double& most = held[tensor_of_[t]];
      most = std::max(most, before[alive[t].end.value] - before[alive[t].begin.value]);
    }
    for (const TensorRow& row : rows) {
      if (gone[row.tensor] <= 0 && held[row.tensor] <= 0) continue;
      list.tensors.push_back(
          {.tensor = row.tensor,
           .name = row.name,
           .layer = row.first_layer,
           .role = row.role,
           .bytes = row.bytes,
           .gone = whole(gone[row.tensor]),
           .ns_per_mib = gone[row.tensor] / static_cast<double>(std::max<std::uint64_t>(row.bytes.value, 1)) * mib,
           .budget_ns_per_mib = held[row.tensor] * mib});
    }
    std::stable_sort(list.tensors.begin(), list.tensors.end(), [](const PricedTensor& a, const PricedTensor& b) {
      return a.gone != b.gone ? a.gone > b.gone : a.bytes > b.bytes;
    });
  }

  // "layer3.attention clone #2" and "layer1.attention clone" are alike.
  static std::string without_numbers(const std::string& name) {
    std::string plain;
    for (std::size_t i = 0; i < name.size(); ++i) {
      const bool digit = name[i] >= '0' && name[i] <= '9';
      if (!digit) plain += name[i];
      if (digit && (plain.empty() || plain.back() != '*')) plain += '*';
    }
    if (plain.ends_with(" #*")) plain.resize(plain.size() - 3);
    return plain;
  }

  template <class Of>
  static void add_groups(PriceList& list, const char* by, Of of) {
    std::map<std::string, PricedGroup> groups;
    for (const PricedTensor& t : list.tensors) {
      if (t.gone.value <= 0) continue;
      PricedGroup& group = groups[of(t)];
      ++group.tensors;
      group.bytes += t.bytes;
      group.gone += t.gone;
    }
    std::vector<PricedGroup> sorted;
    for (auto& [name, group] : groups) {
      group.by = by;
      group.name = name;
      sorted.push_back(std::move(group));
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const PricedGroup& a, const PricedGroup& b) { return a.gone > b.gone; });
    list.groups.insert(list.groups.end(), sorted.begin(), sorted.end());
  }

  // --- a tenth less, for nothing ---

  static bool as_fast(const Simulated& then, const Simulated& now) {
    return static_cast<double>(then.step.value) <= static_cast<double>(now.step.value) * (1 + same_step);
  }
  std::string arrow(const Simulated& then, const Simulated& now) const {
    return readable(now.step) + " -> " + readable(then.step);
  }

  void make_a_tenth_free(PriceList& list, const Simulated& now) {
    const Machine less = with_memory(1 - a_tenth);
    const Bytes bytes{machine_.tiers[0].capacity.value - less.tiers[0].capacity.value};
    const std::string begin = "10 % less memory (" + readable(bytes) + ")";
    const auto then = simulate(step_, less);
    if (!then) {
      list.note = begin + " could not be simulated: " + then.error().message + ".";
      return;
    }
    list.less = then->step;
    if (as_fast(*then, now)) {
      list.free.push_back(
          {.change = "nothing", .sentence = begin + " costs nothing: " + arrow(*then, now) + ".", .step = then->step});
      return;
    }
    list.note = begin + " makes the step longer by " + readable(then->step - now.step) + ": " + arrow(*then, now) +
                ". Each of these would make it cost nothing:";
    if (auto found = without_tensors(less, now)) list.free.push_back(*std::move(found));
    if (auto found = with_faster_links(less, now)) list.free.push_back(*std::move(found));
    if (auto found = with_recomputation(less, now)) list.free.push_back(*std::move(found));
    if (list.free.empty())
      list.note = begin + " makes the step longer by " + readable(then->step - now.step) + ": " + arrow(*then, now) +
                  ". Neither " + readable(Bytes{8 * bytes.value}) +
                  " of tensors less, nor links 8 x as fast, nor recomputation makes it cost nothing.";
  }

  // The dearest are taken away, priced anew each time, until the bound waits no longer than now, and then until the
  // simulated step takes no longer. Few bytes, and of equal prices few tensors.
  std::optional<FreeMemory> without_tensors(const Machine& less, const Simulated& now) {
    Trace trace = step_;
    const double waited = pricer_.prices(step_, machine_).waiting_ns;
    const std::uint64_t taken = machine_.tiers[0].capacity.value - less.tiers[0].capacity.value;
    std::vector<Span<std::uint32_t>> runs;
    std::vector<std::uint32_t> without;
    Bytes bytes;
    for (std::size_t round = 0; round < most_rounds && bytes.value < 8 * taken; ++round) {
      const MemoryPrices prices = pricer_.prices(trace, less);
      if (runs.empty()) runs = ops_of(prices);
      double over = prices.waiting_ns - waited;
      const bool as_proven = over <= 0;
      if (as_proven) {
        const auto then = simulate(trace, less);
        if (!then) return std::nullopt;
        if (as_fast(*then, now)) return pruned(std::move(trace), std::move(without), runs, less, *then, now);
        over = static_cast<double>((then->step - now.step).value);  // the plan's waits beyond the bound
      }
      std::vector<std::uint32_t> order;
      for (std::uint32_t t = 0; t < trace.tensors.size(); ++t)
        if (prices.tensor_ns[t] > 0 && trace.tensors[t].bytes.value > 1) order.push_back(t);
      if (order.empty()) return std::nullopt;
      const auto size = [&](std::uint32_t t) { return static_cast<double>(trace.tensors[t].bytes.value); };
      const auto price = [&](std::uint32_t t) { return prices.tensor_ns[t] / size(t); };
      std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        const double p = price(a), q = price(b);
        return std::abs(p - q) > 1e-6 * (p + q) ? p > q : size(a) > size(b);
      });
      for (std::size_t i = 0; i < order.size() && over > 0; ++i) {
        std::uint32_t t = order[i];
        if (prices.tensor_ns[t] > over)  // the last one: the smallest that is enough
          for (std::size_t k = i + 1; k < order.size(); ++k)
            if (prices.tensor_ns[order[k]] >= over && size(order[k]) < size(t)) t = order[k];
        over -= prices.tensor_ns[t];
        bytes += trace.tensors[t].bytes;
        without.push_back(t);
        trace.tensors[t].bytes = {1};
      }
    }
    return std::nullopt;
  }

  // The bound needed some that the simulator does not: the smallest first, each is tried back in its place.
  std::optional<FreeMemory> pruned(Trace trace, std::vector<std::uint32_t> without,
                                   const std::vector<Span<std::uint32_t>>& runs, const Machine& less, Simulated then,
                                   const Simulated& now) {
    constexpr std::size_t most_tried = 8;
    const auto size = [&](std::uint32_t t) { return step_.tensors[t].bytes; };
    std::stable_sort(without.begin(), without.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return size(a) < size(b); });
    for (std::size_t i = 0, tried = 0; i < without.size() && tried < most_tried; ++tried) {
      trace.tensors[without[i]].bytes = size(without[i]);
      const auto with = simulate(trace, less);
      if (with && as_fast(*with, now)) {
        then = *with;
        without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        trace.tensors[without[i++]].bytes = {1};
      }
    }
    Bytes bytes;
    for (const std::uint32_t t : without) bytes += size(t);
    std::reverse(without.begin(), without.end());
    return named(without, bytes, runs, then, now);
  }

  std::string place(std::uint32_t op) const {
    const Op& at = step_.ops[op];
    const bool layered = at.layer && at.layer->value < step_.layers.size();
    return fmt::format("op {} ({})", op, layered ? step_.layers[at.layer->value].name : at.name);
  }

  FreeMemory named(const std::vector<std::uint32_t>& without, Bytes bytes, const std::vector<Span<std::uint32_t>>& runs,
                   const Simulated& then, const Simulated& now) const {
    FreeMemory found{.change = "tensors", .bytes = bytes, .step = then.step};
    std::set<std::uint32_t> told;
    std::string names;
    for (const std::uint32_t part : without) {
      const std::uint32_t t = tensor_of_[part];
      if (!told.insert(t).second) continue;
      found.tensors.push_back(t);
      if (found.tensors.size() <= most_named) names += (names.empty() ? "" : ", ") + step_.tensors[part].name;
    }
    if (found.tensors.size() > most_named) names += fmt::format(" and {} more", found.tensors.size() - most_named);
    const std::size_t count = found.tensors.size();
    const std::string when =
        runs.empty() ? "" : " from " + place(runs.front().begin) + " to " + place(runs.front().end);
    found.sentence = fmt::format("{} of {} {} neither fast memory nor moves{}: {}. {}.",
                                 count == 1 ? "A tensor" : fmt::format("{} tensors", count), readable(bytes),
                                 count == 1 ? "needs" : "need", when, names, arrow(then, now));
    return found;
  }

  std::optional<FreeMemory> with_faster_links(const Machine& less, const Simulated& now) {
    std::optional<FreeMemory> found;
    std::size_t low = 0, high = faster_links.size();
    while (low < high) {
      const std::size_t middle = high == faster_links.size() && low == 0 ? high - 1 : (low + high) / 2;
      Machine machine = less;
      for (Link& link : machine.links)
        for (std::uint64_t* const speed : {&link.bytes_per_s, &link.alone_bytes_per_s})
          *speed = static_cast<std::uint64_t>(static_cast<double>(*speed) * faster_links[middle]);
      const auto then = simulate(step_, machine);
      if (!then || !as_fast(*then, now)) {
        low = middle + 1;
        continue;
      }
      high = middle;
      std::string speeds;
      for (const Link& link : machine.links)
        speeds += fmt::format("{}{:.2f} GB/s from {}", speeds.empty() ? "" : ", ",
                              static_cast<double>(link.bytes_per_s) / 1e9, machine.tiers[link.source.value].name);
      found = {.change = "links",
               .sentence =
                   fmt::format("The links are {} x as fast ({}): {}.", faster_links[middle], speeds, arrow(*then, now)),
               .factor = faster_links[middle],
               .step = then->step};
    }
    return found;
  }

  std::optional<FreeMemory> with_recomputation(const Machine& less, const Simulated& now) {
    if (machine_.can_recompute) return std::nullopt;
    Machine machine = less;
    machine.can_recompute = true;
    const auto then = simulate(step_, machine);
    if (!then || !as_fast(*then, now)) return std::nullopt;
    return FreeMemory{.change = "recompute",
                      .sentence = "The policy may recompute what is dear to move (" + readable(then->recompute) +
                                  " of operators run again in a step): " + arrow(*then, now) + ".",
                      .step = then->step};
  }

  const Run& run_;
  const Pricer& pricer_;
  const std::string policy_;
  const Trace step_;
  Machine machine_;
  std::vector<std::uint32_t> tensor_of_;  // [of step_]: of the profile
};

}  // namespace

PriceList prices_of(const Run& run, const ReportOptions& options, const std::vector<TensorRow>& rows) {
  const auto none = [](std::string why) {
    PriceList list;
    list.note = std::move(why);
    return list;
  };
  const Machine& machine = options.machine ? *options.machine : run.machine;
  if (run.shown_profile() == nullptr) return none("Prices need a profiled step.");
  if (!options.pricer.prices) return none("No prices were asked for.");
  if (machine.tiers.size() < 2 || (run.budget.value == 0 && !options.machine))
    return none("The recording names no slow tier and budget; --machine names one.");
  return Pricing(run, options).list(rows);
}

}  // namespace vedette::report
