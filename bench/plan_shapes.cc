// Traces written op by op, as the training loop would.
#include "plan_shapes.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace vedette::bench {
namespace {

constexpr std::uint64_t unit = std::uint64_t{2} << 20;
constexpr double gflop_per_ms = 0.11;  // of a convolution on two cores

using Ids = std::vector<TensorIndex>;

struct Parameter {
  TensorIndex value, gradient, first, second;  // the last two: Adam's moments
};

class Step {
 public:
  explicit Step(std::string name) {
    trace_.name = std::move(name);
    trace_.source = "made by bench/plan_shapes";
    trace_.device = "cpu";
  }

  TensorIndex tensor(const char* name, double bytes, TensorKind kind = TensorKind::activation,
                     bool persistent = false) {
    const std::uint64_t whole = (static_cast<std::uint64_t>(bytes) + unit - 1) / unit * unit;
    trace_.tensors.push_back({.name = name, .bytes = {whole}, .kind = kind, .persistent = persistent});
    return {static_cast<std::uint32_t>(trace_.tensors.size() - 1)};
  }
  double bytes(TensorIndex t) const { return static_cast<double>(trace_.tensors[t.value].bytes.value); }

  void op(const char* name, double us, Ids reads, Ids writes, Phase phase) {
    for (Ids* ids : {&reads, &writes}) {
      std::sort(ids->begin(), ids->end());
      ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
    }
    Op made;
    made.name = name;
    made.phase = phase;
    made.time = {static_cast<std::int64_t>(us * 1e3)};
    made.reads = std::move(reads);
    made.writes = std::move(writes);
    trace_.ops.push_back(std::move(made));
  }
  void forward(const char* name, double us, Ids reads, Ids writes) {
    op(name, us, std::move(reads), std::move(writes), Phase::forward);
  }
  void backward(const char* name, double us, Ids reads, Ids writes) {
    op(name, us, std::move(reads), std::move(writes), Phase::backward);
  }

  Parameter parameter(double bytes, bool gradient_persists) {
    const Parameter made{tensor("weight", bytes, TensorKind::weight, true),
                         tensor("gradient", bytes, TensorKind::gradient, gradient_persists),
                         tensor("exp_avg", bytes, TensorKind::optimizer, true),
                         tensor("exp_avg_sq", bytes, TensorKind::optimizer, true)};
    parameters_.push_back(made);
    return made;
  }

  void adam(double total_us) {
    double all = 0;
    for (const Parameter& p : parameters_) all += bytes(p.value);
    for (const Parameter& p : parameters_) {
      const double us = total_us * bytes(p.value) / all / 4;
      const TensorIndex denominator = tensor("denominator", bytes(p.value), TensorKind::workspace);
      op("lerp_", us, {p.gradient, p.first}, {p.first}, Phase::optimizer);
      op("addcmul_", us, {p.gradient, p.second}, {p.second}, Phase::optimizer);
      op("sqrt", us, {p.second}, {denominator}, Phase::optimizer);
      op("addcdiv_", us, {p.value, p.first, denominator}, {p.value}, Phase::optimizer);
    }
  }

  Trace take() { return std::move(trace_); }

