// How fast would GPUs train models that do not fit their budgets? Predicted by the simulator; nothing was run on a GPU.
//
//   build/release/bench/gpu_prediction [--markdown] [--card WORD] [--model WORD]... [--host GB/S] [--processor GB/S]
//   build/release/bench/gpu_prediction [--markdown] --optimizer
//
// docs/gpu-predictions.md sums up what --markdown prints. --optimizer is its last table alone: the price of an update
// on the GPU beside one on the processor. --host is the bandwidth of the host's memory instead of the preset's, 0
// without limit, and --processor what its processor takes of it.
//
// Each model's step is made from its shapes (gpu_shapes.h), planned by vedette for the card's machine preset with a
// share of the step's peak, and replayed op by op. Beside it stand the lower bound that no plan passes on that machine,
// and a fluid bound by hand: without recomputation, and with it. The replay is exact arithmetic, so one run is enough.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "gpu_shapes.h"
#include "vedette/bound.h"
#include "vedette/check.h"
#include "vedette/machine.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace {

using namespace vedette;

constexpr double shares[] = {0.7, 0.5, 0.3, 0.2};

struct Options {
  bool markdown = false, optimizer = false;
  std::string card;
  std::vector<std::string> models;
  std::optional<double> host, processor;  // GB/s
};

constexpr double giga = 1e9;

const MachinePreset& preset_of(const bench::Card& card) {
  for (const MachinePreset& preset : machine_presets())
    if (preset.name == card.preset) return preset;
  std::fprintf(stderr, "there is no machine preset %s\n", card.preset);
  std::exit(1);
}

Machine machine_of(const bench::Card& card, const Options& options) {
  Machine machine = preset_of(card).make();
  machine.can_recompute = false;
  machine.whole_tensors = true;  // as sessions on a GPU move them
  machine.granule = {512};
  HostMemory& host = machine.host_memory;
  const double all = options.host.value_or(card.host), processor = options.processor.value_or(card.processor);
  if (options.host || all > 0) host = {.tier = {1}, .bytes_per_s = static_cast<std::uint64_t>(all * giga)};
  if (host.bytes_per_s > 0 || options.processor)
    host.processor_bytes_per_s = static_cast<std::uint64_t>(processor * giga);
  if (host.processor_bytes_per_s == 0 || host.processor_bytes_per_s < host.bytes_per_s) return machine;
  std::fprintf(stderr, "--processor takes less than the host's memory has: say --host, in GB/s\n");
  std::exit(1);
}

bench::Rates rates_of(const Machine& machine) {
  const Machine as_it_runs = within_host_memory(machine);
  const auto in = static_cast<double>(as_it_runs.link({1}, {0})->bytes_per_s),
             out = static_cast<double>(as_it_runs.link({0}, {1})->bytes_per_s);
  const HostMemory& host = machine.host_memory;
  return {
      .in = in,
      .out = out,
      .together = host.bytes_per_s == 0 ? in + out : std::min(in + out, static_cast<double>(host.left_for_links()))};
}

double share_of(Nanoseconds ideal, Nanoseconds time) {
  return static_cast<double>(ideal.value) / static_cast<double>(time.value);
}

std::string number(double value) {
  char text[16];
  std::snprintf(text, sizeof text, "%.2f", value);
  return value > 0 && std::isfinite(value) ? text : "-";
}

struct Predicted {
  double speed = 0, bound = 0;  // of plain; 0: there is no plan
  double moved_gb = 0, recompute_ms = 0;
};

Predicted predict(const Trace& trace, Machine machine, double share) {
  Predicted found;
  machine.tiers[0].capacity = {static_cast<std::uint64_t>(static_cast<double>(peak_bytes(trace).value) * share)};
  Nanoseconds ideal;
  for (const Op& op : trace.ops) ideal += op.time;
  const auto policy = make_policy("vedette", 1);
  const auto replayed = replay(trace, machine, *policy, {.keep_plan = true});
  if (!replayed) return found;
  if (const auto broken = replayed->plan ? check(trace, machine, *replayed->plan) : std::nullopt) {
    std::fprintf(stderr, "%s at %.0f %%: the plan breaks a rule: %s\n", trace.name.c_str(), 100 * share,
                 broken->message.c_str());
    std::exit(1);
  }
  found.speed = share_of(ideal, replayed->measured.time);
  found.bound = share_of(ideal, lower_bound(trace, machine));
  found.moved_gb = static_cast<double>(replayed->bytes_in.value + replayed->bytes_out.value) / 1e9;
  found.recompute_ms = static_cast<double>(replayed->recompute.value) / 1e6;
  return found;
}

