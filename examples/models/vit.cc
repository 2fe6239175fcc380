// ViT-B/16 (Dosovitskiy et al., ICLR'21): patches of an image as a sequence, a class token, learned positions, layers
// as in an encoder with layer norm first. Attention is one operator, but in the small form. Fashion-MNIST is enlarged
// and repeated to three channels.
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <vector>

#include "models/large_images.h"

namespace vedette::examples {
namespace {

namespace nn = torch::nn;

struct Shape {
  std::int64_t layers, heads, width, side, patch, classes, batch;
  bool fused = true;  // attention; else it is written out
};

struct LayerImpl : nn::Module {
  explicit LayerImpl(const Shape& shape)
      : heads(shape.heads),
        fused(shape.fused),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        attention(register_module("attention", nn::Linear(shape.width, 3 * shape.width))),
        projection(register_module("projection", nn::Linear(shape.width, shape.width))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        up(register_module("up", nn::Linear(shape.width, 4 * shape.width))),
        down(register_module("down", nn::Linear(4 * shape.width, shape.width))) {}
  torch::Tensor attend(const torch::Tensor& x) {
    const auto n = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts = attention(x).view({n, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind();
    if (!fused) {
      const auto scores =
          torch::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(width / heads));
      return projection(torch::matmul(scores.softmax(-1), parts[2]).transpose(1, 2).reshape({n, length, width}));
    }
    const auto mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    return projection(mixed.transpose(1, 2).reshape({n, length, width}));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = x + attend(norm1(x));
    return x + down(torch::gelu(up(norm2(x))));
  }
  std::int64_t heads;
  bool fused;
  nn::LayerNorm norm1;
  nn::Linear attention, projection;
  nn::LayerNorm norm2;
  nn::Linear up, down;
};
TORCH_MODULE(Layer);

struct EncoderImpl : nn::Module {
  explicit EncoderImpl(const Shape& shape)
      : patches(
            register_module("patches", nn::Conv2d(nn::Conv2dOptions(3, shape.width, shape.patch).stride(shape.patch)))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        head(register_module("head", nn::Linear(shape.width, shape.classes))) {
    for (std::int64_t i = 0; i < shape.layers; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), Layer(shape)));
    const std::int64_t count = shape.side / shape.patch;
    token = register_parameter("token", torch::zeros({1, 1, shape.width}));
    position = register_parameter("position", torch::randn({1, count * count + 1, shape.width}) * 0.02);
  }
  torch::Tensor forward(const torch::Tensor& images) {
    auto x = patches(images).flatten(2).transpose(1, 2);
    x = torch::cat({token.expand({x.size(0), -1, -1}), x}, 1) + position;
    for (auto& layer : layers) x = layer(x);
    return head(norm(x.select(1, 0)));
  }
  nn::Conv2d patches;
  nn::LayerNorm norm;
  nn::Linear head;
  std::vector<Layer> layers;
  torch::Tensor token, position;
};
TORCH_MODULE(Encoder);

}  // namespace

std::unique_ptr<Model> make_vit(const ModelOptions& options) {
  constexpr Shape shape = {
      .layers = 12, .heads = 12, .width = 768, .side = 224, .patch = 16, .classes = 1000, .batch = 512};
  constexpr Shape test_shape = {
      .layers = 2, .heads = 4, .width = 64, .side = 64, .patch = 8, .classes = 10, .batch = 8, .fused = false};
  const Shape& chosen = options.small ? test_shape : shape;
  return make_large_images({.side = chosen.side, .batch = chosen.batch}, options, [&] {
    const Encoder net(chosen);
    return ImageNet{
        .module = net.ptr(),
        .classify = [net = net.ptr()](const at::Tensor& images) { return net->forward(images); },
        .optimizer = std::make_unique<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(3e-4))};
  });
}

}  // namespace vedette::examples
