// libtorch's operators on the simulated GPU: the CPU's kernels, unmodified and without copying their operands, on the
// threads of streams, after the host has gone on.
//
// An operator's tensors are seen as CPU tensors over the bytes of device memory. Its results' shapes are known from
// earlier operands of these shapes, so results are made at once and the kernel is queued to fill them. The kernel's own
// allocations for its results are served from the memory that was set aside for them. The first time, and
// where shapes depend on data or bits on a generator, the host waits.
//
// Thread rule: boxed(), copy_from() and local_scalar() on any thread of the program.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace vedette::simulated {

void take_cpu_allocator_place();  // once, before any operator

void boxed(const c10::OperatorHandle& op, torch::jit::Stack* stack);
at::Tensor& copy_from(at::Tensor& to, const at::Tensor& from, bool non_blocking);
at::Scalar local_scalar(const at::Tensor& tensor);

}  // namespace vedette::simulated
