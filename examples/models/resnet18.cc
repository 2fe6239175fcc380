// ResNet-18 (He et al., CVPR'16, table 1) in the form used for 32 x 32 images: a 3 x 3 stem without max-pooling.
// Fashion-MNIST is padded to 32 x 32 and repeated to three channels. Activations are most of its memory.
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/padding.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include "models/data.h"
#include "models/model.h"

namespace vedette::examples {
namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct BasicBlockImpl : nn::Module {
  BasicBlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride)
      : conv1(register_module("conv1", convolution(in, out, 3, stride))),
        bn1(register_module("bn1", nn::BatchNorm2d(out))),
        conv2(register_module("conv2", convolution(out, out, 3, 1))),
        bn2(register_module("bn2", nn::BatchNorm2d(out))) {
    if (stride != 1 || in != out) {
      downsample = register_module("downsample", nn::Sequential(convolution(in, out, 1, stride), nn::BatchNorm2d(out)));
    }
  }
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor x = bn2(conv2(bn1(conv1(input)).relu_()));
    return torch::relu(x + (downsample ? downsample->forward(input) : input));
  }
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Sequential downsample{nullptr};
};
TORCH_MODULE(BasicBlock);

struct ResNet18Impl : nn::Module {
  explicit ResNet18Impl(std::int64_t width)
      : conv1(register_module("conv1", convolution(3, width, 3, 1))),
        bn1(register_module("bn1", nn::BatchNorm2d(width))),
        layer1(register_module("layer1", stage(width, width, 1))),
        layer2(register_module("layer2", stage(width, 2 * width, 2))),
        layer3(register_module("layer3", stage(2 * width, 4 * width, 2))),
        layer4(register_module("layer4", stage(4 * width, 8 * width, 2))),
        fc(register_module("fc", nn::Linear(8 * width, 10))) {}
  static nn::Sequential stage(std::int64_t in, std::int64_t out, std::int64_t stride) {
    return nn::Sequential(BasicBlock(in, out, stride), BasicBlock(out, out, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = bn1(conv1(x)).relu_();
    x = layer4->forward(layer3->forward(layer2->forward(layer1->forward(x))));
    return fc(x.mean({2, 3}));
  }
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Sequential layer1, layer2, layer3, layer4;
  nn::Linear fc;
};
TORCH_MODULE(ResNet18);

class Training final : public Model {
 public:
  explicit Training(const ModelOptions& options)
      : batch_(options.batch > 0 ? options.batch
               : options.small   ? 8
                                 : 64),
        images_(options.small ? Images::made_up(batch_ * 16, options.seed) : Images::fashion_mnist()) {
    torch::manual_seed(options.seed);
    net_ = ResNet18(options.small ? 8 : 64);
    adam_ = std::make_unique<torch::optim::Adam>(net_->parameters(), torch::optim::AdamOptions(1e-3));
  }

  nn::Module& module() override { return *net_; }
  torch::optim::Optimizer& optimizer() override { return *adam_; }
  std::int64_t batch() const override { return batch_; }
  at::Tensor loss(std::int64_t step, std::int64_t size) override {
    const auto data = images_->batch(step, batch_, size);
    const auto padded = nn::functional::pad(here(data.images), nn::functional::PadFuncOptions({2, 2, 2, 2}));
    return nn::functional::cross_entropy(net_(padded.expand({-1, 3, -1, -1}).contiguous()), here(data.labels));
  }

 private:
  std::int64_t batch_;
  std::shared_ptr<const Images> images_;
  ResNet18 net_{nullptr};
  std::unique_ptr<torch::optim::Adam> adam_;
};

}  // namespace

std::unique_ptr<Model> make_resnet18(const ModelOptions& options) { return std::make_unique<Training>(options); }

}  // namespace vedette::examples
