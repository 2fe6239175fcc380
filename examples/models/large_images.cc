// The step that these classifiers share: see large_images.h.
#include "models/large_images.h"

#include <ATen/ops/upsample_nearest2d.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include "models/data.h"

namespace vedette::examples {
namespace {

class Training final : public Model {
 public:
  Training(const LargeImages& images, const ModelOptions& options, const std::function<ImageNet()>& make)
      : side_(images.side),
        batch_(options.batch > 0 ? options.batch : images.batch),
        images_(options.small ? Images::made_up(batch_ * 16, options.seed) : Images::fashion_mnist()) {
    torch::manual_seed(options.seed);
    net_ = make();
  }

  torch::nn::Module& module() override { return *net_.module; }
  torch::optim::Optimizer& optimizer() override { return *net_.optimizer; }
  std::int64_t batch() const override { return batch_; }
  at::Tensor loss(std::int64_t step, std::int64_t size) override {
    const auto data = images_->batch(step, batch_, size);
    const auto large = at::upsample_nearest2d(here(data.images), {side_, side_});
    const auto scores = net_.classify(large.expand({-1, 3, -1, -1}).contiguous());
    return torch::nn::functional::cross_entropy(scores, here(data.labels));
  }

 private:
  const std::int64_t side_, batch_;
  std::shared_ptr<const Images> images_;
  ImageNet net_;
};

}  // namespace

std::unique_ptr<Model> make_large_images(const LargeImages& images, const ModelOptions& options,
                                         const std::function<ImageNet()>& make) {
  return std::make_unique<Training>(images, options, make);
}

}  // namespace vedette::examples
