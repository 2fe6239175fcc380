// The models and the observer of operators: see torch_training.h.
#include "gpu_probe/torch_training.h"

#include <ATen/record_function.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <atomic>
#include <cmath>
#include <stdexcept>

namespace vedette::gpu {
namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct BottleneckImpl : nn::Module {
  BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride)
      : path(register_module("path", nn::Sequential(convolution(in, width, 1, 1), nn::BatchNorm2d(width),
                                                    nn::Functional(torch::relu), convolution(width, width, 3, stride),
                                                    nn::BatchNorm2d(width), nn::Functional(torch::relu),
                                                    convolution(width, 4 * width, 1, 1), nn::BatchNorm2d(4 * width)))) {
    if (stride != 1 || in != 4 * width) {
      shortcut = register_module("shortcut",
                                 nn::Sequential(convolution(in, 4 * width, 1, stride), nn::BatchNorm2d(4 * width)));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(path->forward(x) + (shortcut ? shortcut->forward(x) : x));
  }
  nn::Sequential path, shortcut{nullptr};
};
TORCH_MODULE(Bottleneck);

nn::Sequential resnet50(std::int64_t width, const std::vector<int>& depths) {
  nn::Sequential net(convolution(3, width, 7, 2), nn::BatchNorm2d(width), nn::Functional(torch::relu),
                     nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t in = width;
  for (std::size_t stage = 0; stage < depths.size(); ++stage) {
    const std::int64_t out = width << stage;
    for (int i = 0; i < depths[stage]; ++i) {
      net->push_back(Bottleneck(in, out, i == 0 && stage > 0 ? 2 : 1));
      in = 4 * out;
    }
  }
  net->push_back(nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({1, 1})));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(in, 1000));
  return net;
}

struct Shape {
  std::int64_t layers, heads, width, context, symbols;
};

struct BlockImpl : nn::Module {
  explicit BlockImpl(const Shape& shape)
      : heads(shape.heads),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        attention(register_module("attention", nn::Linear(shape.width, 3 * shape.width))),
        projection(register_module("projection", nn::Linear(shape.width, shape.width))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        up(register_module("up", nn::Linear(shape.width, 4 * shape.width))),
        down(register_module("down", nn::Linear(4 * shape.width, shape.width))) {}
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& future) {
    const auto n = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts = attention(norm1(x)).view({n, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind();
    auto scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(width / heads));
    scores = scores.masked_fill(future, -INFINITY).softmax(-1);
    x = x + projection(torch::matmul(scores, parts[2]).transpose(1, 2).reshape({n, length, width}));
    return x + down(torch::gelu(up(norm2(x))));
  }
  std::int64_t heads;
  nn::LayerNorm norm1;
  nn::Linear attention, projection;
  nn::LayerNorm norm2;
  nn::Linear up, down;
};
TORCH_MODULE(Block);

struct DecoderImpl : nn::Module {
  explicit DecoderImpl(const Shape& shape)
      : token(register_module("token", nn::Embedding(shape.symbols, shape.width))),
        position(register_module("position", nn::Embedding(shape.context, shape.width))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        head(register_module("head", nn::Linear(nn::LinearOptions(shape.width, shape.symbols).bias(false)))) {
    for (std::int64_t i = 0; i < shape.layers; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), Block(shape)));
    future = register_buffer("future", torch::ones({shape.context, shape.context}, torch::kBool).triu(1));
    places = register_buffer("places", torch::arange(shape.context));
  }
  torch::Tensor forward(const torch::Tensor& symbols) {
    torch::Tensor x = token(symbols) + position(places);
    for (Block& block : blocks) x = block(x, future);
    return head(norm(x));
  }
  nn::Embedding token, position;
  nn::LayerNorm norm;
  nn::Linear head;
  std::vector<Block> blocks;
  torch::Tensor future, places;
};
TORCH_MODULE(Decoder);

class ImageTraining final : public Training {
 public:
  explicit ImageTraining(const TrainingOptions& options) {
    torch::manual_seed(1);
    const torch::Device device(options.device);
    const std::int64_t batch = options.small ? 2 : 64, side = options.small ? 32 : 224;
    net_ = options.small ? resnet50(8, {1, 1}) : resnet50(64, {3, 4, 6, 3});
    images_ = torch::randn({batch, 3, side, side}).to(device);
    labels_ = torch::randint(1000, {batch}, torch::kLong).to(device);
    net_->to(device);
    sgd_ = std::make_unique<torch::optim::SGD>(net_->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  }
  float step() override {
    sgd_->zero_grad();
    const torch::Tensor loss = nn::functional::cross_entropy(net_->forward(images_), labels_);
    loss.backward();
    sgd_->step();
    return loss.item<float>();
  }

 private:
  nn::Sequential net_{nullptr};
  torch::Tensor images_, labels_;
  std::unique_ptr<torch::optim::SGD> sgd_;
};

class TextTraining final : public Training {
 public:
  explicit TextTraining(const TrainingOptions& options) {
    torch::manual_seed(1);
    const torch::Device device(options.device);
    const Shape shape = options.small ? Shape{2, 2, 32, 16, 100} : Shape{12, 12, 768, 512, 50304};
    symbols_ = torch::randint(shape.symbols, {options.small ? 2 : 8, shape.context + 1}, torch::kLong).to(device);
    net_ = Decoder(shape);
    net_->to(device);
    adam_ = std::make_unique<torch::optim::AdamW>(net_->parameters(), torch::optim::AdamWOptions(3e-4));
  }
  float step() override {
    adam_->zero_grad();
    const torch::Tensor scores = net_(symbols_.slice(1, 0, -1));
    const torch::Tensor loss = nn::functional::cross_entropy(scores.flatten(0, 1), symbols_.slice(1, 1).flatten());
    loss.backward();
    adam_->step();
    return loss.item<float>();
  }

 private:
  torch::Tensor symbols_;
  Decoder net_{nullptr};
  std::unique_ptr<torch::optim::AdamW> adam_;
};

// RecordFunction takes a plain function: what it calls is a global of this file, set while no operator runs.
std::function<void()> on_tick;
std::atomic<std::uint64_t> ticks{0};  // relaxed: a count

std::unique_ptr<at::ObserverContext> began(const at::RecordFunction&) {
  ticks.fetch_add(1, std::memory_order_relaxed);
  if (on_tick) on_tick();
  return nullptr;
}

}  // namespace

std::unique_ptr<Training> make_training(const TrainingOptions& options) {
  if (options.model == "resnet50") return std::make_unique<ImageTraining>(options);
  if (options.model == "gpt2") return std::make_unique<TextTraining>(options);
  throw std::runtime_error("no such model: " + options.model);
}

Ticks::Ticks(std::function<void()> tick) {
  on_tick = std::move(tick);
  handle_ = at::addGlobalCallback(
      at::RecordFunctionCallback(began).scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

Ticks::~Ticks() {
  at::removeCallback(handle_);
  on_tick = nullptr;
}

std::uint64_t Ticks::count() { return ticks.load(std::memory_order_relaxed); }

}  // namespace vedette::gpu
