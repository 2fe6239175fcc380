// A recipe notes the settings of libtorch that decide which bits an operator gives, and runs with them.
//
// Thread rule: any thread. Settings are the process's, but for threads and autocast; they are changed for the time of a
// recipe only where the program has changed them since the recipe was made.
#pragma once
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>

#include <array>
#include <cstddef>
#include <span>

namespace vedette::adapter {

class MathModes {
 public:
  static constexpr std::size_t settings = 12;

  explicit MathModes(c10::DeviceType device) {
    for (std::size_t i = 0; i < all.size(); ++i) values_[i] = all[i].now();
    if (at::autocast::is_autocast_enabled(device))
      values_.back() = 1 + static_cast<int>(at::autocast::get_autocast_dtype(device));
  }
  // Operators that differ in them alone are no operators alike.
  std::span<const int> values() const noexcept { return values_; }

  // While it lives, libtorch computes so. Autocast is none of it: recipes run below it.
  class Scope {
   public:
    explicit Scope(const MathModes& modes) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        before_[i] = all[i].now();
        changed_[i] = before_[i] != modes.values_[i];
        if (changed_[i]) all[i].set(modes.values_[i]);
      }
    }
    ~Scope() {
      for (std::size_t i = 0; i < all.size(); ++i)
        if (changed_[i] && !all[i].stays) all[i].set(before_[i]);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::array<int, settings> before_{};
    std::array<bool, settings> changed_{};
  };

 private:
  struct Mode {
    int (*now)();
    void (*set)(int);
    bool stays;  // as a recipe has left it
  };
  static at::Context& context() { return at::globalContext(); }
  template <at::Float32Backend backend, at::Float32Op op>
  static int precision() {
    return static_cast<int>(context().float32Precision(backend, op));
  }
  template <at::Float32Backend backend, at::Float32Op op>
  static void set_precision(int value) {
    context().setFloat32Precision(backend, op, static_cast<at::Float32Precision>(value));
  }
  static bool is_tf32(int value) { return static_cast<at::Float32Precision>(value) == at::Float32Precision::TF32; }
  static constexpr auto cuda = at::Float32Backend::CUDA, mkldnn = at::Float32Backend::MKLDNN;
  static constexpr auto matmul = at::Float32Op::MATMUL, conv = at::Float32Op::CONV;
  // The setters of TF32 keep the older and the newer form of that setting alike.
  static inline const std::array<Mode, settings> all = {{
      {[] { return at::get_num_threads(); }, [](int count) { at::set_num_threads(count); }, /*stays=*/true},
      {[] { return context().userEnabledMkldnn() ? 1 : 0; }, [](int on) { context().setUserEnabledMkldnn(on != 0); }},
      {[] { return context().userEnabledCuDNN() ? 1 : 0; }, [](int on) { context().setUserEnabledCuDNN(on != 0); }},
      {[] { return context().benchmarkCuDNN() ? 1 : 0; }, [](int on) { context().setBenchmarkCuDNN(on != 0); }},
      {[] { return context().deterministicCuDNN() ? 1 : 0; }, [](int on) { context().setDeterministicCuDNN(on != 0); }},
      {[] {
         return (context().deterministicAlgorithms() ? 1 : 0) + (context().deterministicAlgorithmsWarnOnly() ? 2 : 0);
       },
       [](int mode) { context().setDeterministicAlgorithms((mode & 1) != 0, (mode & 2) != 0); }},
      {[] { return static_cast<int>(context().allowFP16ReductionCuBLAS()); },
       [](int option) { context().setAllowFP16ReductionCuBLAS(option == 0, option != 2); }},
      {[] { return static_cast<int>(context().allowBF16ReductionCuBLAS()); },
       [](int option) { context().setAllowBF16ReductionCuBLAS(option == 0, option != 2); }},
      {&precision<cuda, matmul>, [](int value) { context().setAllowTF32CuBLAS(is_tf32(value)); }},
      {&precision<cuda, conv>, [](int value) { context().setAllowTF32CuDNN(is_tf32(value)); }},
      {&precision<mkldnn, matmul>, &set_precision<mkldnn, matmul>},
      {&precision<mkldnn, conv>, &set_precision<mkldnn, conv>},
  }};

  std::array<int, settings + 1> values_{};  // the last is autocast's type; 0: it casts nothing
};

}  // namespace vedette::adapter
