// An encoder as in BERT (Devlin et al., NAACL'19): attention both ways, layer norm after each part, dropout, and a
// seventh of the characters hidden, which it predicts. Each batch is padded to its longest sequence, in steps of an
// eighth of the context, so that shapes change from step to step and come again.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <cmath>
#include <vector>

#include "models/data.h"
#include "models/model.h"

namespace vedette::examples {
namespace {

namespace nn = torch::nn;

struct Shape {
  std::int64_t layers, heads, width, context, batch;
};
constexpr double dropped = 0.1;
constexpr double hidden = 0.15;

struct LayerImpl : nn::Module {
  explicit LayerImpl(const Shape& shape)
      : heads(shape.heads),
        attention(register_module("attention", nn::Linear(shape.width, 3 * shape.width))),
        projection(register_module("projection", nn::Linear(shape.width, shape.width))),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        up(register_module("up", nn::Linear(shape.width, 4 * shape.width))),
        down(register_module("down", nn::Linear(4 * shape.width, shape.width))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        dropout(register_module("dropout", nn::Dropout(dropped))) {}
  torch::Tensor attend(const torch::Tensor& x, const torch::Tensor& padding) {
    const auto n = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts = attention(x).view({n, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind();
    auto scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(width / heads));
    scores = dropout(scores.masked_fill(padding, -INFINITY).softmax(-1));
    return projection(torch::matmul(scores, parts[2]).transpose(1, 2).reshape({n, length, width}));
  }
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& padding) {
    x = norm1(x + dropout(attend(x, padding)));
    return norm2(x + dropout(down(torch::gelu(up(x)))));
  }
  std::int64_t heads;
  nn::Linear attention, projection;
  nn::LayerNorm norm1;
  nn::Linear up, down;
  nn::LayerNorm norm2;
  nn::Dropout dropout;
};
TORCH_MODULE(Layer);

struct EncoderImpl : nn::Module {
  EncoderImpl(const Shape& shape, std::int64_t symbols)
      : token(register_module("token", nn::Embedding(symbols, shape.width))),
        position(register_module("position", nn::Embedding(shape.context, shape.width))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        dropout(register_module("dropout", nn::Dropout(dropped))),
        head(register_module("head", nn::Linear(shape.width, symbols))) {
    for (std::int64_t i = 0; i < shape.layers; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), Layer(shape)));
  }
  torch::Tensor forward(const torch::Tensor& symbols, const torch::Tensor& padding) {
    auto x = dropout(norm(token(symbols) + position(torch::arange(symbols.size(1), symbols.options()))));
    for (auto& layer : layers) x = layer(x, padding);
    return head(x);
  }
  nn::Embedding token, position;
  nn::LayerNorm norm;
  nn::Dropout dropout;
  nn::Linear head;
  std::vector<Layer> layers;
};
TORCH_MODULE(Encoder);

class Bert final : public Model {
 public:
  Bert(const Shape& shape, const ModelOptions& options)
      : shape_(shape), text_(options.small ? Text::made_up(1 << 16, options.seed) : Text::licences()) {
    if (options.batch > 0) shape_.batch = options.batch;
    torch::manual_seed(options.seed);
    net_ = Encoder(shape_, text_->symbols() + 2);
    adam_ = std::make_unique<torch::optim::AdamW>(net_->parameters(), torch::optim::AdamWOptions(1e-4));
  }

  nn::Module& module() override { return *net_; }
  torch::optim::Optimizer& optimizer() override { return *adam_; }
  std::int64_t batch() const override { return shape_.batch; }
  at::Tensor loss(std::int64_t step, std::int64_t size) override {
    const std::int64_t padding_symbol = text_->symbols(), hidden_symbol = padding_symbol + 1;
    // 5/8, 8/8, 7/8, 6/8 of the context, and again
    const std::int64_t longest = shape_.context * (5 + step * 3 % 4) / 8;
    const auto text = text_->batch(step, shape_.batch, size, shape_.context).symbols.slice(1, 0, longest);
    const auto place = torch::arange(longest);
    const auto lengths = torch::randint(longest / 2, longest + 1, {size, 1}, torch::kLong);
    const auto padding = place >= lengths;  // [n, longest]
    const auto guessed = torch::rand({size, longest}).lt(hidden).logical_and_(padding.logical_not());
    const auto symbols = text.masked_fill(padding, padding_symbol).masked_fill(guessed, hidden_symbol);
    const auto scores = net_(here(symbols), here(padding).unsqueeze(1).unsqueeze(1));
    constexpr std::int64_t no_guess = -100;  // cross_entropy leaves these out
    return nn::functional::cross_entropy(scores.flatten(0, 1),
                                         here(text.masked_fill(guessed.logical_not(), no_guess)).flatten());
  }

 private:
  Shape shape_;
  std::shared_ptr<const Text> text_;
  Encoder net_{nullptr};
  std::unique_ptr<torch::optim::AdamW> adam_;
};

}  // namespace

std::unique_ptr<Model> make_bert(const ModelOptions& options) {
  constexpr Shape shape = {.layers = 6, .heads = 8, .width = 512, .context = 256, .batch = 16};
  constexpr Shape test_shape = {.layers = 2, .heads = 4, .width = 64, .context = 64, .batch = 4};
  return std::make_unique<Bert>(options.small ? test_shape : shape, options);
}

}  // namespace vedette::examples
