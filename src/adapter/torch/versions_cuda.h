// libtorch's CUDA part differs here between minor versions: see versions.h. The functions of cuBLAS's
// workspaces are declared here as ATen/cuda/CUDAContextLight.h has them. That header includes cuBLAS's, which the
// wheels beside libtorch leave out. A declaration that is not libtorch's links all the same, so that each is compared
// with the header of each version.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <link.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <utility>

namespace at::cuda {

struct WorkspaceMapWithMutex {
#if TORCH_VERSION_MINOR >= 13  // since then a workspace lies beside its size
  std::map<std::tuple<void*, void*>, std::pair<at::DataPtr, std::size_t>> map;
#else
  std::map<std::tuple<void*, void*>, at::DataPtr> map;
#endif
  std::shared_mutex mutex;
};
#if TORCH_VERSION_MINOR >= 12  // since then a handle may be had without a workspace
void* getCurrentCUDABlasHandle(bool setup = true);
#else
void* getCurrentCUDABlasHandle();
#endif
void* getCUDABlasLtWorkspace();
WorkspaceMapWithMutex& cublas_handle_stream_to_workspace();
WorkspaceMapWithMutex& cublaslt_handle_stream_to_workspace();
#if TORCH_VERSION_MINOR != 12  // whose library does not export it
std::size_t getChosenWorkspaceSize();
#endif
std::size_t getCUDABlasLtWorkspaceSize();
#if TORCH_VERSION_MINOR >= 15  // since then a workspace is of one product, unless TORCH_CUBLAS_WORKSPACE_CACHE=1
bool isCUDABlasWorkspaceCachingEnabled();
at::DataPtr allocateCUDABlasWorkspace(std::size_t size);
#endif

}  // namespace at::cuda

namespace vedette::adapter {

namespace caching = c10::cuda::CUDACachingAllocator;

// Of an entry of a map of workspaces, of whichever version.
inline c10::DataPtr& workspace_in(c10::DataPtr& entry) { return entry; }
inline c10::DataPtr& workspace_in(std::pair<c10::DataPtr, std::size_t>& entry) { return entry.first; }
inline std::size_t bytes_in(const c10::DataPtr&, std::size_t bytes_of_all) { return bytes_of_all; }
inline std::size_t bytes_in(const std::pair<c10::DataPtr, std::size_t>& entry, std::size_t) { return entry.second; }

// Of cuBLAS. Without libtorch's own function: what its environment variable says in pairs of KiB and a count
// (":4096:8"), else as much as any version takes on the device.
inline std::size_t cublas_workspace_bytes() {
#if TORCH_VERSION_MINOR == 12
  std::size_t bytes = 0, kib = 0, count = 0;
  const char* config = ::secure_getenv("CUBLAS_WORKSPACE_CONFIG");
  for (int read = 0; config != nullptr && std::sscanf(config, " :%zu:%zu%n", &kib, &count, &read) == 2; config += read)
    bytes += kib * count << 10;
  if (bytes > 0) return bytes;
  int device = 0, major = 0;
  static_cast<void>(cudaGetDevice(&device));
  static_cast<void>(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 9 ? std::size_t{32} << 20 : (std::size_t{8} << 20) + (128 << 10);
#else
  return at::cuda::getChosenWorkspaceSize();
#endif
}

// Each product allocates a workspace of its own; else libtorch keeps those of its maps.
inline bool workspace_of_each_product() {
#if TORCH_VERSION_MINOR >= 15
  return !at::cuda::isCUDABlasWorkspaceCachingEnabled();
#else
  return false;
#endif
}

// As such a product allocates it.
inline c10::DataPtr allocate_workspace([[maybe_unused]] std::size_t bytes) {
#if TORCH_VERSION_MINOR >= 15
  return at::cuda::allocateCUDABlasWorkspace(bytes);
#else
  return {};
#endif
}

// The code that allocates it: a call from there is one for a workspace. Empty where there is none.
struct Code {
  const char *begin = nullptr, *end = nullptr;
  bool has(const void* at) const { return at >= begin && at < end; }
};
inline Code code_that_allocates_workspaces() {
#if TORCH_VERSION_MINOR >= 15
  Dl_info where{};
  void* symbol = nullptr;
  if (::dladdr1(reinterpret_cast<void*>(&at::cuda::allocateCUDABlasWorkspace), &where, &symbol, RTLD_DL_SYMENT) != 0 &&
      symbol != nullptr) {
    const auto* const begin = static_cast<const char*>(where.dli_saddr);
    return {begin, begin + static_cast<const ElfW(Sym)*>(symbol)->st_size};
  }
#endif
  return {};
}

// Passes on the calls that CUDAAllocator lacks in 2.11. All but the first have a body there, so that one that is not
// passed on is lost in silence.
class NewerCalls : public caching::CUDAAllocator {
 public:
  explicit NewerCalls(caching::CUDAAllocator* native) : native_(native) {}
#if TORCH_VERSION_MINOR >= 12
  void attachOomRejectionObserver(caching::OomRejectionObserver observer) override {
    native_->attachOomRejectionObserver(std::move(observer));
  }
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* p) override {
    return native_->getContextForPointer(p);
  }
#endif
#if TORCH_VERSION_MINOR >= 13
  void markCaptureBegin(c10::DeviceIndex d) override { native_->markCaptureBegin(d); }
  void markCaptureEnd(c10::DeviceIndex d) override { native_->markCaptureEnd(d); }
  c10::DataPtr allocateWithAddress(std::size_t n, void* p) override { return native_->allocateWithAddress(n, p); }
#endif
#if TORCH_VERSION_MINOR >= 14
  bool supportsUserMetadata() override { return native_->supportsUserMetadata(); }
  void annotateMemory(const void* p, const std::string& text) override { native_->annotateMemory(p, text); }
#endif

 protected:
  caching::CUDAAllocator* const native_;  // libtorch's, for ever
};

}  // namespace vedette::adapter
