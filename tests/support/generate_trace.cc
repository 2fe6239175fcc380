// Random but sound training steps, layer by layer as a framework would run them.
#include "support/generate_trace.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/liveness.h"

namespace vedette::testing {
namespace {

class Random {  // SplitMix64 (Steele, Lea, Flood, OOPSLA'14): the same numbers everywhere
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t end) {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % end;
  }

 private:
  std::uint64_t state_;
};

// (GCC 12 warns wrongly of an overlap in literal + std::to_string().)
std::string named(std::string_view what, std::uint64_t index) {
  std::string name(what);
  return name.append(std::to_string(index));
}

class Writer {
 public:
  Writer(std::uint64_t seed, const TraceShape& shape) : random_(seed), shape_(shape) {
    trace_.name = named("generated-", seed);
    trace_.source = "tests/support/generate_trace";
    trace_.device = "none";
  }

  Trace write() {
    activation_.push_back(tensor("x0", shape_.largest_activation, TensorKind::input, true));
    for (std::uint32_t l = 1; l <= shape_.layers; ++l) {
      weight_.push_back(tensor(named("w", l), shape_.largest_weight, TensorKind::weight, true));
    }
    for (std::uint32_t l = 1; l <= shape_.layers; ++l) forward(l);
    TensorIndex flowing = tensor(named("g", shape_.layers), trace_.tensors[activation_.back().value].bytes,
                                 TensorKind::activation, false);
    op("loss", "loss", Phase::forward, {activation_.back()}, {flowing});
    for (std::uint32_t l = shape_.layers; l >= 1; --l) flowing = backward(l, flowing);
    for (std::uint32_t l = 1; l <= shape_.layers; ++l) update(l);
    if (shape_.frees) tell_deaths();
    return std::move(trace_);
  }

 private:
  TensorIndex tensor(std::string name, Bytes largest, TensorKind kind, bool persistent) {
    const Bytes bytes = shape_.plain_sizes ? largest : Bytes{1 + random_.below(largest.value)};
    trace_.tensors.push_back({.name = std::move(name), .bytes = bytes, .kind = kind, .persistent = persistent});
    return {static_cast<std::uint32_t>(trace_.tensors.size() - 1)};
  }

