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
    if (at_the_begin) at_the_begin();
    std::vector<Tensor> activations;
    activations.push_back(fresh("load", words_, {}, input));
    for (const Tensor& weight : weights_) {
      activations.push_back(fresh("forward", words_, {&activations.back(), &weight}, 1u));
      Tensor scratch = fresh("scratch", words_ / 4, {&weight}, 2u);
      gpu_.drop(scratch);
    }
    if (in_the_middle) in_the_middle(activations);
    Tensor gradient = fresh("loss", words_, {&activations.back()}, 3u);
    for (std::size_t l = weights_.size(); l-- > 0;) {
      Tensor next = fresh("backward", words_, {&gradient, &activations[l], &weights_[l]}, 4u);
      gpu_.drop(activations[l + 1]);
      gpu_.drop(gradient);
      gradient = next;
      gpu_.op("moment", moments_[l], {&gradient});
      gpu_.op("update", weights_[l], {&moments_[l]});
    }
    gpu_.drop(gradient);
    gpu_.drop(activations[0]);
  }

  // A forward alone, in whatever step there is.
  void evaluate(std::uint32_t input) {
    Tensor activation = fresh("load", words_, {}, input);
    for (const Tensor& weight : weights_) {
      Tensor next = fresh("forward", words_, {&activation, &weight}, 1u);
      gpu_.drop(activation);
      activation = next;
    }
    gpu_.expect_right(activation, "an evaluation");
    gpu_.drop(activation);
  }

  void expect_right() {
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      gpu_.expect_right(weights_[l], "weight " + std::to_string(l));
      gpu_.expect_right(moments_[l], "moment " + std::to_string(l));
    }
  }

  std::function<void()> at_the_begin;                       // of a step, before its first op
  std::function<void(std::vector<Tensor>&)> in_the_middle;  // between forward and backward
  bool born_in_ops = false;                                 // as libtorch's results are; else before them

 private:
  Tensor fresh(const char* what, std::size_t words, const std::vector<const Tensor*>& from, std::uint32_t seed) {
    if (born_in_ops) return gpu_.made_in_op(what, words, from, seed);
    Tensor made = gpu_.make(words);
    gpu_.op(what, made, from, seed);
    return made;
  }

  WordsOnGpu& gpu_;
  const std::size_t words_;
  std::vector<Tensor> weights_, moments_;
};

}  // namespace vedette::testing
