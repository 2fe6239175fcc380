// A guard that opens asks libtorch for what it stands on, by behaviour. A libtorch that was never tried is no refusal;
// one that behaves otherwise is, by the name of what is not as it was.
//
// Structures of libtorch's are read by functions of its headers, which are compiled into us. These are all of them,
// with the question that another layout of each would fail:
//   c10::DataPtr          pointer, context, deleter, device             does an allocation come to us
//   c10::StorageImpl      bytes, DataPtr, both counts of references     does a storage follow its new pointer
//   c10::TensorImpl       storage, sizes, strides, offset, type         does a storage follow its new pointer
//   c10::IValue           tag, tensor                                   do operators announce their inputs
//   at::RecordFunction    name, inputs, outputs                         do operators announce their inputs
//   at::cuda's maps of workspaces (versions_cuda.h)                     simulated_gpu/workspaces_test, no guard asks
//   DeviceStats, SegmentInfo and BlockInfo of c10's CUDA allocator      simulated_gpu/allocator_test, no guard asks
// A guard of GPU memory asks more: behaviour_gpu.h.
// Operators' schemas, modules and optimizers are read by calls that libtorch exports.
//
// Thread rule: the thread that makes a guard.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace vedette::adapter {

// Tests put functions that do otherwise in the places of libtorch's own, and offsets.
struct Libtorch {
  at::Tensor (*make)(std::int64_t floats);
  void (*exchange)(c10::StorageImpl& storage, c10::DataPtr memory);
  at::Tensor (*negate)(const at::Tensor& tensor);
  struct {  // bytes by which a structure is read beside the place where it is
    std::ptrdiff_t data_ptr = 0, storage = 0, tensor = 0, value = 0, operator_call = 0;
  } beside = {};
};
Libtorch libtorch_as_it_is();

// A sentence's part, "libtorch 2.16.0 ... : " before it; nullopt: all is as it was. Takes some microseconds.
std::optional<std::string> what_differs(const Libtorch& libtorch = libtorch_as_it_is());

// The sentence of a guard that opens with a libtorch that was never tried; empty: it was.
std::string never_tried(int minor, const std::string& version);

}  // namespace vedette::adapter
