// Which operators multiply matrices: see workspaces.h.
#include "simulated_gpu/workspaces.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <random>
#include <set>
#include <string>

#include "simulated_gpu/memory.h"

// libtorch's own; their header includes cuBLAS's, which the wheels beside libtorch leave out.
namespace at::cuda {
void* getCurrentCUDABlasHandle();
void* getCUDABlasLtWorkspace();
std::size_t getCUDABlasLtWorkspaceSize();
}  // namespace at::cuda

namespace vedette::simulated {

namespace {

bool multiplies(const c10::OperatorHandle& op) {
  static const std::set<std::string> products = {"aten::mm",    "aten::bmm",     "aten::addmm",
                                                 "aten::addmv", "aten::baddbmm", "aten::convolution_backward"};
  return products.contains(op.operator_name().name);
}

bool has_one_order() {
  const char* const workspaces = std::getenv("CUBLAS_WORKSPACE_CONFIG");
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

std::vector<Access> workspaces_of(const c10::OperatorHandle& op) {
  if (!multiplies(op)) return {};
  static auto* const workspace_of =  // of blas.cc
      reinterpret_cast<void (*)(const void*, void**, std::size_t*)>(::dlsym(RTLD_DEFAULT, "simulated_blas_workspace"));
  Access access{.write = true};
  void* at = nullptr;
  workspace_of(at::cuda::getCurrentCUDABlasHandle(), &at, &access.bytes);
  access.at = at;
  std::vector<Access> all{access};
  if (op.operator_name().name == "aten::addmm")  // with a bias it is cuBLASLt's
    all.push_back(
        {.at = at::cuda::getCUDABlasLtWorkspace(), .bytes = at::cuda::getCUDABlasLtWorkspaceSize(), .write = true});
  return all;
}

}  // namespace vedette::simulated
