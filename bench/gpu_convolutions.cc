// One step of ResNet-50, from its shapes: see gpu_shapes.h. Channels last, bf16; batch norm keeps its input, and its
// ReLU is part of it. SGD with momentum in float32. The speed that is assumed has no layer's time: the roofline shares
// it.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "gpu_roofline.h"
#include "gpu_shapes.h"

namespace vedette::bench {
namespace {

constexpr std::array nets{ResNet{"ResNet-50, 256 images", 256, 2900}};

struct Convolution {
  TensorIndex weight, master, momentum, in, made, out;  // `made`: before batch norm
  double flop = 0, count = 0;
};

class Step : RooflineStep {
 public:
  Step(const ResNet& net, const Card& card, bool can_recompute)
      : RooflineStep(net.name, card, can_recompute), net_(net) {}
  Trace take() {
    TensorIndex x = tensor("images", 2 * net_.images * 3 * 224 * 224);
    forward("copy", 0, {}, {x});
    x = convolve(x, 3, 64, 7, 112);
    const TensorIndex pooled = tensor("pooled", bytes(64, 56));
    forward("max_pool", 0, {x}, {pooled});
    const TensorIndex before_pool = std::exchange(x, pooled);
    std::vector<std::pair<std::size_t, std::size_t>> blocks;  // the first convolution of each, and of the next
    std::vector<std::pair<TensorIndex, TensorIndex>> ends;    // a block's input and its result
    double in = 64;
    constexpr std::array counts{3, 4, 6, 3};
    for (std::size_t stage = 0; stage < counts.size(); ++stage) {
      const double middle = 64 << stage, side = 56 >> stage;
      for (int b = 0; b < counts[stage]; ++b) {
        const std::size_t first = convolutions_.size();
        const TensorIndex input = x;
        const double side_before = b == 0 && stage > 0 ? 2 * side : side;
        x = convolve(x, in, middle, 1, side_before);
        x = convolve(x, middle, middle, 3, side);
        x = convolve(x, middle, 4 * middle, 1, side);
        const TensorIndex shortcut = b == 0 ? convolve(input, in, 4 * middle, 1, side) : input;
        const TensorIndex sum = tensor("block", bytes(4 * middle, side));
        forward("add_relu", 0, {x, shortcut}, {sum});
        ends.emplace_back(input, x = sum);
        blocks.emplace_back(first, convolutions_.size());
        in = 4 * middle;
      }
    }
    TensorIndex dx = tensor("d block", bytes(in, 7));
    op("head", 0, {x}, {dx}, Phase::backward);
    for (std::size_t b = blocks.size(); b-- > 0;) dx = block_backward(blocks[b], ends[b], dx);
    const TensorIndex dstem = tensor("d stem", bytes(64, 112));
    op("max_pool_backward", 0, {before_pool, dx}, {dstem}, Phase::backward);
    static_cast<void>(back(convolutions_[0], dstem));
    scale_to(net_.seconds(card_));
    return std::move(trace_);
  }

 private:
  double bytes(double channels, double side) const { return 2 * net_.images * channels * side * side; }
  double size_of(TensorIndex t) const { return static_cast<double>(trace_.tensors[t.value].bytes.value); }
  TensorIndex convolve(TensorIndex in, double channels, double results, double kernel, double side) {
    Convolution c;
    c.count = channels * results * kernel * kernel;
    c.flop = 2 * net_.images * c.count * side * side;
    c.weight = tensor("weight", 2 * c.count, TensorKind::weight, true);
    c.master = tensor("master", 4 * c.count, TensorKind::optimizer, true);
    c.momentum = tensor("momentum", 4 * c.count, TensorKind::optimizer, true);
    c.in = in;
    c.made = tensor("conv", bytes(results, side));
    c.out = tensor("norm", bytes(results, side));
    forward("convolution", c.flop, {in, c.weight}, {c.made});
    forward("batch_norm_relu", 0, {c.made}, {c.out});
    convolutions_.push_back(c);
    return c.out;
  }
  // From the gradient of its result to that of its input, which is new.
  TensorIndex back(const Convolution& c, TensorIndex dout) {
    const TensorIndex dmade = tensor("d conv", size_of(c.made)), din = tensor("d input", size_of(c.in)),
                      gradient = tensor("gradient", 2 * c.count, TensorKind::gradient);
    op("batch_norm_relu_backward", 0, {dout, c.made, c.out}, {dmade}, Phase::backward);
    op("convolution_backward", c.flop, {dmade, c.weight}, {din}, Phase::backward);
    op("convolution_backward", c.flop, {dmade, c.in}, {gradient}, Phase::backward);
    op("sgd", 0, {gradient, c.master, c.momentum}, {c.weight, c.master, c.momentum}, Phase::optimizer);
    return din;
  }
  TensorIndex block_backward(std::pair<std::size_t, std::size_t> convolutions, std::pair<TensorIndex, TensorIndex> ends,
                             TensorIndex dx) {
    const auto [first, next] = convolutions;
    const TensorIndex dsum = tensor("d sum", size_of(ends.second));
    op("relu_backward", 0, {dx, ends.second}, {dsum}, Phase::backward);
    TensorIndex din = dsum;
    for (std::size_t c = first + 3; c-- > first;) din = back(convolutions_[c], din);
    const TensorIndex other = next == first + 4 ? back(convolutions_[first + 3], dsum) : dsum;
    op("add_", 0, {din, other}, {din}, Phase::backward);
    return din;
  }
  const ResNet& net_;
  std::vector<Convolution> convolutions_;
};

}  // namespace

std::span<const ResNet> residual_networks() { return nets; }

Trace step_of(const ResNet& net, const Card& card, bool can_recompute) { return Step(net, card, can_recompute).take(); }

// Results of batch norm and sums are half of the activations; bytes bound them, some 20 % of a forward. The
// convolutions' results are recomputed block by block, but for each block's input, a sixth of them.
Fluid fluid_of(const ResNet& net, const Card& card) {
  const Trace step = step_of(net, card, false);
  Fluid fluid{.seconds = net.seconds(card), .cheap_part = 0.5, .cheap_time = 0.2, .kept = 1.0 / 6};
  for (const Op& op : step.ops) {
    if (op.phase != Phase::forward) continue;
    for (const TensorIndex t : op.writes) fluid.activations += static_cast<double>(step.tensors[t.value].bytes.value);
  }
  double parameters = 0;
  for (const Tensor& each : step.tensors)
    parameters += each.kind == TensorKind::weight ? static_cast<double>(each.bytes.value) / 2 : 0;
  fluid.optimizer = 8 * parameters;
  fluid.peak = fluid.activations + fluid.optimizer + 4 * parameters;
  return fluid;
}

}  // namespace vedette::bench
