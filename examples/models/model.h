// The models the examples, tests and benches train: each is one file, and one line in the table at the end.
//
// A model is deterministic: the same options, step numbers and thread count give the same bits. Batch i of a run is the
// i-th slice of its data, in order, from the start again when the data ends. Thread rule: one thread. Errors:
// std::runtime_error with a sentence, when the data is not there.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace at {
class Tensor;
}
namespace c10 {
struct Device;
}
namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace vedette::examples {

class Autocast;
class GradScaler;

struct ModelOptions {
  std::int64_t batch = 0;  // samples; 0: the model's own
  bool small = false;      // a few megabytes, on data made up from the seed: for tests
  std::uint64_t seed = 1;  // of the parameters and of random numbers in training
  std::string script;      // path of a TorchScript file; for the model "script" alone
};

class Model {
 public:
  virtual ~Model() = default;
  virtual torch::nn::Module& module() = 0;
  virtual torch::optim::Optimizer& optimizer() = 0;  // the first, where there are several
  virtual std::vector<torch::optim::Optimizer*> optimizers();
  virtual std::int64_t batch() const = 0;                              // samples a step, unless said otherwise
  virtual at::Tensor loss(std::int64_t step, std::int64_t batch) = 0;  // the forward pass

  // One training step on `batch` samples (0: batch()). Returns the loss.
  virtual float train_step(std::int64_t step, std::int64_t batch = 0);
  float evaluate(std::int64_t step);  // the loss alone: no gradients, no dropout

  // How `optimizer` is stepped by a backward pass: vedette::step_in_backward, or else the one after the other. In mixed
  // precision it runs the backward pass alone, and the scaler steps when all gradients are there.
  using StepBy = std::function<void(torch::optim::Optimizer& optimizer, const std::function<void()>& backward)>;
  void use(StepBy way) { step_by_ = std::move(way); }
  // From the next step on: autocast to bf16, and gradients of a scaled loss (models/mixed_precision.h).
  void use_mixed_precision() { mixed_precision_ = true; }
  std::vector<at::Tensor> scaler_state();  // as GradScaler has it; empty: there is no mixed precision
  const GradScaler* scaler() const noexcept { return scaler_.get(); }  // nullptr before the first such step

 protected:
  at::Tensor here(const at::Tensor& data);  // on the device of the parameters
  // Of a step: a forward pass runs while autocast() lives, step_by() or a backward pass of scaled() follows, and
  // end_step() is the last. Without mixed precision the first, the second and the last do nothing.
  Autocast autocast();
  at::Tensor scaled(const at::Tensor& loss);
  void step_by(torch::optim::Optimizer& optimizer, const at::Tensor& loss);
  void end_step();

 private:
  c10::Device device();
  StepBy step_by_;
  bool mixed_precision_ = false;
  std::shared_ptr<GradScaler> scaler_;
};

struct ModelEntry {
  std::string_view name, summary;
  std::unique_ptr<Model> (*make)(const ModelOptions&);
  void (*read_data)();  // reads the data of models that are not small; once a process
};
std::span<const ModelEntry> models() noexcept;                                          // the one list
std::unique_ptr<Model> make_model(std::string_view name, const ModelOptions& options);  // nullptr: no such model

std::unique_ptr<Model> make_mlp(const ModelOptions&);
std::unique_ptr<Model> make_resnet18(const ModelOptions&);
std::unique_ptr<Model> make_lstm(const ModelOptions&);
std::unique_ptr<Model> make_gpt(const ModelOptions&);          // 64 million parameters
std::unique_ptr<Model> make_gpt_small(const ModelOptions&);    // 0.8 million parameters
std::unique_ptr<Model> make_gpt2_medium(const ModelOptions&);  // for a GPU, as the next one
std::unique_ptr<Model> make_gpt_1300m(const ModelOptions&);
std::unique_ptr<Model> make_resnet50(const ModelOptions&);  // for a GPU
std::unique_ptr<Model> make_vit(const ModelOptions&);       // for a GPU
std::unique_ptr<Model> make_mobilenetv2(const ModelOptions&);
std::unique_ptr<Model> make_vgg16(const ModelOptions&);
std::unique_ptr<Model> make_dcgan(const ModelOptions&);        // two optimizers
std::unique_ptr<Model> make_bert(const ModelOptions&);         // lengths that change
std::unique_ptr<Model> make_recommender(const ModelOptions&);  // a table of 1 GiB, few rows of which are hot
std::unique_ptr<Model> make_script(const ModelOptions&);       // a model from elsewhere, ModelOptions::script

}  // namespace vedette::examples
