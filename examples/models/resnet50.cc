// ResNet-50 (He et al., CVPR'16, table 1) in its form for images of 224 x 224: a 7 x 7 stem, max-pooling, bottlenecks
// of three convolutions. Fashion-MNIST is enlarged and repeated to three channels. Activations are nearly all of its
// memory: some 170 MB an image in float32.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/optim/sgd.h>

#include <array>

#include "models/large_images.h"

namespace vedette::examples {
namespace {

namespace nn = torch::nn;

struct DeepShape {
  std::int64_t width, side, classes, batch;
  std::array<std::int64_t, 4> blocks;
};

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

constexpr std::int64_t expansion = 4;  // channels of a block's result by those of its middle

struct BottleneckImpl : nn::Module {
  BottleneckImpl(std::int64_t in, std::int64_t middle, std::int64_t stride)
      : conv1(register_module("conv1", convolution(in, middle, 1, 1))),
        bn1(register_module("bn1", nn::BatchNorm2d(middle))),
        conv2(register_module("conv2", convolution(middle, middle, 3, stride))),
        bn2(register_module("bn2", nn::BatchNorm2d(middle))),
        conv3(register_module("conv3", convolution(middle, expansion * middle, 1, 1))),
        bn3(register_module("bn3", nn::BatchNorm2d(expansion * middle))) {
    if (stride != 1 || in != expansion * middle) {
      const nn::BatchNorm2d norm(expansion * middle);
      downsample = register_module("downsample", nn::Sequential(convolution(in, expansion * middle, 1, stride), norm));
    }
  }
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor x = bn3(conv3(bn2(conv2(bn1(conv1(input)).relu_())).relu_()));
    return torch::relu(x + (downsample ? downsample->forward(input) : input));
  }
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Conv2d conv3;
  nn::BatchNorm2d bn3;
  nn::Sequential downsample{nullptr};
};
TORCH_MODULE(Bottleneck);

struct ResNet50Impl : nn::Module {
  explicit ResNet50Impl(const DeepShape& shape)
      : conv1(register_module("conv1",
                              nn::Conv2d(nn::Conv2dOptions(3, shape.width, 7).stride(2).padding(3).bias(false)))),
        bn1(register_module("bn1", nn::BatchNorm2d(shape.width))),
        pool(register_module("pool", nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)))),
        fc(register_module("fc", nn::Linear(8 * expansion * shape.width, shape.classes))) {
    std::int64_t in = shape.width;
    for (std::size_t s = 0; s < shape.blocks.size(); ++s) {
      const std::int64_t middle = shape.width << s;
      nn::Sequential stage;
      for (std::int64_t b = 0; b < shape.blocks[s]; ++b) {
        stage->push_back(Bottleneck(in, middle, b == 0 && s > 0 ? 2 : 1));
        in = expansion * middle;
      }
      stages.push_back(register_module("layer" + std::to_string(s + 1), stage));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    x = pool(bn1(conv1(x)).relu_());
    for (nn::Sequential& stage : stages) x = stage->forward(x);
    return fc(x.mean({2, 3}));
  }
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::MaxPool2d pool;
  std::vector<nn::Sequential> stages;
  nn::Linear fc;
};
TORCH_MODULE(ResNet50);

}  // namespace

std::unique_ptr<Model> make_resnet50(const ModelOptions& options) {
  constexpr DeepShape shape = {.width = 64, .side = 224, .classes = 1000, .batch = 256, .blocks = {3, 4, 6, 3}};
  constexpr DeepShape test_shape = {.width = 8, .side = 48, .classes = 10, .batch = 8, .blocks = {1, 2, 2, 1}};
  const DeepShape& chosen = options.small ? test_shape : shape;
  return make_large_images({.side = chosen.side, .batch = chosen.batch}, options, [&] {
    const ResNet50 net(chosen);
    return ImageNet{.module = net.ptr(),
                    .classify = [net = net.ptr()](const at::Tensor& images) { return net->forward(images); },
                    .optimizer = std::make_unique<torch::optim::SGD>(net->parameters(),
                                                                     torch::optim::SGDOptions(0.01).momentum(0.9))};
  });
}

}  // namespace vedette::examples
