// How fast would an H200 and an H100 train models that do not fit their budgets? Predicted by the simulator; nothing
// was run on a GPU.
//
//   build/release/bench/gpu_prediction [--markdown] [--card WORD] [--model WORD]...
//
// docs/gpu-predictions.md is what --markdown prints.
//
// Each model's step is made from its shapes (gpu_shapes.h), planned by vedette for the card's machine preset with a
// share of the step's peak, and replayed op by op. Beside it stand the lower bound that no plan passes on that machine,
// and a fluid bound by hand: without recomputation, and with it. The replay is exact arithmetic, so one run is enough.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
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
  bool markdown = false;
  std::string card;
  std::vector<std::string> models;
};

Machine machine_of(const bench::Card& card) {
  for (const MachinePreset& preset : machine_presets())
    if (preset.name == card.preset) return preset.make();
  std::fprintf(stderr, "there is no machine preset %s\n", card.preset);
  std::exit(1);
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
      "# What an H200 and an H100 should do: predictions\n\n"
      "**No figure on this page was measured.** `build/release/bench/gpu_prediction --markdown` prints it.\n\n"
      "A step is made from the model's shapes: bf16, fused attention, AdamW in float32, each parameter's update in the "
      "backward pass. An op takes\nas long as the card's roofline says; then all times are scaled to the speed that is "
      "assumed for the model, which is the same on both cards.\nThe policy `vedette` plans the step for a share of its "
      "peak, and the simulator replays the plan. Figures are shares of the speed with all memory.\n\n"
      "- **swap alone**: a session without `recompute`. **bound**: no plan that only moves passes it "
      "(`lower_bound`, proven for that machine).\n"
      "- **with recomputation**: the policy plans it and the simulator runs it; sessions on a GPU do both.\n"
      "- **fluid**: what the link allows by hand, with bytes that flow without ops and order, and two kinds of "
      "recomputation: norms, GELU and\n  sums for 4 %% of a forward (of a convolutional net 20 %%), and whole layers. "
      "A plan that finds better kinds passes it.\n"
      "- `-`: no plan was found, or it cannot be. The first row of a model that does not fit into the card is what the "
      "card has;\n  rows of more are for a card of that much.\n");
}

void print_head(bool markdown, const bench::Card& card) {
  const Machine machine = machine_of(card);
  const double gbs = static_cast<double>(machine.links[0].bytes_per_s) / 1e9,
               memory = static_cast<double>(machine.tiers[0].capacity.value) / 1e9;
  if (!markdown) {
    std::printf("PREDICTED, not measured: %s, %.0f GB/s each way; shares of plain speed\n", card.preset, gbs);
    std::printf("%-26s %13s | %9s %6s %6s | %9s %6s %6s %8s\n", "model", "memory", "swap only", "bound", "fluid",
                "with rec.", "fluid", "moved", "rec. ms");
    return;
  }
  std::printf(
      "\n## %s\n\n"
      "The machine is the preset `%s`: %.0f GB, of which %.0f are for tensors, and %.0f GB/s each way at once over "
      "PCIe "
      "5, as measured on an H200.\nIts roofline: %.0f TFLOPS and %.2f TB/s.\n\n",
      card.name, card.preset, memory, card.usable / 1e9, gbs, card.flops / 1e12, card.memory_bytes_per_s / 1e12);
  std::printf(
      "| model | assumed | peak | step | memory | swap alone | bound | fluid | with recomputation | fluid | it moves | "
      "recomputes for |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
}

std::string text(const char* form, double value) {
  char written[32];
  std::snprintf(written, sizeof written, form, value);
  return written;
}

template <class Model>
void print_row(const Model& model, const bench::Card& card, double share, const std::string& head, bool markdown) {
  const Trace fixed = bench::step_of(model, card, false), free = bench::step_of(model, card, true);
  Machine machine = machine_of(card), recomputing = machine;
  recomputing.can_recompute = true;
  const auto gbs = static_cast<double>(machine.links[0].bytes_per_s);
  const Predicted swap = predict(fixed, machine, share), recomputed = predict(free, recomputing, share);
  const std::string fluid = number(bench::fluid_bound(bench::fluid_of(model), share, gbs, false)),
                    fluid_recomputing = number(bench::fluid_bound(bench::fluid_of(model), share, gbs, true)),
                    gb = text("%.0f GB", share * static_cast<double>(peak_bytes(fixed).value) / 1e9);
  const char* const form = markdown ? "| %s | %.0f %%, %s | %s | %s | %s | %s | %s | %.0f GB | %.0f ms |\n"
                                    : "%-26s %4.0f%% %7s | %9s %6s %6s | %9s %6s %6.1f %8.1f\n";
  std::printf(form, head.c_str(), 100 * share, gb.c_str(), number(swap.speed).c_str(), number(swap.bound).c_str(),
              fluid.c_str(), number(recomputed.speed).c_str(), fluid_recomputing.c_str(), recomputed.moved_gb,
              recomputed.recompute_ms);
  std::fflush(stdout);
}

std::string assumed(const bench::Transformer& model) { return text("%.0f TFLOPS", model.tflops); }
std::string assumed(const bench::ResNet& model) { return text("%.0f images/s", model.images_per_s); }

template <class Model>
void print_model(const Model& model, const bench::Card& card, bool markdown) {
  const auto peak = static_cast<double>(peak_bytes(bench::step_of(model, card, false)).value);
  std::string head = model.name;
  if (markdown) head += " | " + assumed(model) + text(" | %.0f GB", peak / 1e9) + text(" | %.2f s", model.seconds());
  if (peak > card.usable) {
    print_row(model, card, card.usable / peak, head, markdown);
    head = markdown ? " | | | " : "";
  }
  for (const double share : shares) {
    print_row(model, card, share, head, markdown);
    head = markdown ? " | | | " : "";
  }
}

}  // namespace

int main(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], "--markdown") == 0) options.markdown = true;
    if (std::strcmp(words[i], "--model") == 0 && i + 1 < count) options.models.push_back(words[++i]);
    if (std::strcmp(words[i], "--card") == 0 && i + 1 < count) options.card = words[++i];
  }
  if (options.markdown) print_introduction();
  for (const bench::Card& card : bench::cards()) {
    if (!options.card.empty() && options.card != card.name) continue;
    print_head(options.markdown, card);
    const auto print_all = [&](const auto& models) {
      for (const auto& model : models) {
        const auto named = [&](const std::string& word) {
          return std::string(model.name).find(word) != std::string::npos;
        };
        if (options.models.empty() || std::any_of(options.models.begin(), options.models.end(), named))
          print_model(model, card, options.markdown);
      }
    };
    print_all(bench::residual_networks());
    print_all(bench::transformers());
  }
}
