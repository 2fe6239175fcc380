// A perceptron, ResNet-50 and decoders like GPT-2, trained by libtorch on any device with data made up from a seed; no
// libtorch in this header.
//
// mlp: six layers of 4096, AdamW. resnet50: as in He et al., CVPR'16, table 1 (bottleneck blocks), SGD with momentum.
// gpt2: the decoder as in Radford et al., 2019, AdamW, 8 x 512 symbols; gpt_large: 24 layers of 1024 (406 million
// parameters), 8 x 1024 symbols. Attention's probabilities are written out unless they are to be fused. Thread rule:
// one thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace vedette::gpu {

class Training {
 public:
  virtual ~Training() = default;
  virtual void queue_step() = 0;  // one training step; does not wait for the device
  virtual float loss() = 0;       // of the last step; waits for the device
  float step() {
    queue_step();
    return loss();
  }
  // All parameters' bytes, one after the other; waits for the device.
  virtual std::vector<std::byte> parameter_bytes() = 0;
};

struct TrainingOptions {
  std::string model = "resnet50";  // or "mlp", "gpt2", "gpt_large"
  std::string device = "cpu";      // as libtorch names it: "cuda"
  bool small = false;              // for tests on a processor
  bool bf16 = false;               // parameters, activations and optimizer state; decoders and mlp
  bool fused_attention = false;    // scaled_dot_product_attention; decoders
};
std::unique_ptr<Training> make_training(const TrainingOptions& options);

// While it lives, `tick` is called at the begin of every operator that libtorch's RecordFunction tells of, in that
// operator's thread.
class Ticks {
 public:
  explicit Ticks(std::function<void()> tick);
  ~Ticks();
  Ticks(const Ticks&) = delete;
  Ticks& operator=(const Ticks&) = delete;
  static std::uint64_t count();  // since the program began

 private:
  std::uint64_t handle_;
};

}  // namespace vedette::gpu