void print_introduction() {
  std::printf(
      "# What GPUs should do: predictions\n\n"
      "**No figure on this page was measured.** `build/release/bench/gpu_prediction --markdown` prints it.\n\n"
      "A step is made from the model's shapes: bf16, fused attention, AdamW on float32 masters, each parameter's "
      "update "
      "in the backward pass. An op takes\nas long as the card's roofline says; then all times are scaled to the speed "
      "that is assumed for the model. It is that of an H100 or H200; other cards are\nassumed to reach as large a part "
      "of their sheet. The policy `vedette` plans the step for a share of its peak, and the simulator replays the "
      "plan. "
      "Figures\nare shares of the speed with all memory.\n\n"
      "- **swap alone**: a session without `recompute`. **bound**: no plan that only moves passes it "
      "(`lower_bound`, proven for that machine).\n"
      "- **with recomputation**: the policy plans it and the simulator runs it; sessions on a GPU do both. The bound "
      "after it is of plans that recompute, too.\n"
      "- **fluid**: what the links allow by hand, with bytes that flow without ops and order, and two kinds of "
      "recomputation: norms, GELU and\n  sums for 4 %% of a forward (of a convolutional net 20 %%), and whole layers. "
      "A plan that finds better kinds passes it.\n"
      "- `-`: no plan was found, or it cannot be. The first row of a model that does not fit into the card is what the "
      "card has;\n  rows of more are for a card of that much.\n"
      "- The bandwidth of the host's memory is a limit of both links together where a figure of such a host is "
      "published ([machines](reproduce.md#machines)).\n");
}

std::string of_host(const bench::Card& card, const Machine& machine, const Options& options) {
  const HostMemory& host = machine.host_memory;
  if (host.bytes_per_s == 0)
    return options.host ? "without limit" : "without limit, since no figure of such a host is published";
  if (!options.host && card.host == 0 && host.processor_bytes_per_s == 0)
    return std::string(preset_of(card).host_memory);
  char said[200];
  std::snprintf(said, sizeof said, "%.0f GB/s%s, of which the processor takes %.0f",
                static_cast<double>(host.bytes_per_s) / giga, options.host ? "" : card.host_source,
                static_cast<double>(host.processor_bytes_per_s) / giga);
  return said;
}

