// Operators that another layer of libtorch takes apart: a transform of torch.func (grad, vmap, jvp), or a tensor
// subclass with __torch_dispatch__ (jagged tensors, DTensor, quantized weights). It calls operators on the tensors
// inside, and those are the ops. On a GPU an operator that an op calls may still use what the op was not called with;
// see operators.cc.
//
// Thread rule: the thread whose operator begins.
#pragma once
#include <ATen/core/ivalue.h>

namespace vedette::adapter {

// A transform of torch.func runs, and has not come down to the tensors inside yet. What its wrappers and dual numbers
// hold is its own until then: to ask for the tangent of a view would call operators.
bool in_transform() noexcept;
bool is_taken_apart(c10::ArrayRef<const c10::IValue> arguments);

}  // namespace vedette::adapter
