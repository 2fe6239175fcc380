// Training of a classifier of large images: those of Fashion-MNIST, enlarged and repeated to three channels.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>

#include "models/model.h"

namespace vedette::examples {

struct ImageNet {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor& images)> classify;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

struct LargeImages {
  std::int64_t side = 224, batch = 1;
};

// `make` is called once, when the generator has the options' seed.
std::unique_ptr<Model> make_large_images(const LargeImages& images, const ModelOptions& options,
                                         const std::function<ImageNet()>& make);

}  // namespace vedette::examples
