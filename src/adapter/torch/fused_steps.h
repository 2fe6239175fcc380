// Fused optimizer steps (at::_fused_adam_, _fused_sgd_, ...) take all parameters at once, and GradScaler's check takes
// all gradients. As one op they would need all of them, their gradients and their state together, and a step with such
// an op has no plan. On the CPU libtorch's kernels go through the lists, tensor by tensor. So lists of several tensors
// are given to them as lists of one, with the same bits. Thread rule: any thread.
#pragma once
#include <string_view>

namespace vedette::adapter {

// Of those, the check included, that go one by one once step_one_by_one() was called.
bool is_fused_step(std::string_view operator_name);
void step_one_by_one();  // from now on, in this process; does nothing when called again

}  // namespace vedette::adapter
