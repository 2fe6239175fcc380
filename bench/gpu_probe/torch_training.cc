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
  bool fused_attention = false;
};

struct BlockImpl : nn::Module {
  explicit BlockImpl(const Shape& shape)
      : heads(shape.heads),
        fused(shape.fused_attention),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        attention(register_module("attention", nn::Linear(shape.width, 3 * shape.width))),
        projection(register_module("projection", nn::Linear(shape.width, shape.width))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({shape.width})))),
        up(register_module("up", nn::Linear(shape.width, 4 * shape.width))),
        down(register_module("down", nn::Linear(4 * shape.width, shape.width))) {}
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& future) {
    const auto n = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts = attention(norm1(x)).view({n, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind();
    x = x + projection(attend(parts, future).transpose(1, 2).reshape({n, length, width}));
    return x + down(torch::gelu(up(norm2(x))));
  }
  torch::Tensor attend(const std::vector<torch::Tensor>& parts, const torch::Tensor& future) const {
    if (fused) return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, /*is_causal=*/true);
    auto scores =
        torch::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(parts[0].size(-1)));
    return torch::matmul(scores.masked_fill(future, -INFINITY).softmax(-1), parts[2]);
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

std::vector<std::byte> bytes_of(const std::vector<torch::Tensor>& tensors) {
  std::vector<std::byte> bytes;
  for (const torch::Tensor& each : tensors) {
    const torch::Tensor home = each.detach().to(torch::kCPU).contiguous();
    const auto* const begin = static_cast<const std::byte*>(home.data_ptr());
    bytes.insert(bytes.end(), begin, begin + home.nbytes());
  }
  return bytes;
}

// A network, its data and its optimizer; what differs is how the loss comes about.
template <class Net, class Optimizer>
class NetTraining : public Training {
 public:
  void queue_step() override {
    optimizer_->zero_grad();
    loss_ = forward();
    loss_.backward();
    optimizer_->step();
    loss_ = loss_.detach();
  }
  float loss() override { return loss_.template item<float>(); }
  std::vector<std::byte> parameter_bytes() override { return bytes_of(net_->parameters()); }

 protected:
  virtual torch::Tensor forward() = 0;
  template <class Settings>
  void place(const TrainingOptions& options, const Settings& settings) {
    net_->to(torch::Device(options.device));
    if (options.bf16) {  // not Module::to(), which would convert masks and positions as well
      for (torch::Tensor& each : net_->parameters()) each.set_data(each.to(torch::kBFloat16));
    }
    optimizer_ = std::make_unique<Optimizer>(net_->parameters(), settings);
  }
  Net net_{nullptr};
  torch::Tensor inputs_, labels_, loss_;

 private:
  std::unique_ptr<Optimizer> optimizer_;
};

class ImageTraining final : public NetTraining<nn::Sequential, torch::optim::SGD> {
 public:
  explicit ImageTraining(const TrainingOptions& options) {
    torch::manual_seed(1);
    const std::int64_t batch = options.small ? 2 : 64, side = options.small ? 32 : 224;
    net_ = options.small ? resnet50(8, {1, 1}) : resnet50(64, {3, 4, 6, 3});
    inputs_ = torch::randn({batch, 3, side, side}).to(options.device);
    labels_ = torch::randint(1000, {batch}, torch::kLong).to(options.device);
    place(options, torch::optim::SGDOptions(0.01).momentum(0.9));
  }

 private:
  torch::Tensor forward() override { return nn::functional::cross_entropy(net_->forward(inputs_), labels_); }
};

class VectorTraining final : public NetTraining<nn::Sequential, torch::optim::AdamW> {
 public:
  explicit VectorTraining(const TrainingOptions& options) {
    torch::manual_seed(1);
    const std::int64_t batch = options.small ? 64 : 8192, width = options.small ? 256 : 4096;
    net_ = nn::Sequential();
    for (int i = 0; i < 6; ++i) {
      net_->push_back(nn::Linear(width, width));
      net_->push_back(nn::Functional(torch::relu));
    }
    net_->push_back(nn::Linear(width, 1000));
    inputs_ = torch::randn({batch, width}).to(options.device);
    if (options.bf16) inputs_ = inputs_.to(torch::kBFloat16);
    labels_ = torch::randint(1000, {batch}, torch::kLong).to(options.device);
    place(options, torch::optim::AdamWOptions(3e-4));
  }

 private:
  torch::Tensor forward() override { return nn::functional::cross_entropy(net_->forward(inputs_), labels_); }
};

Shape shape_of(const TrainingOptions& options) {
  if (options.small) return {2, 2, 32, 16, 100, options.fused_attention};
  if (options.model == "gpt_large") return {24, 16, 1024, 1024, 50304, options.fused_attention};
  return {12, 12, 768, 512, 50304, options.fused_attention};
}

class TextTraining final : public NetTraining<Decoder, torch::optim::AdamW> {
 public:
  explicit TextTraining(const TrainingOptions& options) {
    torch::manual_seed(1);
    const Shape shape = shape_of(options);
    const torch::Tensor symbols =
        torch::randint(shape.symbols, {options.small ? 2 : 8, shape.context + 1}, torch::kLong);
    inputs_ = symbols.slice(1, 0, -1).contiguous().to(options.device);
    labels_ = symbols.slice(1, 1).contiguous().to(options.device);
    net_ = Decoder(shape);
    place(options, torch::optim::AdamWOptions(3e-4));
  }

 private:
  torch::Tensor forward() override {
    return nn::functional::cross_entropy(net_->forward(inputs_).flatten(0, 1), labels_.flatten());
  }
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
  if (options.model == "mlp") return std::make_unique<VectorTraining>(options);
  if (options.model == "gpt2" || options.model == "gpt_large") return std::make_unique<TextTraining>(options);
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
