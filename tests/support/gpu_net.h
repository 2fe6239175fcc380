// A training step on the simulated GPU, of words: see gpu_program.h.
//
// Thread rule: one thread.
#pragma once
#include "support/gpu_program.h"

namespace vedette::testing {

// Layers with a weight and a moment each; activations live from forward to backward.
class NetOnGpu {
 public:
  using Tensor = WordsOnGpu::Tensor;

  NetOnGpu(WordsOnGpu& gpu, std::size_t layers, std::size_t words) : gpu_(gpu), words_(words) {
    for (std::size_t l = 0; l < layers; ++l) {
      for (auto* list : {&weights_, &moments_}) {
        list->push_back(gpu.make(words / 2, true));
        gpu.op("init", list->back(), {}, static_cast<std::uint32_t>(l + 1));
      }
      gpu.session->label(weights_.back().name, "weight" + std::to_string(l), TensorKind::weight);
    }
  }

  void step(std::uint32_t input) {
    const auto scope = gpu_.session->step();
    std::vector<Tensor> activations;
    activations.push_back(gpu_.make(words_));
    gpu_.op("load", activations.back(), {}, input);
    for (const Tensor& weight : weights_) {
      activations.push_back(gpu_.make(words_));
      gpu_.op("forward", activations.back(), {&activations[activations.size() - 2], &weight}, 1u);
      Tensor scratch = gpu_.make(words_ / 4);
      gpu_.op("scratch", scratch, {&weight}, 2u);
      gpu_.drop(scratch);
    }
    if (in_the_middle) in_the_middle(activations);
    Tensor gradient = gpu_.make(words_);
    gpu_.op("loss", gradient, {&activations.back()}, 3u);
    for (std::size_t l = weights_.size(); l-- > 0;) {
      Tensor next = gpu_.make(words_);
      gpu_.op("backward", next, {&gradient, &activations[l], &weights_[l]}, 4u);
      gpu_.drop(activations[l + 1]);
      gpu_.drop(gradient);
      gradient = next;
      gpu_.op("moment", moments_[l], {&gradient});
      gpu_.op("update", weights_[l], {&moments_[l]});
    }
    gpu_.drop(gradient);
    gpu_.drop(activations[0]);
  }

  void expect_right() {
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      gpu_.expect_right(weights_[l], "weight " + std::to_string(l));
      gpu_.expect_right(moments_[l], "moment " + std::to_string(l));
    }
  }

  std::function<void(std::vector<Tensor>&)> in_the_middle;  // between forward and backward

 private:
  WordsOnGpu& gpu_;
  const std::size_t words_;
  std::vector<Tensor> weights_, moments_;
};

}  // namespace vedette::testing
