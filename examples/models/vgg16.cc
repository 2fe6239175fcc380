// VGG-16 (Simonyan & Zisserman, ICLR'15, configuration D) in the form used for 32 x 32 images: batch norm after each
// convolution, one linear layer of 512 in place of the two of 4096. A straight chain: only its
// neighbours need an activation.
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/padding.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <array>

#include "models/data.h"
#include "models/model.h"

namespace vedette::examples {
namespace {

namespace nn = torch::nn;

nn::Sequential vgg16(std::int64_t divisor) {
  constexpr std::int64_t pool = 0;
  constexpr std::array layers = {64L,  64L,  pool, 128L, 128L, pool, 256L, 256L, 256L,
                                 pool, 512L, 512L, 512L, pool, 512L, 512L, 512L, pool};
  nn::Sequential net;
  std::int64_t in = 3;
  for (const std::int64_t channels : layers) {
    if (channels == pool) {
      net->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(2)));
      continue;
    }
    net->push_back(nn::Conv2d(nn::Conv2dOptions(in, channels / divisor, 3).padding(1)));
    net->push_back(nn::BatchNorm2d(channels / divisor));
    net->push_back(nn::ReLU(nn::ReLUOptions().inplace(true)));
    in = channels / divisor;
  }
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(in, in));
  net->push_back(nn::ReLU(nn::ReLUOptions().inplace(true)));
  net->push_back(nn::Dropout(0.5));
  net->push_back(nn::Linear(in, 10));
  return net;
}

class Vgg16 final : public Model {
 public:
  explicit Vgg16(const ModelOptions& options)
      : batch_(options.batch > 0 ? options.batch
               : options.small   ? 8
                                 : 128),
        images_(options.small ? Images::made_up(batch_ * 16, options.seed) : Images::fashion_mnist()) {
    torch::manual_seed(options.seed);
    net_ = vgg16(options.small ? 8 : 1);
    sgd_ = std::make_unique<torch::optim::SGD>(net_->parameters(),
                                               torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(5e-4));
  }

  nn::Module& module() override { return *net_; }
  torch::optim::Optimizer& optimizer() override { return *sgd_; }
  std::int64_t batch() const override { return batch_; }
  at::Tensor loss(std::int64_t step, std::int64_t size) override {
    const auto data = images_->batch(step, batch_, size);
    const auto padded = nn::functional::pad(here(data.images), nn::functional::PadFuncOptions({2, 2, 2, 2}));
    return nn::functional::cross_entropy(net_->forward(padded.expand({-1, 3, -1, -1}).contiguous()), here(data.labels));
  }

 private:
  std::int64_t batch_;
  std::shared_ptr<const Images> images_;
  nn::Sequential net_{nullptr};
  std::unique_ptr<torch::optim::SGD> sgd_;
};

}  // namespace

std::unique_ptr<Model> make_vgg16(const ModelOptions& options) { return std::make_unique<Vgg16>(options); }

}  // namespace vedette::examples
