// Training in mixed precision, as torch.amp has it in Python: the forward pass under autocast to bf16, a loss that is
// scaled, and a scale that follows the gradients. libtorch's C++ interface has operators for it, but no such classes.
//
// Thread rule: the training thread.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace vedette::examples {

// While it lives, operators of that device run in bf16 where libtorch's list says so. Of one forward pass.
class [[nodiscard]] Autocast {
 public:
  explicit Autocast(c10::DeviceType device, bool on = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const c10::DeviceType device_;
  const bool on_;
};

// torch.amp.GradScaler with its defaults. A step whose gradients are infinite or no numbers is left out and halves the
// scale; so many finite ones in a row double it.
class GradScaler {
 public:
  struct Options {
    double scale = 65536;
    std::int64_t growth_interval = 2000;
  };
  explicit GradScaler(c10::Device device, Options options);
  explicit GradScaler(c10::Device device) : GradScaler(device, Options{}) {}
  at::Tensor scale(const at::Tensor& loss) const;
  // Unscales the gradients and takes the optimizer's step. False: the step is left out.
  bool step(torch::optim::Optimizer& optimizer);
  void update();  // after the last optimizer's step
  float value() const;
  std::vector<at::Tensor> state() const { return {scale_, finite_steps_}; }  // between two steps, for a checkpoint
  std::uint64_t left_out() const noexcept { return left_out_; }

 private:
  const std::int64_t growth_interval_;
  at::Tensor scale_, finite_steps_, infinite_;
  std::uint64_t left_out_ = 0;
};

}  // namespace vedette::examples
