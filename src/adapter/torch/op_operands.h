// The storages that an op touches, as its session is told of them: by the use that the operator's schema has for each
// argument, and by what stands inside of the argument.
//
// Thread rule: the thread whose op begins, which has its turn.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "adapter/torch/operators.h"
#include "adapter/torch/small_operands.h"
#include "vedette/session.h"

namespace vedette::adapter {

// The whole storage is written: its former bytes are of no use.
bool covers_its_storage(const c10::TensorImpl& tensor, const c10::StorageImpl& storage);
// Tensors among the inputs that fill their storages tell the storages' shapes.
void tell_shapes(Session& session, c10::ArrayRef<const c10::IValue> inputs);
// Operators that go through lists of tensors on the CPU, tensor by tensor; a GPU has kernels for whole lists.
bool goes_one_by_one(const Announcer& owner, c10::ArrayRef<const c10::IValue> inputs);

struct OpOperands {
  OpOperands() = default;  // of a kernel, which notes no small ones
  explicit OpOperands(const Announcer& owner) : small(owner) {}
  // `use`: Operator::Use. Under a guard of GPU memory an operand may move from now on, but for the time of an op that
  // has it.
  void add(const at::Tensor& tensor, std::uint8_t use, const Announcer& owner);
  void add(const c10::IValue& value, std::uint8_t use, const Announcer& owner);

  c10::SmallVector<const void*, 16> reads, writes;  // addresses of storages
  std::vector<Part> parts;
  std::optional<LayerIndex> parameter;
  SmallOperands small;
  Bytes result = {};         // as likely_result() has it
  bool views = false;        // of few bytes of a tensor become parts (rows.h)
  bool wrap_others = false;  // the tangent of an operand is a wrapper: what stands inside is not here

 private:
  void add_part(const at::Tensor& tensor, std::uint8_t use, const Announcer& owner);
};

}  // namespace vedette::adapter
