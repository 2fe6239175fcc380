// The part of libcublas.so.13 that libtorch calls to get a handle: with it the workspaces of cuBLAS and cuBLASLt are
// libtorch's own, allocated and kept as on a GPU. It multiplies nothing (workspaces.h).
//
// Thread rule: any thread; a handle belongs to one thread at a time, as cuBLAS's own.
#include <atomic>
#include <cstddef>

#include "simulated_gpu/entry.h"

namespace {

struct Handle {
  void* workspace = nullptr;
  std::size_t bytes = 0;
};

constexpr int success = 0;

}  // namespace

extern "C" {

SIMULATED_EXPORT int cublasCreate_v2(Handle** handle) {
  *handle = new Handle;
  return success;
}
SIMULATED_EXPORT int cublasDestroy_v2(Handle* handle) {
  delete handle;
  return success;
}
SIMULATED_EXPORT int cublasSetStream_v2(Handle*, void*) { return success; }
SIMULATED_EXPORT int cublasSetMathMode(Handle*, int) { return success; }
SIMULATED_EXPORT int cublasGetMathMode(Handle*, int* mode) {
  *mode = 0;
  return success;
}
SIMULATED_EXPORT int cublasSetWorkspace_v2(Handle* handle, void* workspace, std::size_t bytes) {
  handle->workspace = workspace;
  handle->bytes = bytes;
  return success;
}

// Counts workspaces that kernels have written, of every version of libtorch; returns how many there were so far.
SIMULATED_EXPORT unsigned long simulated_workspaces_written(unsigned long more) {
  static std::atomic<unsigned long> written{0};  // relaxed: a count
  return written.fetch_add(more, std::memory_order_relaxed) + more;
}

// What a multiplication by this handle uses.
SIMULATED_EXPORT void simulated_blas_workspace(const Handle* handle, void** workspace, std::size_t* bytes) {
  *workspace = handle->workspace;
  *bytes = handle->bytes;
}
}