 private:
  Trace trace_;
  std::vector<Parameter> parameters_;
};

struct Decoder {  // sizes in bytes, work in multiples of one width x 3 width product
  static constexpr int layers = 12;
  static constexpr double width = 640, tokens = 8 * 256, vocabulary = 8000, heads = 10;
  static constexpr double hidden = tokens * width * 4, scores = 8 * heads * 256 * 256 * 4, square = width * width * 4;
  static constexpr double us = 4700e3 / (layers * 4.6 * 3 + 12);
};

struct DecoderLayer {
  Parameter qkv, proj, up, down;
  TensorIndex x, norm1, heads, weights, mixed, middle, norm2, inner, gelu;
};

TensorIndex decoder_forward(Step& step, DecoderLayer& l, TensorIndex x) {
  constexpr double hidden = Decoder::hidden, us = Decoder::us;
  l.x = x;
  l.norm1 = step.tensor("norm1", hidden);
  step.forward("layer_norm", 2000, {x}, {l.norm1});
  l.heads = step.tensor("qkv", 3 * hidden);
  step.forward("mm", us, {l.norm1, l.qkv.value}, {l.heads});
  const TensorIndex scores = step.tensor("scores", Decoder::scores);
  step.forward("bmm", us / 5, {l.heads}, {scores});
  l.weights = step.tensor("softmax", Decoder::scores);
  step.forward("softmax", us / 5, {scores}, {l.weights});
  l.mixed = step.tensor("mixed", hidden);
  step.forward("bmm", us / 5, {l.weights, l.heads}, {l.mixed});
  const TensorIndex projected = step.tensor("projected", hidden);
  step.forward("mm", us / 3, {l.mixed, l.proj.value}, {projected});
  l.middle = step.tensor("middle", hidden);
  step.forward("add", 1500, {x, projected}, {l.middle});
  l.norm2 = step.tensor("norm2", hidden);
  step.forward("layer_norm", 2000, {l.middle}, {l.norm2});
  l.inner = step.tensor("inner", 4 * hidden);
  step.forward("mm", us * 4 / 3, {l.norm2, l.up.value}, {l.inner});
  l.gelu = step.tensor("gelu", 4 * hidden);
  step.forward("gelu", 9000, {l.inner}, {l.gelu});
  const TensorIndex out = step.tensor("out", hidden);
  step.forward("mm", us * 4 / 3, {l.gelu, l.down.value}, {out});
  const TensorIndex sum = step.tensor("x", hidden);
  step.forward("add", 1500, {l.middle, out}, {sum});
  return sum;
}

TensorIndex decoder_backward(Step& step, const DecoderLayer& l, TensorIndex dx) {
  constexpr double hidden = Decoder::hidden, us = Decoder::us;
  const TensorIndex dgelu = step.tensor("d gelu", 4 * hidden), dinner = step.tensor("d inner", 4 * hidden);
  step.backward("mm", us * 4 / 3, {dx, l.down.value}, {dgelu});
  step.backward("mm", us * 4 / 3, {dx, l.gelu}, {l.down.gradient});
  step.backward("gelu_backward", 12000, {dgelu, l.inner}, {dinner});
  const TensorIndex dnorm2 = step.tensor("d norm2", hidden), dmiddle = step.tensor("d middle", hidden);
  step.backward("mm", us * 4 / 3, {dinner, l.up.value}, {dnorm2});
  step.backward("mm", us * 4 / 3, {dinner, l.norm2}, {l.up.gradient});
  step.backward("layer_norm_backward", 3000, {dnorm2, l.middle}, {dmiddle});
  step.backward("add_", 1500, {dmiddle, dx}, {dmiddle});
  const TensorIndex dmixed = step.tensor("d mixed", hidden), dweights = step.tensor("d weights", Decoder::scores);
  step.backward("mm", us / 3, {dmiddle, l.proj.value}, {dmixed});
  step.backward("mm", us / 3, {dmiddle, l.mixed}, {l.proj.gradient});
  step.backward("bmm", us / 5, {dmixed, l.heads}, {dweights});
  const TensorIndex dheads = step.tensor("d qkv", 3 * hidden), dscores = step.tensor("d scores", Decoder::scores);
  step.backward("bmm", us / 5, {dmixed, l.weights}, {dheads});
  step.backward("softmax_backward", us / 5, {dweights, l.weights}, {dscores});
  step.backward("bmm", us * 3 / 10, {dscores, l.heads, dheads}, {dheads});
  const TensorIndex dnorm1 = step.tensor("d norm1", hidden), result = step.tensor("d x", hidden);
  step.backward("mm", us, {dheads, l.qkv.value}, {dnorm1});
  step.backward("mm", us, {dheads, l.norm1}, {l.qkv.gradient});
  step.backward("layer_norm_backward", 3000, {dnorm1, l.x}, {result});
  step.backward("add_", 1500, {result, dmiddle}, {result});
  return result;
}

struct Recorded {  // the ops of ResNet's forward, for its backward
  enum class Kind { convolution, norm, relu, add } kind;
  TensorIndex in, out;
  Parameter weight;
  double us;
};

class ResNet {
 public:
  Trace run() {
    image_ = step_.tensor("image", 64 * 3 * 32 * 32 * 4, TensorKind::input, true);
    TensorIndex x = relu(norm(convolution(image_, 3, 64, 32)));
    double in = 64, size = 32;
    for (const double width : {64.0, 128.0, 256.0, 512.0}) {
      for (int block = 0; block < 2; ++block) {
        const bool shrinks = width > 64 && block == 0;
        if (shrinks) size /= 2;
        const TensorIndex inner = relu(norm(convolution(x, in, width, size)));
        const TensorIndex sum = norm(convolution(inner, width, width, size));
        if (shrinks) x = norm(convolution(x, in, width, size, 1));
        step_.forward("add_", step_.bytes(sum) / 10e3, {sum, x}, {sum});
        tape_.push_back({Recorded::Kind::add, x, sum, {}, 0});
        x = relu(sum);
        in = width;
      }
    }
    TensorIndex start = step_.tensor("d y", step_.bytes(x));
    step_.backward("loss", 500, {x}, {start});
    gradients_[x] = start;
    for (auto each = tape_.rbegin(); each != tape_.rend(); ++each) back(*each);
    step_.adam(25e3);
    return step_.take();
  }