  void op(std::string name, const std::string& layer, Phase phase, std::vector<TensorIndex> reads,
          std::vector<TensorIndex> writes) {
    if (trace_.layers.empty() || trace_.layers.back().name != layer || trace_.layers.back().phase != phase) {
      trace_.layers.push_back({.name = layer, .phase = phase});
    }
    for (auto* list : {&reads, &writes}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    const std::int64_t time =
        shape_.plain_sizes ? 1'000'000 : static_cast<std::int64_t>(1'000 + random_.below(3'000'000));
    const Bytes workspace = {
        !shape_.plain_sizes && random_.below(4) == 0 ? random_.below(shape_.largest_activation.value / 2 + 1) : 0};
    trace_.ops.push_back({.name = std::move(name),
                          .layer = LayerIndex{static_cast<std::uint32_t>(trace_.layers.size() - 1)},
                          .phase = phase,
                          .time = {time},
                          .workspace = workspace,
                          .reads = std::move(reads),
                          .writes = std::move(writes)});
  }

  // The activations that layer l reads besides the one before it.
  std::vector<TensorIndex> skips(std::uint32_t l) const {
    if (shape_.kind == TraceShape::Kind::residual && l >= 2) return {activation_[l - 2]};
    if (shape_.kind == TraceShape::Kind::unet && 2 * l > shape_.layers + 1) return {activation_[shape_.layers + 1 - l]};
    return {};
  }

  void forward(std::uint32_t l) {
    const std::string name = named("layer", l);
    TensorIndex last = activation_[l - 1];
    for (std::uint32_t s = 0; s < shape_.short_lived; ++s) {
      const TensorIndex inner = tensor(name + named(".t", s), shape_.largest_activation, TensorKind::activation, false);
      op("scale", name, Phase::forward, {last}, {inner});
      last = inner;
    }
    const TensorIndex out = tensor(named("x", l), shape_.largest_activation, TensorKind::activation, false);
    std::vector<TensorIndex> reads = skips(l);
    reads.insert(reads.end(), {last, weight_[l - 1]});
    op("matmul", name, Phase::forward, std::move(reads), {out});
    if (shape_.plain_sizes || random_.below(2) == 0) op("relu_", name, Phase::forward, {out}, {out});
    activation_.push_back(out);
  }

  TensorIndex backward(std::uint32_t l, TensorIndex flowing) {
    const std::string name = named("layer", l);
    gradient_.resize(weight_.size());
    const Bytes weight_bytes = trace_.tensors[weight_[l - 1].value].bytes;
    for (std::uint32_t s = 0; s < shape_.short_lived; ++s) {
      const TensorIndex inner = tensor(name + named(".b", s), shape_.largest_activation, TensorKind::activation, false);
      op("scale_backward", name, Phase::backward, {flowing, activation_[l]}, {inner});
      flowing = inner;
    }
    gradient_[l - 1] = tensor(named("dw", l), weight_bytes, TensorKind::gradient, false);
    trace_.tensors.back().bytes = weight_bytes;
    std::vector<TensorIndex> reads = skips(l);
    reads.insert(reads.end(), {flowing, activation_[l - 1]});
    op("matmul_backward_weight", name, Phase::backward, std::move(reads), {gradient_[l - 1]});
    const TensorIndex next =
        tensor(named("g", l - 1), trace_.tensors[activation_[l - 1].value].bytes, TensorKind::activation, false);
    op("matmul_backward_input", name, Phase::backward, {flowing, weight_[l - 1]}, {next});
    return next;
  }

  void update(std::uint32_t l) {
    std::vector<TensorIndex> changed = {weight_[l - 1]};
    for (std::uint32_t m = 0; m < shape_.moments; ++m) {
      changed.push_back(tensor(named("m", m + 1) + named(".", l), {1}, TensorKind::optimizer, true));
      trace_.tensors.back().bytes = trace_.tensors[weight_[l - 1].value].bytes;
    }
    std::vector<TensorIndex> reads = changed;
    reads.push_back(gradient_[l - 1]);
    op("update", named("layer", l), Phase::optimizer, std::move(reads), changed);
  }

  // Some tensors outlive their last access, as a program's variables do.
  void tell_deaths() {
    const std::vector<Span<OpIndex>> living = lives(trace_);
    for (std::uint32_t t = 0; t < living.size(); ++t) {
      if (trace_.tensors[t].persistent) continue;
      const std::uint64_t last = living[t].end.value - 1;
      const std::uint64_t death = std::min<std::uint64_t>(last + random_.below(3), trace_.ops.size() - 1);
      trace_.ops[death].frees.push_back({t});
    }
  }

  Random random_;
  TraceShape shape_;
  Trace trace_;
  std::vector<TensorIndex> activation_, weight_, gradient_;
};

}  // namespace

Trace generate_trace(std::uint64_t seed, const TraceShape& shape) { return Writer(seed, shape).write(); }

TraceShape random_shape(std::uint64_t seed) {
  Random random(seed ^ 0x5eed);
  TraceShape shape;
  shape.kind = static_cast<TraceShape::Kind>(random.below(3));
  shape.layers = static_cast<std::uint32_t>(1 + random.below(8));
  shape.short_lived = static_cast<std::uint32_t>(random.below(4));
  shape.largest_activation = {std::uint64_t{4096} << random.below(10)};
  shape.largest_weight = {std::uint64_t{4096} << random.below(10)};
  shape.moments = static_cast<std::uint32_t>(random.below(3));
  shape.frees = random.below(2) == 1;
  return shape;
}

}  // namespace vedette::testing
