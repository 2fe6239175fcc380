// What is remembered of an operator's results, and what decides that a call is like an earlier one.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

namespace vedette::simulated {

// A result lies in new storage `storage`, or in that of tensor argument `input`.
struct Output {
  int storage = -1, input = -1;
  at::Tensor like;  // meta: sizes, strides, type; the offset is relative to the input's
};

struct Shape {
  std::vector<std::size_t> storages;         // bytes
  std::vector<std::vector<Output>> results;  // of result i; several if it is a list
  std::vector<bool> is_list;
  bool view = false;  // no result is new, nothing is written: there is no kernel
};

// Equal for calls whose results look alike. Empty where they may not: shapes that depend on data, bits that depend on a
// generator, arguments of other kinds. Floating-point values are no part of it, since optimizers change them.
std::optional<std::string> shape_key(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

}  // namespace vedette::simulated