 private:
  TensorIndex convolution(TensorIndex x, double in, double out, double size, double window = 9) {
    const double us = in * out * window * size * size * 64 * 2 / 1e9 / gflop_per_ms * 1e3;
    const Parameter weight = step_.parameter(in * out * window * 4, true);
    const TensorIndex y = step_.tensor("convolution", 64 * out * size * size * 4);
    step_.forward("convolution", us, {x, weight.value}, {y});
    tape_.push_back({Recorded::Kind::convolution, x, y, weight, us});
    return y;
  }
  TensorIndex norm(TensorIndex x) {
    const TensorIndex y = step_.tensor("batch_norm", step_.bytes(x));
    step_.forward("batch_norm", step_.bytes(x) / 8e3, {x}, {y});
    tape_.push_back({Recorded::Kind::norm, x, y, {}, step_.bytes(x) / 5e3});
    return y;
  }
  TensorIndex relu(TensorIndex x) {
    step_.forward("relu_", step_.bytes(x) / 12e3, {x}, {x});
    tape_.push_back({Recorded::Kind::relu, x, x, {}, step_.bytes(x) / 8e3});
    return x;
  }

  void back(const Recorded& r) {
    const TensorIndex dy = gradients_.at(r.out);
    if (r.kind == Recorded::Kind::add) {
      gradients_[r.in] = dy;
    } else if (r.kind == Recorded::Kind::convolution && r.in == image_) {
      step_.backward("convolution_backward", r.us, {dy, r.in}, {r.weight.gradient});
    } else if (r.kind == Recorded::Kind::convolution) {
      const TensorIndex dx = step_.tensor("d x", step_.bytes(r.in));
      step_.backward("convolution_backward", 2 * r.us, {dy, r.in, r.weight.value}, {dx, r.weight.gradient});
      const auto other = gradients_.find(r.in);
      if (other != gradients_.end()) {
        step_.backward("add_", step_.bytes(dx) / 10e3, {dx, other->second}, {other->second});
      } else {
        gradients_[r.in] = dx;
      }
    } else {
      const TensorIndex dx = step_.tensor("d x", step_.bytes(r.in));
      step_.backward(r.kind == Recorded::Kind::norm ? "batch_norm_backward" : "relu_backward", r.us, {dy, r.in}, {dx});
      gradients_[r.in] = dx;
    }
  }

  Step step_{"resnet18"};
  TensorIndex image_;
  std::vector<Recorded> tape_;
  std::map<TensorIndex, TensorIndex> gradients_;
};

}  // namespace

Trace gpt_step() {
  constexpr double hidden = Decoder::hidden, us = Decoder::us, square = Decoder::square;
  constexpr double logit_bytes = Decoder::tokens * Decoder::vocabulary * 4;
  Step step("gpt 63m");
  const Parameter embedding = step.parameter(Decoder::vocabulary * Decoder::width * 4, false);
  std::vector<DecoderLayer> layers(Decoder::layers);
  for (DecoderLayer& l : layers) {
    l.qkv = step.parameter(3 * square, false);
    l.proj = step.parameter(square, false);
    l.up = step.parameter(4 * square, false);
    l.down = step.parameter(4 * square, false);
  }
  TensorIndex x = step.tensor("x", hidden);
  step.forward("embedding", 3000, {embedding.value}, {x});
  for (DecoderLayer& l : layers) x = decoder_forward(step, l, x);
  const TensorIndex logits = step.tensor("logits", logit_bytes), chances = step.tensor("log_softmax", logit_bytes),
                    dlogits = step.tensor("d logits", logit_bytes);
  step.forward("mm", 2 * us, {x, embedding.value}, {logits});
  step.forward("log_softmax", 30000, {logits}, {chances});
  step.backward("log_softmax_backward", 30000, {chances}, {dlogits});
  TensorIndex dx = step.tensor("d x", hidden);
  step.backward("mm", 2 * us, {dlogits, embedding.value}, {dx});
  step.backward("mm", 2 * us, {dlogits, x}, {embedding.gradient});
  for (auto l = layers.rbegin(); l != layers.rend(); ++l) dx = decoder_backward(step, *l, dx);
  step.backward("embedding_backward", 5000, {dx, embedding.gradient}, {embedding.gradient});
  step.adam(150e3);
  return step.take();
}

Trace resnet_step() { return ResNet().run(); }

}  // namespace vedette::bench
