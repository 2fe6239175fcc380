// ResNet-50 and a decoder like GPT-2, trained by libtorch on any device with data made up from a seed; no libtorch in
// this header.
//
// ResNet-50 as in He et al., CVPR'16, table 1 (bottleneck blocks), SGD with momentum; the decoder as in Radford et al.,
// 2019, with the attention's probabilities written out, AdamW. Thread rule: one thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace vedette::gpu {

class Training {
 public:
  virtual ~Training() = default;
  virtual float step() = 0;  // one training step; the loss, which waits for the device
};

struct TrainingOptions {
  std::string model = "resnet50";  // or "gpt2"
  std::string device = "cpu";      // as libtorch names it: "cuda"
  bool small = false;              // for tests on a processor
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
