// Tensors of which an operator touches little, as parts of their memory: so that these move, not the tensor. Those are
// the table of an operator that looks numbers up, and views of few bytes of a large tensor: a slice of a cache, a row
// of a memory of samples.
//
// On the CPU a part is the rows that the numbers list, which are read before the operator runs. The numbers of a GPU's
// operator lie on the device: there a part is how many bytes at most are touched, wherever they are.
//
// Thread rule: the thread whose op begins, which has its turn.
#pragma once
#include <c10/util/ArrayRef.h>

#include "adapter/torch/op_operands.h"
#include "adapter/torch/operator_table.h"

namespace vedette::adapter {

// The argument of which the op looks up few entries, which are now in `operands`. -1, and nothing is added: there is
// none; it is small, or most of it is touched, or the numbers are something else after all. Then it is an operand like
// others.
int add_rows(const Operator& op, c10::ArrayRef<const c10::IValue> inputs, const Announcer& owner, OpOperands& operands);

// The same of a view of few bytes of a tensor that is not watched. A step uses all parts of a parameter.
bool add_view(const at::Tensor& tensor, bool written, const Announcer& owner, OpOperands& operands);

}  // namespace vedette::adapter
