// Keys of calls: see shapes.h.
#include "simulated_gpu/shapes.h"

#include <ATen/ATen.h>

#include <set>

#include "simulated_gpu/aliases.h"

namespace vedette::simulated {
namespace {

bool depends_on_data(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {"aten::nonzero",
                                              "aten::masked_select",
                                              "aten::_unique2",
                                              "aten::unique_dim",
                                              "aten::unique_consecutive",
                                              "aten::equal",
                                              "aten::is_nonzero",
                                              "aten::repeat_interleave",
                                              "aten::bincount",
                                              "aten::_local_scalar_dense"};
  // Random bits come from one generator in the order of the program, as they do on the CPU.
  return names.contains(op.operator_name().name) || op.hasTag(at::Tag::nondeterministic_seeded) ||
         op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape);
}

class Key {
 public:
  explicit Key(const c10::OperatorHandle& op) {
    const std::string& name = op.operator_name().name;
    doubles_ = name.find("upsample") != name.npos || name.find("range") != name.npos;
    const auto* const identity = &op.schema();
    add(identity);
  }

  bool add_argument(const c10::IValue& v) {
    text.append(v.tagKind());
    if (v.isTensor()) {
      add_tensor(v.toTensor());
    } else if (v.isTensorList()) {
      for (const at::Tensor& t : v.toTensorVector()) add_tensor(t);
    } else if (v.isOptionalTensorList()) {
      for (const auto& t : v.toOptionalTensorVector()) add_tensor(t.value_or(at::Tensor()));
    } else if (v.isInt()) {
      add(v.toInt());
    } else if (v.isBool()) {
      add(v.toBool());
    } else if (v.isIntList()) {
      for (const std::int64_t n : v.toIntVector()) add(n);
    } else if (v.isBoolList()) {
      for (const bool b : v.toBoolList()) add(b);
    } else if (v.isDouble()) {
      if (doubles_) add(v.toDouble());
    } else if (v.isString()) {
      text.append(v.toStringRef());
    } else {
      return v.isNone() || v.isDevice() || v.isDoubleList();
    }
    return true;
  }

  std::string text;

 private:
  template <class T>
  void add(const T& value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void add_tensor(const at::Tensor& t) {
    if (!t.defined()) {
      text.push_back('u');
      return;
    }
    text.push_back(on_device(t) ? 'D' : 'C');
    add(t.scalar_type());
    add(t.dim());
    for (const auto n : t.sizes()) add(n);
    for (const auto n : t.strides()) add(n);
    text.push_back(t.unsafeGetTensorImpl()->is_wrapped_number() ? 'w' : ' ');
  }

  bool doubles_ = false;  // a value that decides the shape
};

}  // namespace

std::optional<std::string> shape_key(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  if (depends_on_data(op)) return std::nullopt;
  Key key(op);
  for (const c10::IValue& each : arguments) {
    if (!key.add_argument(each)) return std::nullopt;
  }
  return std::move(key.text);
}

}  // namespace vedette::simulated
