// The table of models, and the training step they share.
#include "models/model.h"

#include <array>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "models/data.h"

namespace vedette::examples {
namespace {

void read_images() { Images::fashion_mnist(); }
void read_text() { Text::licences(); }

}  // namespace

float Model::train_step(std::int64_t step, std::int64_t size) {
  optimizer().zero_grad();
  const at::Tensor value = loss(step, size == 0 ? batch() : size);
  value.backward();
  optimizer().step();
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
