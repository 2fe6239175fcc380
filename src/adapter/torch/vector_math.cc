// The first call of each of oneMKL's vector functions, made while no other thread makes it: see resolve_vector_math()
// in vedette/torch.h.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/trunc.h>

#include <mutex>

#include "vedette/torch.h"

namespace vedette {

void resolve_vector_math() {
  static std::once_flag once;
  std::call_once(once, [] {
    const at::NoGradGuard no_gradients;
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor one = at::full({1}, 0.5, type);  // one element: one thread
      for (const auto& function : {at::acos, at::asin, at::atan, at::cos, at::erf, at::erfc, at::erfinv, at::exp,
                                   at::log, at::log10, at::log2, at::sin, at::sqrt, at::tan, at::tanh, at::trunc}) {
        function(one);
      }
    }
  });
}

}  // namespace vedette
