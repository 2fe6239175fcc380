#include "support/step_kinds.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace vedette::testing {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// A step under construction: ops are appended to the layer that was begun last.
class Steps {
 public:
  TensorIndex tensor(std::string name, std::uint64_t bytes, TensorKind kind, bool persistent = false) {
    trace_.tensors.push_back({.name = std::move(name), .bytes = {bytes}, .kind = kind, .persistent = persistent});
    return {static_cast<std::uint32_t>(trace_.tensors.size() - 1)};
  }
  void layer(std::string name, Phase phase) {
    trace_.layers.push_back({.name = std::move(name), .phase = phase});
    phase_ = phase;
  }
  void op(std::string name, std::int64_t ns, std::vector<TensorIndex> reads, std::vector<TensorIndex> writes) {
    for (auto* operands : {&reads, &writes}) {
      std::sort(operands->begin(), operands->end());
      operands->erase(std::unique(operands->begin(), operands->end()), operands->end());
    }
    Op made;
    made.name = std::move(name);
    made.layer = LayerIndex{static_cast<std::uint32_t>(trace_.layers.size() - 1)};
    made.phase = phase_;
    made.time = {ns};
    made.reads = std::move(reads);
    made.writes = std::move(writes);
    trace_.ops.push_back(std::move(made));
  }
  Trace finish(std::string name) {
    trace_.name = std::move(name);
    trace_.source = "tests/support/step_kinds";
    trace_.device = "none";
    return std::move(trace_);
  }

 private:
  Trace trace_;
  Phase phase_ = Phase::forward;
};

struct Parameter {
  TensorIndex weight, gradient, mean, square;
  std::uint64_t bytes = 0;
};

Parameter parameter(Steps& steps, const std::string& name, std::uint64_t bytes) {
  return {.weight = steps.tensor(name, bytes, TensorKind::weight, true),
          .gradient = steps.tensor(name + ".grad", bytes, TensorKind::gradient),
          .mean = steps.tensor(name + ".mean", bytes, TensorKind::optimizer, true),
          .square = steps.tensor(name + ".square", bytes, TensorKind::optimizer, true),
          .bytes = bytes};
}

TensorIndex activation(Steps& steps, const std::string& name, std::uint64_t bytes) {
  return steps.tensor(name, bytes, TensorKind::activation);
}

// Memory of 1.3 TB/s, which seven passes over the parameter cross.
std::int64_t adam_ns(std::uint64_t bytes) { return static_cast<std::int64_t>(bytes * 7 / 1300) + 5'000; }

void adam(Steps& steps, const std::vector<Parameter>& parameters) {
  for (const Parameter& each : parameters) {
    steps.layer("adam", Phase::optimizer);
    steps.op("adam", adam_ns(each.bytes), {each.weight, each.gradient, each.mean, each.square},
             {each.weight, each.mean, each.square});
  }
}

struct ExpertsLayer {
  Parameter attention;
  std::vector<Parameter> experts;
  TensorIndex normed, mixed, out;
  std::vector<TensorIndex> routed, hidden;  // of each expert
};

// Of 36 parts of the tokens, expert e of 8 gets e + 1; in the next layer another one is the busiest.
std::uint64_t parts_of_tokens(std::uint32_t layer, std::uint32_t expert, std::uint32_t experts) {
  return (expert + layer * 3) % experts + 1;
}

}  // namespace

