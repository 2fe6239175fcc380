// A multilayer perceptron, so wide that its weights and Adam's moments take most of its memory.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include "models/data.h"
#include "models/model.h"

namespace vedette::examples {
namespace {

class Mlp final : public Model {
 public:
  explicit Mlp(const ModelOptions& options)
      : batch_(options.batch > 0 ? options.batch
               : options.small   ? 32
                                 : 256),
        images_(options.small ? Images::made_up(batch_ * 16, options.seed) : Images::fashion_mnist()) {
    torch::manual_seed(options.seed);
    const std::int64_t width = options.small ? 256 : 2048;
    net_ = torch::nn::Sequential(torch::nn::Linear(784, width), torch::nn::ReLU(), torch::nn::Dropout(0.1),
                                 torch::nn::Linear(width, width), torch::nn::ReLU(), torch::nn::Linear(width, 10));
    adam_ = std::make_unique<torch::optim::Adam>(net_->parameters(), torch::optim::AdamOptions(1e-3));
  }

  torch::nn::Module& module() override { return *net_; }
  torch::optim::Optimizer& optimizer() override { return *adam_; }
  std::int64_t batch() const override { return batch_; }
  at::Tensor loss(std::int64_t step, std::int64_t size) override {
    const auto data = images_->batch(step, batch_, size);
    return torch::nn::functional::cross_entropy(net_->forward(here(data.images).flatten(1)), here(data.labels));
  }

 private:
  std::int64_t batch_;
  std::shared_ptr<const Images> images_;
  torch::nn::Sequential net_{nullptr};
  std::unique_ptr<torch::optim::Adam> adam_;
};

}  // namespace

std::unique_ptr<Model> make_mlp(const ModelOptions& options) { return std::make_unique<Mlp>(options); }

}  // namespace vedette::examples
