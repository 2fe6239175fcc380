// The table of models, and the training step they share.
#include "models/model.h"

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <array>

#include "models/data.h"
#include "models/mixed_precision.h"

namespace vedette::examples {
namespace {

void read_images() { Images::fashion_mnist(); }
void read_text() { Text::licences(); }
void read_nothing() {}

}  // namespace

std::vector<torch::optim::Optimizer*> Model::optimizers() { return {&optimizer()}; }

c10::Device Model::device() {
  const auto parameters = module().parameters();
  return parameters.empty() ? c10::Device(at::kCPU) : parameters.front().device();
}

at::Tensor Model::here(const at::Tensor& data) {
  // A run on the CPU has no operator here: recordings count operators.
  const c10::Device where = device();
  return where.is_cpu() ? data : data.to(where);
}

Autocast Model::autocast() { return Autocast(device().type(), mixed_precision_); }

at::Tensor Model::scaled(const at::Tensor& loss) {
  if (!mixed_precision_) return loss;
  if (!scaler_) scaler_ = std::make_shared<GradScaler>(device());
  return scaler_->scale(loss);
}

void Model::step_by(torch::optim::Optimizer& optimizer, const at::Tensor& loss) {
  const auto backward = [&] { scaled(loss).backward(); };
  step_by_ ? step_by_(optimizer, backward) : backward();
  if (scaler_) {
    scaler_->step(optimizer);
  } else if (!step_by_) {
    optimizer.step();
  }
}

std::vector<at::Tensor> Model::scaler_state() {
  if (mixed_precision_ && !scaler_) scaler_ = std::make_shared<GradScaler>(device());
  return scaler_ ? scaler_->state() : std::vector<at::Tensor>();
}

void Model::end_step() {
  if (scaler_) scaler_->update();
}

float Model::train_step(std::int64_t step, std::int64_t size) {
  optimizer().zero_grad();
  at::Tensor value;
  {
    const Autocast cast = autocast();
    value = loss(step, size == 0 ? batch() : size);
  }
  step_by(optimizer(), value);
  end_step();
  return value.item<float>();
}

float Model::evaluate(std::int64_t step) {
  const at::NoGradGuard no_gradients;
  module().eval();
  const float value = loss(step, batch()).item<float>();
  module().train();
  return value;
}

std::span<const ModelEntry> models() noexcept {
  static constexpr std::array table = {
      ModelEntry{"mlp", "three wide layers with dropout on Fashion-MNIST, Adam", &make_mlp, &read_images},
      ModelEntry{"resnet18", "ResNet-18 for 32 x 32 images on Fashion-MNIST, Adam", &make_resnet18, &read_images},
      ModelEntry{"lstm", "two LSTM layers over the rows of Fashion-MNIST images, RMSprop", &make_lstm, &read_images},
      ModelEntry{"gpt", "a GPT-2-like decoder of 64 million parameters on the characters of licences, AdamW", &make_gpt,
                 &read_text},
      ModelEntry{"gpt-small", "the same decoder with 0.8 million parameters", &make_gpt_small, &read_text},
      ModelEntry{"mobilenetv2", "MobileNetV2 for 32 x 32 images on Fashion-MNIST, RMSprop with momentum",
                 &make_mobilenetv2, &read_images},
      ModelEntry{"vgg16", "VGG-16 for 32 x 32 images on Fashion-MNIST, SGD with momentum", &make_vgg16, &read_images},
      ModelEntry{"dcgan", "DCGAN on Fashion-MNIST, a generator and a discriminator with an Adam each", &make_dcgan,
                 &read_images},
      ModelEntry{"bert", "a BERT-like encoder with dropout and padding of changing length on licences, AdamW",
                 &make_bert, &read_text},
      ModelEntry{"recommender", "a DLRM-like recommender: a table of 1 GiB, a hundredth of its rows hot, SGD",
                 &make_recommender, &read_nothing},
      ModelEntry{"resnet50",
                 "ResNet-50 for images of 224 x 224 on Fashion-MNIST, SGD with momentum, 256 images: for a GPU",
                 &make_resnet50, &read_images},
      ModelEntry{"vit", "ViT-B/16 for images of 224 x 224 on Fashion-MNIST, AdamW, 512 images: for a GPU", &make_vit,
                 &read_images},
      ModelEntry{"gpt2-medium", "GPT-2 medium on the characters of licences, AdamW, 64 k tokens: for a GPU",
                 &make_gpt2_medium, &read_text},
      ModelEntry{"gpt-1.3b", "a decoder of 1.3 billion parameters on licences, AdamW, 32 k tokens: for a GPU",
                 &make_gpt_1300m, &read_text},
      ModelEntry{"script", "the TorchScript file that --script names, a classifier of images, on Fashion-MNIST, SGD",
                 &make_script, &read_images},
  };
  return table;
}

std::unique_ptr<Model> make_model(std::string_view name, const ModelOptions& options) {
  for (const ModelEntry& entry : models()) {
    if (entry.name == name) return entry.make(options);
  }
  return nullptr;
}

}  // namespace vedette::examples
