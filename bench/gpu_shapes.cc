// Layers, their ops and the fluid bound: see gpu_shapes.h.
#include "gpu_shapes.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "gpu_roofline.h"

namespace vedette::bench {
namespace {

constexpr std::array models{
    Transformer{"GPT-2 medium, 64 k tokens", 1024, 24, 65536, 1024, 50257, 300},
    Transformer{"GPT 1.3B, 32 k tokens", 2048, 24, 32768, 2048, 50257, 400},
    Transformer{"7B, 16 k tokens", 4096, 32, 16384, 2048, 32000, 400},
    Transformer{"13B, 16 k tokens", 5120, 40, 16384, 2048, 32000, 400},
    Transformer{"ViT-B/16, 512 images", 768, 12, 512 * 197, 197, 5, 250, false},
};

constexpr std::array few_tokens{
    Transformer{"GPT 1.3B, 8 k tokens", 2048, 24, 8192, 2048, 50257, 400},
    Transformer{"GPT 1.3B, 16 k tokens", 2048, 24, 16384, 2048, 50257, 400},
    Transformer{"GPT 1.3B, 32 k tokens", 2048, 24, 32768, 2048, 50257, 400},
};

struct Parameter {
  TensorIndex weight, master, first, second;
  double count = 0;
};

struct Layer {
  Parameter qkv, proj, up, down;
  TensorIndex x, norm1, heads, mixed, middle, norm2, inner, gelu;
};

class Step : RooflineStep {
 public:
  Step(const Transformer& model, const Card& card, bool can_recompute)
      : RooflineStep(model.name, card, can_recompute), model_(model) {}

  Trace take() {
    const double t = model_.tokens, w = model_.width, hidden = 2 * t * w;
    const Parameter embedding = parameter(model_.vocabulary * w);
    std::vector<Layer> layers(static_cast<std::size_t>(model_.layers));
    for (Layer& l : layers) {
      l.qkv = parameter(3 * w * w), l.proj = parameter(w * w);
      l.up = parameter(4 * w * w), l.down = parameter(4 * w * w);
    }
    TensorIndex x = tensor("x", hidden);
    forward("embedding", 0, {embedding.weight}, {x});
    for (Layer& l : layers) x = forward_of(l, x);
    const double logit_count = t * model_.vocabulary, head_flop = 2 * t * w * model_.vocabulary;
    const TensorIndex logits = tensor("logits", 2 * logit_count), chances = tensor("log_softmax", 4 * logit_count);
    op("mm", head_flop, {x, embedding.weight}, {logits}, Phase::forward);
    op("log_softmax", 0, {logits}, {chances}, Phase::forward);
    op("log_softmax_backward", 0, {chances}, {logits}, Phase::backward);
    TensorIndex dx = tensor("d x", hidden);
    const TensorIndex dembedding = tensor("gradient", 2 * embedding.count, TensorKind::gradient);
    op("mm", head_flop, {logits, embedding.weight}, {dx}, Phase::backward);
    op("mm", head_flop, {logits, x}, {dembedding}, Phase::backward);
    for (auto l = layers.rbegin(); l != layers.rend(); ++l) dx = backward_of(*l, dx);
    op("embedding_backward", 0, {dx, dembedding}, {dembedding}, Phase::backward);
    update(embedding, dembedding);
    scale_to(model_.seconds(card_));
    return std::move(trace_);
  }

 private:
  Parameter parameter(double count) {
    return {.weight = tensor("weight", 2 * count, TensorKind::weight, true),
            .master = tensor("master", 4 * count, TensorKind::optimizer, true),
            .first = tensor("exp_avg", 4 * count, TensorKind::optimizer, true),
            .second = tensor("exp_avg_sq", 4 * count, TensorKind::optimizer, true),
            .count = count};
  }
  TensorIndex forward_of(Layer& l, TensorIndex x) {
    const double t = model_.tokens, w = model_.width, hidden = 2 * t * w;
    l.x = x;
    l.norm1 = tensor("norm1", hidden);
    forward("layer_norm", 0, {x}, {l.norm1});
    l.heads = tensor("qkv", 3 * hidden);
    forward("mm", 6 * t * w * w, {l.norm1, l.qkv.weight}, {l.heads});
    l.mixed = tensor("attention", hidden);
    forward("attention", attention(), {l.heads}, {l.mixed});
    const TensorIndex projected = tensor("projected", hidden);
    forward("mm", 2 * t * w * w, {l.mixed, l.proj.weight}, {projected});
    l.middle = tensor("middle", hidden);
    forward("add", 0, {x, projected}, {l.middle});
    l.norm2 = tensor("norm2", hidden);
    forward("layer_norm", 0, {l.middle}, {l.norm2});
    l.inner = tensor("inner", 4 * hidden);
    forward("mm", 8 * t * w * w, {l.norm2, l.up.weight}, {l.inner});
    l.gelu = tensor("gelu", 4 * hidden);
    forward("gelu", 0, {l.inner}, {l.gelu});
    const TensorIndex out = tensor("out", hidden);
    forward("mm", 8 * t * w * w, {l.gelu, l.down.weight}, {out});
    const TensorIndex sum = tensor("x", hidden);
    forward("add", 0, {l.middle, out}, {sum});
    return sum;
  }