Trace experts_step(std::uint32_t layers, std::uint32_t experts) {
  Steps steps;
  std::vector<Parameter> parameters;
  std::vector<ExpertsLayer> all;
  TensorIndex x = steps.tensor("tokens", 32 * mib, TensorKind::input, true);
  const std::uint64_t all_parts = std::uint64_t{experts} * (experts + 1) / 2;
  for (std::uint32_t l = 0; l < layers; ++l) {
    const std::string name = "layer" + std::to_string(l);
    ExpertsLayer made{.attention = parameter(steps, name + ".attention", 16 * mib),
                      .experts = {},
                      .normed = activation(steps, name + ".normed", 32 * mib),
                      .mixed = activation(steps, name + ".mixed", 32 * mib),
                      .out = activation(steps, name + ".out", 32 * mib),
                      .routed = {},
                      .hidden = {}};
    steps.layer(name, Phase::forward);
    steps.op("layer_norm", 150'000, {x}, {made.normed});
    steps.op("attention", 2'500'000, {made.normed, made.attention.weight}, {made.mixed});
    std::vector<TensorIndex> results = {made.mixed};
    for (std::uint32_t e = 0; e < experts; ++e) {
      const std::string expert = name + ".expert" + std::to_string(e);
      const std::uint64_t parts = parts_of_tokens(l, e, experts);
      made.experts.push_back(parameter(steps, expert, 32 * mib));
      made.routed.push_back(activation(steps, expert + ".routed", 64 * mib * parts / all_parts));
      made.hidden.push_back(activation(steps, expert + ".hidden", 256 * mib * parts / all_parts));
      const TensorIndex result = activation(steps, expert + ".result", 64 * mib * parts / all_parts);
      steps.op("gather", 40'000, {made.mixed}, {made.routed.back()});
      steps.op("mlp_up", static_cast<std::int64_t>(8'000'000 * parts / all_parts),
               {made.routed.back(), made.experts.back().weight}, {made.hidden.back()});
      steps.op("mlp_down", static_cast<std::int64_t>(8'000'000 * parts / all_parts),
               {made.hidden.back(), made.experts.back().weight}, {result});
      results.push_back(result);
    }
    steps.op("combine", 200'000, results, {made.out});
    x = made.out;
    parameters.push_back(made.attention);
    parameters.insert(parameters.end(), made.experts.begin(), made.experts.end());
    all.push_back(std::move(made));
  }
  TensorIndex gradient = activation(steps, "loss.grad", 32 * mib);
  steps.layer("loss", Phase::backward);
  steps.op("loss", 500'000, {x}, {gradient});
  for (std::uint32_t l = layers; l-- > 0;) {
    const ExpertsLayer& made = all[l];
    const std::string name = "layer" + std::to_string(l);
    steps.layer(name, Phase::backward);
    std::vector<TensorIndex> results;
    for (std::uint32_t e = experts; e-- > 0;) {
      const std::uint64_t parts = parts_of_tokens(l, e, experts);
      const TensorIndex hidden = activation(steps, "hidden.grad", 256 * mib * parts / all_parts),
                        routed = activation(steps, "routed.grad", 64 * mib * parts / all_parts);
      const auto ns = static_cast<std::int64_t>(16'000'000 * parts / all_parts);
      steps.op("mlp_down_backward", ns, {gradient, made.hidden[e], made.experts[e].weight},
               {hidden, made.experts[e].gradient});
      steps.op("mlp_up_backward", ns, {hidden, made.routed[e], made.experts[e].weight, made.experts[e].gradient},
               {routed, made.experts[e].gradient});
      results.push_back(routed);
    }
    const TensorIndex mixed = activation(steps, "mixed.grad", 32 * mib), next = activation(steps, "grad", 32 * mib);
    results.push_back(gradient);
    steps.op("combine_backward", 200'000, results, {mixed});
    steps.op("attention_backward", 5'000'000, {mixed, made.normed, made.attention.weight},
             {next, made.attention.gradient});
    gradient = next;
  }
  adam(steps, parameters);
  return steps.finish("experts");
}

Trace adapters_step(std::uint32_t layers) {
  struct Layer {
    TensorIndex base;
    Parameter adapter;
    TensorIndex in, low, out;
  };
  Steps steps;
  std::vector<Layer> all;
  std::vector<Parameter> adapters;
  TensorIndex x = steps.tensor("tokens", 48 * mib, TensorKind::input, true);
  constexpr std::uint32_t matrices = 4;
  for (std::uint32_t l = 0; l < layers * matrices; ++l) {
    const std::string name = "matrix" + std::to_string(l);
    Layer made{.base = steps.tensor(name + ".base", (l % matrices == 3 ? 96 : 48) * mib, TensorKind::weight, true),
               .adapter = parameter(steps, name + ".adapter", 2 * mib),
               .in = x,
               .low = activation(steps, name + ".low", 2 * mib),
               .out = activation(steps, name + ".out", 48 * mib)};
    if (l % matrices == 0) steps.layer("layer" + std::to_string(l / matrices), Phase::forward);
    const TensorIndex plain = activation(steps, name + ".plain", 48 * mib);
    steps.op("mm", l % matrices == 3 ? 3'200'000 : 1'600'000, {x, made.base}, {plain});
    steps.op("mm_low", 120'000, {x, made.adapter.weight}, {made.low});
    steps.op("addmm", 250'000, {plain, made.low, made.adapter.weight}, {made.out});
    x = made.out;
    adapters.push_back(made.adapter);
    all.push_back(made);
  }
  TensorIndex gradient = activation(steps, "loss.grad", 48 * mib);
  steps.layer("loss", Phase::backward);
  steps.op("loss", 500'000, {x}, {gradient});
  for (std::uint32_t l = layers * matrices; l-- > 0;) {
    const Layer& made = all[l];
    if (l % matrices == 3) steps.layer("layer" + std::to_string(l / matrices), Phase::backward);
    const TensorIndex low = activation(steps, "low.grad", 2 * mib), next = activation(steps, "grad", 48 * mib);
    steps.op("adapter_backward", 400'000, {gradient, made.in, made.low, made.adapter.weight},
             {low, made.adapter.gradient});
    steps.op("mm_backward", l % matrices == 3 ? 3'200'000 : 1'600'000, {gradient, low, made.base}, {next});
    gradient = next;
  }
  adam(steps, adapters);
  return steps.finish("adapters");
}

Trace eager_step(std::uint32_t blocks) {
  struct Block {
    Parameter kernel;
    TensorIndex in, convolved, normed, out;
  };
  Steps steps;
  std::vector<Block> all;
  TensorIndex x = steps.tensor("images", 8 * mib, TensorKind::input, true);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const std::string name = "block" + std::to_string(b);
    const std::uint64_t bytes = (b < blocks / 2 ? 16 : 8) * mib;
    Block made{.kernel = parameter(steps, name + ".kernel", (b < blocks / 2 ? 1 : 6) * mib),
               .in = x,
               .convolved = activation(steps, name + ".convolved", bytes),
               .normed = activation(steps, name + ".normed", bytes),
               .out = activation(steps, name + ".out", bytes)};
    steps.layer(name, Phase::forward);
    steps.op("convolution", 14'000'000, {x, made.kernel.weight}, {made.convolved});
    steps.op("batch_norm", 2'000'000, {made.convolved}, {made.normed});
    const TensorIndex added = activation(steps, name + ".added", bytes);
    steps.op("add", 1'500'000, {made.normed, x}, {added});
    steps.op("relu", 1'200'000, {added}, {made.out});
    x = made.out;
    all.push_back(made);
  }
  TensorIndex gradient = activation(steps, "loss.grad", 8 * mib);
  steps.layer("loss", Phase::backward);
  steps.op("loss", 500'000, {x}, {gradient});
  for (std::uint32_t b = blocks; b-- > 0;) {
    const Block& made = all[b];
    const std::uint64_t bytes = (b < blocks / 2 ? 16 : 8) * mib;
    const TensorIndex of_relu = activation(steps, "relu.grad", bytes), of_norm = activation(steps, "norm.grad", bytes),
                      of_in = activation(steps, "convolution.grad", bytes), next = activation(steps, "grad", bytes);
    steps.layer("block" + std::to_string(b), Phase::backward);
    steps.op("threshold_backward", 1'500'000, {gradient, made.out}, {of_relu});
    steps.op("batch_norm_backward", 4'000'000, {of_relu, made.convolved}, {of_norm});
    steps.op("convolution_backward", 28'000'000, {of_norm, made.in, made.kernel.weight}, {of_in, made.kernel.gradient});
    steps.op("add", 1'500'000, {of_in, of_relu}, {next});
    gradient = next;
  }
  for (const Block& made : all) {
    const Parameter& each = made.kernel;
    const auto ns = static_cast<std::int64_t>(each.bytes / 5);  // 5 GB/s a pass
    const TensorIndex root = activation(steps, "root", each.bytes);
    steps.layer("adam", Phase::optimizer);
    steps.op("lerp_", ns, {each.mean, each.gradient}, {each.mean});
    steps.op("mul_", ns, {each.square}, {each.square});
    steps.op("addcmul_", ns, {each.square, each.gradient}, {each.square});
    steps.op("sqrt", ns, {each.square}, {root});
    steps.op("addcdiv_", ns, {each.weight, each.mean, root}, {each.weight});
  }
  return steps.finish("eager");
}

Machine with_middle_tier(Bytes fast, Bytes middle) {
  const auto link = [](std::uint32_t source, std::uint32_t target, std::uint64_t speed, std::uint32_t bus) {
    return Link{.source = {source}, .target = {target}, .bytes_per_s = speed, .latency = {5'000}, .shared = bus};
  };
  Machine machine;
  machine.tiers = {{.name = "gpu", .capacity = fast},
                   {.name = "host", .capacity = middle},
                   {.name = "ssd", .capacity = {std::uint64_t{1} << 44}}};
  machine.links = {link(1, 0, 15'754'000'000, 0), link(0, 1, 15'754'000'000, 1), link(2, 0, 3'200'000'000, 0),
                   link(0, 2, 3'200'000'000, 1)};
  machine.can_recompute = true;
  return machine;
}

Machine on_a_disk(Bytes fast) {
  Machine machine;
  machine.tiers = {{.name = "dram", .capacity = fast}, {.name = "nvme", .capacity = {std::uint64_t{1} << 44}}};
  machine.links = {{.source = {1}, .target = {0}, .bytes_per_s = 2'400'000'000, .latency = {80'000}, .shared = 0},
                   {.source = {0}, .target = {1}, .bytes_per_s = 2'400'000'000, .latency = {80'000}, .shared = 0}};
  machine.granule = {2 * mib};
  return machine;
}

}  // namespace vedette::testing
