// Which operators multiply matrices: see workspaces.h.
#include "simulated_gpu/workspaces.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>

#include "adapter/torch/versions_cuda.h"
#include "simulated_gpu/memory.h"

namespace vedette::simulated {

namespace {

bool multiplies(const c10::OperatorHandle& op) {
  static const std::set<std::string> products = {"aten::mm",    "aten::bmm",     "aten::addmm",
                                                 "aten::addmv", "aten::baddbmm", "aten::convolution_backward"};
  return products.contains(op.operator_name().name);
}

bool has_one_order() {
  const char* const workspaces = ::secure_getenv("CUBLAS_WORKSPACE_CONFIG");
  return at::globalContext().deterministicAlgorithms() && workspaces != nullptr;
}

}  // namespace

void vary(const c10::OperatorHandle& op, const c10::IValue& result) {
  static std::atomic<unsigned> calls{0};
  if (!options().sums_vary || !multiplies(op) || has_one_order() || !result.isTensor()) return;
  const at::Tensor& tensor = result.toTensor();
  if (!tensor.defined() || tensor.scalar_type() != at::kFloat || tensor.numel() == 0) return;
  float& first = *tensor.mutable_data_ptr<float>();
  static const unsigned process = std::random_device()();
  const unsigned mixed = (calls.fetch_add(1, std::memory_order_relaxed) + 1) * process;
  if ((mixed >> 16 & 1) != 0) first = std::nextafter(first, 1e30f);
}

Workspaces workspaces_of(const c10::OperatorHandle& op) {
  Workspaces all;
  if (!multiplies(op)) return all;
  const bool lt = op.operator_name().name == "aten::addmm";  // with a bias it is cuBLASLt's
  const auto add = [&all](void* at, std::size_t bytes) {
    if (bytes > 0) all.accesses.push_back({.at = at, .bytes = bytes, .write = true});
  };
  if (adapter::workspace_of_each_product()) {
    const std::size_t bytes = lt ? at::cuda::getCUDABlasLtWorkspaceSize() : adapter::cublas_workspace_bytes();
    all.held = adapter::allocate_workspace(bytes);
    add(all.held.get(), bytes);
    return all;
  }
  static auto* const workspace_of =  // of blas.cc
      reinterpret_cast<void (*)(const void*, void**, std::size_t*)>(::dlsym(RTLD_DEFAULT, "simulated_blas_workspace"));
  void* at = nullptr;
  std::size_t bytes = 0;
  workspace_of(at::cuda::getCurrentCUDABlasHandle(), &at, &bytes);
  add(at, bytes);
  if (lt) add(at::cuda::getCUDABlasLtWorkspace(), at::cuda::getCUDABlasLtWorkspaceSize());
  return all;
}

void write_into(const std::vector<Access>& workspaces) {
  static auto* const count =  // of blas.cc
      reinterpret_cast<unsigned long (*)(unsigned long)>(::dlsym(RTLD_DEFAULT, "simulated_workspaces_written"));
  for (const Access& each : workspaces) std::memset(memory().reach(each.at), 0x5a, each.bytes);
  count(workspaces.size());
}

}  // namespace vedette::simulated
