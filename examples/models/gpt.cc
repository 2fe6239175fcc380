// A decoder as in GPT-2 (Radford et al., 2019): learned positions, layer norm before attention and before the
// feed-forward part, GELU. It predicts the next character. Attention is written out, so that its probabilities are
// saved for the backward pass, but in the sizes for a GPU, where it is one operator. Their small forms are the others'.
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/data.h"
#include "models/model.h"

namespace vedette::examples {
namespace {

namespace nn = torch::nn;

struct Shape {
  std::int64_t layers, heads, width, context, batch;
  std::int64_t symbols = 0;  // at least so many, of which the text has fewer
  bool fused = false;        // attention
};

struct BlockImpl : nn::Module {
  explicit BlockImpl(const Shape& shape)
      : heads(shape.heads),
        fused(shape.fused),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        attention(register_module("attention", nn::Linear(shape.width, 3 * shape.width))),
        projection(register_module("projection", nn::Linear(shape.width, shape.width))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        up(register_module("up", nn::Linear(shape.width, 4 * shape.width))),
        down(register_module("down", nn::Linear(4 * shape.width, shape.width))) {}
  torch::Tensor attend(const torch::Tensor& x, const torch::Tensor& future) {
    const auto n = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts = attention(x).view({n, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind();
    if (fused) {
      const auto mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
      return projection(mixed.transpose(1, 2).reshape({n, length, width}));
    }
    auto scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(width / heads));
    scores = scores.masked_fill(future, -INFINITY).softmax(-1);
    return projection(torch::matmul(scores, parts[2]).transpose(1, 2).reshape({n, length, width}));
  }
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& future) {
    x = x + attend(norm1(x), future);
    return x + down(torch::gelu(up(norm2(x))));
  }
  std::int64_t heads;
  bool fused;
  nn::LayerNorm norm1;
  nn::Linear attention, projection;
  nn::LayerNorm norm2;
  nn::Linear up, down;
};
TORCH_MODULE(Block);

struct DecoderImpl : nn::Module {
  DecoderImpl(const Shape& shape, std::int64_t symbols)
      : token(register_module("token", nn::Embedding(symbols, shape.width))),
        position(register_module("position", nn::Embedding(shape.context, shape.width))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        head(register_module("head", nn::Linear(nn::LinearOptions(shape.width, symbols).bias(false)))) {
    for (std::int64_t i = 0; i < shape.layers; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), Block(shape)));
    future = register_buffer("future", torch::ones({shape.context, shape.context}, torch::kBool).triu(1));
  }
  torch::Tensor forward(const torch::Tensor& symbols) {
    const auto length = symbols.size(1);
    auto x = token(symbols) + position(torch::arange(length, symbols.options()));
    const auto mask = future.slice(0, 0, length).slice(1, 0, length);
    for (auto& block : blocks) x = block(x, mask);
    return head(norm(x));
  }
  nn::Embedding token, position;
  nn::LayerNorm norm;
  nn::Linear head;
  std::vector<Block> blocks;
  torch::Tensor future;  // [context, context]: the mask of later positions
};
TORCH_MODULE(Decoder);

class Gpt final : public Model {
 public:
  Gpt(const Shape& shape, const ModelOptions& options)
      : shape_(shape), text_(options.small ? Text::made_up(1 << 16, options.seed) : Text::licences()) {
    if (options.batch > 0) shape_.batch = options.batch;
    torch::manual_seed(options.seed);
    net_ = Decoder(shape_, std::max(text_->symbols(), options.small ? 0 : shape_.symbols));
    adam_ = std::make_unique<torch::optim::AdamW>(net_->parameters(), torch::optim::AdamWOptions(3e-4));
  }

  nn::Module& module() override { return *net_; }
  torch::optim::Optimizer& optimizer() override { return *adam_; }
  std::int64_t batch() const override { return shape_.batch; }
  at::Tensor loss(std::int64_t step, std::int64_t size) override {
    const auto data = text_->batch(step, shape_.batch, size, shape_.context);
    return nn::functional::cross_entropy(net_(here(data.symbols)).flatten(0, 1), here(data.next).flatten());
  }

 private:
  Shape shape_;
  std::shared_ptr<const Text> text_;
  Decoder net_{nullptr};
  std::unique_ptr<torch::optim::AdamW> adam_;
};

constexpr Shape test_shape = {.layers = 2, .heads = 4, .width = 64, .context = 64, .batch = 4};
constexpr std::int64_t symbols_of_gpt2 = 50257;

}  // namespace

std::unique_ptr<Model> make_gpt(const ModelOptions& options) {
  constexpr Shape shape = {.layers = 9, .heads = 12, .width = 768, .context = 256, .batch = 8};
  return std::make_unique<Gpt>(options.small ? test_shape : shape, options);
}

std::unique_ptr<Model> make_gpt_small(const ModelOptions& options) {
  constexpr Shape shape = {.layers = 4, .heads = 4, .width = 128, .context = 128, .batch = 8};
  return std::make_unique<Gpt>(options.small ? test_shape : shape, options);
}

std::unique_ptr<Model> make_gpt2_medium(const ModelOptions& options) {
  constexpr Shape shape = {.layers = 24,
                           .heads = 16,
                           .width = 1024,
                           .context = 1024,
                           .batch = 64,
                           .symbols = symbols_of_gpt2,
                           .fused = true};
  return std::make_unique<Gpt>(options.small ? test_shape : shape, options);
}

std::unique_ptr<Model> make_gpt_1300m(const ModelOptions& options) {
  constexpr Shape shape = {.layers = 24,
                           .heads = 16,
                           .width = 2048,
                           .context = 2048,
                           .batch = 16,
                           .symbols = symbols_of_gpt2,
                           .fused = true};
  return std::make_unique<Gpt>(options.small ? test_shape : shape, options);
}

}  // namespace vedette::examples
