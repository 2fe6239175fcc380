// Operators on lists of tensors (_foreach_*, _fused_*, GradScaler's check) under a guard of GPU memory. libtorch's
// kernel for one takes the whole list, so that all weights of a model would have to be in GPU memory at once. Here a
// long list goes in groups of neighbours, each an op of its own by the same kernel, which has the same bits: no
// element's result depends on another tensor.
//
// Thread rule: any thread; cut_long_lists() once, from the thread that makes guards.
#pragma once
#include <ATen/core/ivalue.h>

#include <string_view>

namespace vedette::adapter {

bool takes_lists(std::string_view operator_name);
// Such an operator with these arguments goes in groups, if this thread calls it now.
bool goes_in_groups(c10::ArrayRef<const c10::IValue> arguments);
// Registers with libtorch, for ever. Where no guard of GPU memory lives, operators stay what they are.
void cut_long_lists();

}  // namespace vedette::adapter