void print_head(const bench::Card& card, const Options& options) {
  const Machine machine = machine_of(card, options);
  const double in = static_cast<double>(machine.link({1}, {0})->bytes_per_s) / giga,
               out = static_cast<double>(machine.link({0}, {1})->bytes_per_s) / giga,
               memory = static_cast<double>(machine.tiers[0].capacity.value) / giga;
  const std::string host = of_host(card, machine, options);
  if (!options.markdown) {
    std::printf("PREDICTED, not measured: %s, %.0f GB/s in, %.0f out; host memory %s; shares of plain speed\n",
                card.preset, in, out, host.c_str());
    std::printf("%-26s %13s | %9s %6s %6s | %9s %6s %6s %6s %8s\n", "model", "memory", "swap only", "bound", "fluid",
                "with rec.", "bound", "fluid", "moved", "rec. ms");
    return;
  }
  std::printf(
      "\n## %s\n\n"
      "The machine is the preset `%s`: %.0f GB, of which %.0f are for tensors, and links of %.0f GB/s in and %.0f "
      "out.\n"
      "The host's memory: %s.\nIts roofline: %.0f TFLOPS and %.2f TB/s.\n\n",
      card.name, card.preset, memory, card.usable / giga, in, out, host.c_str(), card.flops / 1e12,
      card.memory_bytes_per_s / 1e12);
  std::printf(
      "| model | assumed | peak | step | memory | swap alone | bound | fluid | with recomputation | bound | fluid | it "
      "moves | recomputes for |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
}

std::string text(const char* form, double value) {
  char written[32];
  std::snprintf(written, sizeof written, form, value);
  return written;
}

template <class Model>
void print_row(const Model& model, const bench::Card& card, double share, const std::string& head,
               const Options& options) {
  const Trace fixed = bench::step_of(model, card, false), free = bench::step_of(model, card, true);
  Machine machine = machine_of(card, options), recomputing = machine;
  recomputing.can_recompute = true;
  const bench::Rates rates = rates_of(machine);
  const bench::Fluid flows = bench::fluid_of(model, card);
  const Predicted swap = predict(fixed, machine, share), recomputed = predict(free, recomputing, share);
  const std::string fluid = number(bench::fluid_bound(flows, share, rates, false)),
                    fluid_recomputing = number(bench::fluid_bound(flows, share, rates, true)),
                    gb = text("%.0f GB", share * static_cast<double>(peak_bytes(fixed).value) / 1e9);
  const char* const form = options.markdown ? "| %s | %.0f %%, %s | %s | %s | %s | %s | %s | %s | %.0f GB | %.0f ms |\n"
                                            : "%-26s %4.0f%% %7s | %9s %6s %6s | %9s %6s %6s %6.1f %8.1f\n";
  std::printf(form, head.c_str(), 100 * share, gb.c_str(), number(swap.speed).c_str(), number(swap.bound).c_str(),
              fluid.c_str(), number(recomputed.speed).c_str(), number(recomputed.bound).c_str(),
              fluid_recomputing.c_str(), recomputed.moved_gb, recomputed.recompute_ms);
  std::fflush(stdout);
}

std::string assumed(const bench::Transformer& model, const bench::Card& card) {
  return text("%.0f TFLOPS", model.tflops * card.beside_h100());
}
std::string assumed(const bench::ResNet& model, const bench::Card& card) {
  return text("%.0f images/s", model.images_per_s * card.beside_h100());
}

template <class Model>
void print_model(const Model& model, const bench::Card& card, const Options& options) {
  const auto peak = static_cast<double>(peak_bytes(bench::step_of(model, card, false)).value);
  std::string head = model.name;
  if (options.markdown)
    head += " | " + assumed(model, card) + text(" | %.0f GB", peak / giga) + text(" | %.2f s", model.seconds(card));
  if (peak > card.usable) {
    print_row(model, card, card.usable / peak, head, options);
    head = options.markdown ? " | | | " : "";
  }
  for (const double share : shares) {
    print_row(model, card, share, head, options);
    head = options.markdown ? " | | | " : "";
  }
}

bool is_named(const char* model, const Options& options) {
  const auto named = [&](const std::string& word) { return std::string(model).find(word) != std::string::npos; };
  return options.models.empty() || std::any_of(options.models.begin(), options.models.end(), named);
}

void print_card(const bench::Card& card, const Options& options) {
  print_head(card, options);
  for (const bench::Transformer& model : bench::transformers())
    if (is_named(model.name, options) && (model.decoder || !card.decoders)) print_model(model, card, options);
  for (const bench::ResNet& model : bench::residual_networks())
    if (is_named(model.name, options) && !card.decoders) print_model(model, card, options);
}

// The state that an update on the processor has away is away here, too: as much memory for both.
void print_optimizer(const Options& options) {
  const bench::Card& card = bench::cards().front();
  constexpr double processor = 70 * giga;  // its part of the host's memory, two sockets of DDR5
  if (options.markdown) {
    std::printf(
        "\n## Where the optimizer is\n\nOn the %s, in the memory that is left without the optimizer's state. An update "
        "on the processor runs beside the backward, at %.0f GB/s of the\nhost's memory (two sockets of DDR5, "
        "JustVugg/colibri#537), and the next step waits for it. Its bits are not the plain run's. It has the links' "
        "full "
        "rate here,\nthough both share the host's memory.\n\n"
        "| model | peak | memory | plain step | update on the GPU, swap alone | with recomputation | update on the "
        "processor |\n|---|---|---|---|---|---|---|\n",
        card.name, processor / giga);
  } else {
    std::printf("PREDICTED, not measured: %s, ms a step; an update on the processor at %.0f GB/s has other bits\n",
                card.preset, processor / giga);
    std::printf("%-26s %7s %7s %7s | %9s %9s | %9s\n", "model", "peak", "memory", "plain", "swap only", "with rec.",
                "processor");
  }
  Machine machine = machine_of(card, {}), recomputing = machine;
  recomputing.can_recompute = true;
  for (const bench::Transformer& model : bench::short_steps()) {
    const Trace fixed = bench::step_of(model, card, false), free = bench::step_of(model, card, true);
    const auto peak = static_cast<double>(peak_bytes(fixed).value);
    const double left = peak - model.optimizer(), ms = 1000 * model.seconds(card);
    const double swap = ms / predict(fixed, machine, left / peak).speed,
                 recomputed = ms / predict(free, recomputing, left / peak).speed,
                 host = 1000 * bench::seconds_with_update_on_host(model, card, rates_of(machine), processor);
    std::printf(options.markdown ? "| %s | %.0f GB | %.0f GB | %.0f ms | %.0f ms | %.0f ms | %.0f ms |\n"
                                 : "%-26s %4.0f GB %4.0f GB %7.0f | %9.0f %9.0f | %9.0f\n",
                model.name, peak / giga, left / giga, ms, swap, recomputed, host);
  }
}

}  // namespace

int main(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], "--markdown") == 0) options.markdown = true;
    if (std::strcmp(words[i], "--optimizer") == 0) options.optimizer = true;
    if (i + 1 == count) break;
    if (std::strcmp(words[i], "--model") == 0) options.models.push_back(words[++i]);
    if (std::strcmp(words[i], "--card") == 0) options.card = words[++i];
    if (std::strcmp(words[i], "--host") == 0) options.host = std::atof(words[++i]);
    if (std::strcmp(words[i], "--processor") == 0) options.processor = std::atof(words[++i]);
  }
  if (options.optimizer) return print_optimizer(options), 0;
  if (options.markdown && options.card.empty()) print_introduction();
  for (const bench::Card& card : bench::cards())
    if (options.card.empty() || options.card == card.name) print_card(card, options);
  if (options.markdown && options.card.empty()) print_optimizer(options);
}
