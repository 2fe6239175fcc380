// DCGAN (Radford et al., ICLR'16) for 28 x 28 images: a generator and a discriminator, each with an Adam of its own. A
// step is three backward passes (real images, made-up ones, and through the discriminator into the generator) and two
// optimizer steps.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include "models/data.h"
#include "models/mixed_precision.h"
#include "models/model.h"

namespace vedette::examples {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t noise_width = 100;

nn::ConvTranspose2dOptions up(std::int64_t in, std::int64_t out, std::int64_t kernel) {
  return nn::ConvTranspose2dOptions(in, out, kernel).bias(false);
}
nn::Conv2dOptions down(std::int64_t in, std::int64_t out) {
  return nn::Conv2dOptions(in, out, 4).stride(2).padding(1).bias(false);
}

nn::Sequential generator(std::int64_t width) {  // noise [n, 100, 1, 1] to images [n, 1, 28, 28] in [-1, 1]
  return nn::Sequential(nn::ConvTranspose2d(up(noise_width, 4 * width, 4)), nn::BatchNorm2d(4 * width), nn::ReLU(),
                        nn::ConvTranspose2d(up(4 * width, 2 * width, 3).stride(2).padding(1)),
                        nn::BatchNorm2d(2 * width), nn::ReLU(),
                        nn::ConvTranspose2d(up(2 * width, width, 4).stride(2).padding(1)), nn::BatchNorm2d(width),
                        nn::ReLU(), nn::ConvTranspose2d(up(width, 1, 4).stride(2).padding(1)), nn::Tanh());
}

nn::Sequential discriminator(std::int64_t width) {  // images to scores [n, 1, 1, 1]
  const auto slope = nn::LeakyReLUOptions().negative_slope(0.2);
  return nn::Sequential(nn::Conv2d(down(1, width)), nn::LeakyReLU(slope), nn::Conv2d(down(width, 2 * width)),
                        nn::BatchNorm2d(2 * width), nn::LeakyReLU(slope), nn::Conv2d(down(2 * width, 4 * width)),
                        nn::BatchNorm2d(4 * width), nn::LeakyReLU(slope),
                        nn::Conv2d(nn::Conv2dOptions(4 * width, 1, 3).bias(false)));
}

struct BothImpl : nn::Module {
  explicit BothImpl(std::int64_t width)
      : generates(register_module("generator", generator(width))),
        judges(register_module("discriminator", discriminator(width))) {}
  nn::Sequential generates, judges;
};
TORCH_MODULE(Both);

class Dcgan final : public Model {
 public:
  explicit Dcgan(const ModelOptions& options)
      : batch_(options.batch > 0 ? options.batch
               : options.small   ? 16
                                 : 128),
        images_(options.small ? Images::made_up(batch_ * 16, options.seed) : Images::fashion_mnist()) {
    torch::manual_seed(options.seed);
    both_ = Both(options.small ? 16 : 64);
    const auto adam = torch::optim::AdamOptions(2e-4).betas({0.5, 0.999});
    generator_adam_ = std::make_unique<torch::optim::Adam>(both_->generates->parameters(), adam);
    discriminator_adam_ = std::make_unique<torch::optim::Adam>(both_->judges->parameters(), adam);
  }

  nn::Module& module() override { return *both_; }
  torch::optim::Optimizer& optimizer() override { return *generator_adam_; }
  std::vector<torch::optim::Optimizer*> optimizers() override {
    return {generator_adam_.get(), discriminator_adam_.get()};
  }
  std::int64_t batch() const override { return batch_; }
  at::Tensor loss(std::int64_t step, std::int64_t size) override {  // the discriminator's
    const at::Tensor real = judge(here(images_->batch(step, batch_, size).images.mul_(2).sub_(1)), 1);
    return real + judge(both_->generates->forward(here(torch::randn({size, noise_width, 1, 1}))).detach(), 0);
  }

  float train_step(std::int64_t step, std::int64_t size) override {
    if (size == 0) size = batch_;
    both_->judges->zero_grad();
    const at::Tensor real =
        forward([&] { return judge(here(images_->batch(step, batch_, size).images.mul_(2).sub_(1)), 1); });
    scaled(real).backward();
    const at::Tensor made = forward([&] {
      return both_->generates->forward(here(torch::randn({size, noise_width, 1, 1})));
    });
    const at::Tensor fake = forward([&] { return judge(made.detach(), 0); });
    step_by(*discriminator_adam_, fake);
    both_->generates->zero_grad();
    const at::Tensor fooled = forward([&] { return judge(made, 1); });
    step_by(*generator_adam_, fooled);
    end_step();
    return real.item<float>() + fake.item<float>() + fooled.item<float>();
  }

 private:
  at::Tensor forward(const auto& pass) {
    const Autocast cast = autocast();
    return pass();
  }
  at::Tensor judge(const at::Tensor& images, double truth) {
    const at::Tensor scores = both_->judges->forward(images).flatten();
    return nn::functional::binary_cross_entropy_with_logits(scores, torch::full_like(scores, truth));
  }

  std::int64_t batch_;
  std::shared_ptr<const Images> images_;
  Both both_{nullptr};
  std::unique_ptr<torch::optim::Adam> generator_adam_, discriminator_adam_;
};

}  // namespace

std::unique_ptr<Model> make_dcgan(const ModelOptions& options) { return std::make_unique<Dcgan>(options); }

}  // namespace vedette::examples