  TensorIndex backward_of(const Layer& l, TensorIndex dx) {
    const double t = model_.tokens, w = model_.width, hidden = 2 * t * w;
    const auto product = [&](double flop, TensorIndex dy, const Parameter& p, TensorIndex in, TensorIndex din) {
      const TensorIndex gradient = tensor("gradient", 2 * p.count, TensorKind::gradient);
      backward("mm", flop, {dy, p.weight}, {din});
      backward("mm", flop, {dy, in}, {gradient});
      update(p, gradient);
    };
    const TensorIndex dgelu = tensor("d gelu", 4 * hidden), dinner = tensor("d inner", 4 * hidden);
    product(8 * t * w * w, dx, l.down, l.gelu, dgelu);
    backward("gelu_backward", 0, {dgelu, l.inner}, {dinner});
    const TensorIndex dnorm2 = tensor("d norm2", hidden), dmiddle = tensor("d middle", hidden);
    product(8 * t * w * w, dinner, l.up, l.norm2, dnorm2);
    backward("layer_norm_backward", 0, {dnorm2, l.middle}, {dmiddle});
    backward("add_", 0, {dmiddle, dx}, {dmiddle});
    const TensorIndex dmixed = tensor("d attention", hidden), dheads = tensor("d qkv", 3 * hidden);
    product(2 * t * w * w, dmiddle, l.proj, l.mixed, dmixed);
    backward("attention_backward", 2 * attention(), {dmixed, l.heads, l.mixed}, {dheads});
    const TensorIndex dnorm1 = tensor("d norm1", hidden), result = tensor("d x", hidden);
    product(6 * t * w * w, dheads, l.qkv, l.norm1, dnorm1);
    backward("layer_norm_backward", 0, {dnorm1, l.x}, {result});
    backward("add_", 0, {result, dmiddle}, {result});
    return result;
  }

  double attention() const { return 2 * model_.tokens * model_.length * model_.width; }  // causal: half of the square

  void update(const Parameter& p, TensorIndex gradient) {
    op("adamw", 0, {gradient, p.master, p.first, p.second}, {p.weight, p.master, p.first, p.second}, Phase::optimizer);
  }

  const Transformer& model_;
};

}  // namespace

std::span<const Transformer> transformers() { return models; }
std::span<const Transformer> short_steps() { return few_tokens; }

std::span<const Card> cards() {
  static constexpr Card all[] = {{"H200", "h200-pcie5", 989e12, 4.8e12, 130e9},
                                 {"H100", "h100-pcie5", 989e12, 3.35e12, 74e9},
                                 {"4090", "rtx4090-pcie4", 165.2e12, 1.008e12, 23.5e9, true},
                                 {"GH200", "gh200", 989e12, 4e12, 88e9, true},
                                 {"GB200", "gb200", 2500e12, 8e12, 171e9, true},
                                 {"H200 beside a busy processor", "h200-pcie5", 989e12, 4.8e12, 130e9, true, 108, 70,
                                  " of two sockets of DDR5 (JustVugg/colibri#537)"}};
  return all;
}

Trace step_of(const Transformer& model, const Card& card, bool can_recompute) {
  return Step(model, card, can_recompute).take();
}

// Norms, activations and sums are 45 % of the activations and 4 % of a forward to recompute. The rest is recomputed
// layer by layer, but for each layer's input.
Fluid fluid_of(const Transformer& model, const Card& card) {
  return {.seconds = model.seconds(card),
          .peak = model.peak(),
          .activations = model.activations(),
          .optimizer = model.optimizer(),
          .cheap_part = 0.45,
          .cheap_time = 0.04,
          .kept = 2.0 / 34};
}

double fluid_bound(const Fluid& model, double share, const Rates& rates, bool recomputes) {
  constexpr int steps = 20;
  const double cheap_part = model.cheap_part, cheap_time = model.cheap_time, kept = model.kept;
  const double forward = model.seconds / 3, backward = 2 * forward;
  const double need = model.peak * (1 - share), all = model.activations;
  double best = 0;
  for (int c = 0; c <= (recomputes ? steps : 0); ++c) {
    for (int l = 0; l <= (recomputes ? steps : 0); ++l) {
      const double cheap = cheap_part * all * c / steps, layers = (1 - cheap_part) * all * l / steps * (1 - kept);
      const double extra = cheap_time * forward * c / steps + forward * l / steps;
      for (int o = 0; o <= steps; ++o) {
        const double streamed = model.optimizer * o / steps;
        const double swapped = std::max(0.0, need - cheap - layers - streamed);
        if (swapped > all - cheap - layers) continue;
        const double time = std::max(forward, swapped / rates.out) +
                            std::max({backward + extra, (swapped + streamed) / rates.in, streamed / rates.out,
                                      (swapped + 2 * streamed) / rates.together});
        best = std::max(best, (forward + backward) / time);
      }
    }
  }
  return best;
}

double seconds_with_update_on_host(const Transformer& model, const Card& card, const Rates& links,
                                   double processor_bytes_per_s) {
  const Trace trace = step_of(model, card, false);
  double device = 0, out = 0, processor = 0, in = 0;  // when each is free
  for (const Op& op : trace.ops) {
    if (op.phase != Phase::optimizer) {
      device += static_cast<double>(op.time.value) * 1e-9;
      continue;
    }
    for (const TensorIndex each : op.writes) {
      if (trace.tensors[each.value].kind != TensorKind::weight) continue;
      const auto bytes = static_cast<double>(trace.tensors[each.value].bytes.value);
      out = std::max(out, device) + bytes / links.out;
      processor = std::max(processor, out) + 14 * bytes / processor_bytes_per_s;
      in = std::max(in, processor) + bytes / links.in;
    }
  }
  return std::max(device, in);
}

}  // namespace vedette::bench
