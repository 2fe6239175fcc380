// Which operators multiply matrices: see workspaces.h.
#include "simulated_gpu/workspaces.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <set>
#include <string>

// libtorch's own; their header includes cuBLAS's, which the wheels beside libtorch leave out.
namespace at::cuda {
void* getCurrentCUDABlasHandle();
void* getCUDABlasLtWorkspace();
std::size_t getCUDABlasLtWorkspaceSize();
}  // namespace at::cuda

namespace vedette::simulated {

std::vector<Access> workspaces_of(const c10::OperatorHandle& op) {
  static const std::set<std::string> products = {"aten::mm",    "aten::bmm",     "aten::addmm",
                                                 "aten::addmv", "aten::baddbmm", "aten::convolution_backward"};
  const std::string& name = op.operator_name().name;
  if (!products.contains(name)) return {};
  static auto* const workspace_of =  // of blas.cc
      reinterpret_cast<void (*)(const void*, void**, std::size_t*)>(::dlsym(RTLD_DEFAULT, "simulated_blas_workspace"));
  Access access{.write = true};
  void* at = nullptr;
  workspace_of(at::cuda::getCurrentCUDABlasHandle(), &at, &access.bytes);
  access.at = at;
  std::vector<Access> all{access};
  if (name == "aten::addmm")  // with a bias it is cuBLASLt's
    all.push_back(
        {.at = at::cuda::getCUDABlasLtWorkspace(), .bytes = at::cuda::getCUDABlasLtWorkspaceSize(), .write = true});
  return all;
}

}  // namespace vedette::simulated
