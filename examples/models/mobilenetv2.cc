// MobileNetV2 (Sandler et al., CVPR'18, table 2) for 32 x 32 images: the stem and the second stage keep their
// resolution, as is usual there. Expansions make its activations wide and its weights few: most of its ops are
// depthwise and cheap for their bytes.
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/padding.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/rmsprop.h>
#include <torch/utils.h>

#include <array>

#include "models/data.h"
#include "models/model.h"

namespace vedette::examples {
namespace {

namespace nn = torch::nn;

struct Stage {  // t, c, n and s of the paper's table
  std::int64_t expansion, channels, blocks, stride;
};
constexpr std::array stages = {Stage{1, 16, 1, 1}, Stage{6, 24, 2, 1},  Stage{6, 32, 3, 2}, Stage{6, 64, 4, 2},
                               Stage{6, 96, 3, 1}, Stage{6, 160, 3, 2}, Stage{6, 320, 1, 1}};

void add_convolution(nn::Sequential& to, std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                     std::int64_t groups) {
  to->push_back(
      nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).groups(groups).bias(false)));
  to->push_back(nn::BatchNorm2d(out));
}

struct InvertedResidualImpl : nn::Module {
  InvertedResidualImpl(std::int64_t in, std::int64_t out, std::int64_t stride, std::int64_t expansion)
      : adds(stride == 1 && in == out) {
    const std::int64_t wide = in * expansion;
    if (expansion != 1) {
      add_convolution(body, in, wide, 1, 1, 1);
      body->push_back(nn::ReLU6(nn::ReLU6Options().inplace(true)));
    }
    add_convolution(body, wide, wide, 3, stride, wide);
    body->push_back(nn::ReLU6(nn::ReLU6Options().inplace(true)));
    add_convolution(body, wide, out, 1, 1, 1);
    register_module("body", body);
  }
  torch::Tensor forward(const torch::Tensor& x) { return adds ? x + body->forward(x) : body->forward(x); }
  bool adds;
  nn::Sequential body;
};
TORCH_MODULE(InvertedResidual);

nn::Sequential features_of(bool small) {
  const auto width = [&](std::int64_t channels) { return small ? std::max<std::int64_t>(channels / 4, 4) : channels; };
  nn::Sequential net;
  add_convolution(net, 3, width(32), 3, 1, 1);
  net->push_back(nn::ReLU6(nn::ReLU6Options().inplace(true)));
  std::int64_t in = width(32);
  for (const Stage& stage : stages) {
    for (std::int64_t i = 0; i < (small ? 1 : stage.blocks); ++i) {
      net->push_back(InvertedResidual(in, width(stage.channels), i == 0 ? stage.stride : 1, stage.expansion));
      in = width(stage.channels);
    }
  }
  add_convolution(net, in, width(1280), 1, 1, 1);
  net->push_back(nn::ReLU6(nn::ReLU6Options().inplace(true)));
  return net;
}

struct NetImpl : nn::Module {
  explicit NetImpl(bool small)
      : features(register_module("features", features_of(small))),
        classifier(
            register_module("classifier", nn::Sequential(nn::Dropout(0.2), nn::Linear(small ? 320 : 1280, 10)))) {}
  torch::Tensor forward(const torch::Tensor& images) {
    return classifier->forward(features->forward(images).mean({2, 3}));
  }
  nn::Sequential features, classifier;
};
TORCH_MODULE(Net);

class MobileNetV2 final : public Model {
 public:
  explicit MobileNetV2(const ModelOptions& options)
      : batch_(options.batch > 0 ? options.batch
               : options.small   ? 4
                                 : 64),
        images_(options.small ? Images::made_up(batch_ * 16, options.seed) : Images::fashion_mnist()) {
    torch::manual_seed(options.seed);
    net_ = Net(options.small);
    rmsprop_ =
        std::make_unique<torch::optim::RMSprop>(net_->parameters(), torch::optim::RMSpropOptions(1e-3).momentum(0.9));
  }

  nn::Module& module() override { return *net_; }
  torch::optim::Optimizer& optimizer() override { return *rmsprop_; }
  std::int64_t batch() const override { return batch_; }
  at::Tensor loss(std::int64_t step, std::int64_t size) override {
    const auto data = images_->batch(step, batch_, size);
    const auto padded = nn::functional::pad(here(data.images), nn::functional::PadFuncOptions({2, 2, 2, 2}));
    return nn::functional::cross_entropy(net_(padded.expand({-1, 3, -1, -1}).contiguous()), here(data.labels));
  }

 private:
  std::int64_t batch_;
  std::shared_ptr<const Images> images_;
  Net net_{nullptr};
  std::unique_ptr<torch::optim::RMSprop> rmsprop_;
};

}  // namespace

std::unique_ptr<Model> make_mobilenetv2(const ModelOptions& options) { return std::make_unique<MobileNetV2>(options); }

}  // namespace vedette::examples
