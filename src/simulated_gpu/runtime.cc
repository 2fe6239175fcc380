// libcudart.so.13 over the simulated driver, loaded before libtorch's own: with it libtorch's CUDA device works
// (allocator, pools, streams, events, autograd's threads) on a machine without a GPU, but has no kernels. At the first
// question for a device in a process that holds libtorch_cuda.so, libsimulated_kernels.so gives it the CPU's
// (kernels.cc). What is neither here nor in runtime_plain.cc is made by stand_ins.py, and ends the process with its
// name.
#include "simulated_gpu/runtime.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "simulated_gpu/memory.h"
#include "simulated_gpu/order.h"

namespace vedette::simulated {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

void give_libtorch_kernels() {
  static const bool once = [] {
    void* const torch = ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    Dl_info here{};
    if (torch == nullptr || ::dladdr(reinterpret_cast<void*>(&note), &here) == 0) return true;
    std::string path(here.dli_fname);
    path = path.substr(0, path.rfind('/') + 1) + "libsimulated_kernels.so";
    if (::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL) == nullptr)
      misuse("libtorch cannot be given kernels: " + std::string(::dlerror()));
    return true;
  }();
  static_cast<void>(once);
}

void describe(cudaDeviceProp& p) {
  p = {};
  std::strcpy(p.name, "simulated GPU");
  p.major = 9;
  p.multiProcessorCount = 132;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiProcessor = 2048;
  p.sharedMemPerBlock = 49152;
  p.sharedMemPerMultiprocessor = 233472;
  p.sharedMemPerBlockOptin = 232448;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalGlobalMem = memory().bytes();
  p.l2CacheSize = 50 << 20;
  p.textureAlignment = 512;
  p.asyncEngineCount = options().one_engine ? 1 : 2;
  p.unifiedAddressing = p.concurrentKernels = 1;
}

}  // namespace

// The driver's numbers that a program meets are the runtime's, with two exceptions.
cudaError_t note(int error) {
  const cudaError_t here = error == cuda::error_already_registered ? cudaErrorHostMemoryAlreadyRegistered
                           : error == cuda::error_not_registered   ? cudaErrorHostMemoryNotRegistered
                                                                   : static_cast<cudaError_t>(error);
  if (here != cudaSuccess && here != cudaErrorNotReady) last_error = here;
  return here;
}

int enter_runtime(const char* call, bool waits) {
  make_context_current(true);
  return waits ? enter_waiting(call) : enter(call);
}

}  // namespace vedette::simulated

using namespace vedette::simulated;

RUNTIME_CALL cudaGetDeviceCount(int* count) {
  ENTER("cudaGetDeviceCount");
  give_libtorch_kernels();
  *count = options().devices;
  return cudaSuccess;
}

RUNTIME_CALL cudaGetDevice(int* device) {
  ENTER("cudaGetDevice");
  *device = current_device;
  return cudaSuccess;
}

RUNTIME_CALL cudaSetDevice(int device) {
  ENTER("cudaSetDevice");
  if (device < 0 || device >= options().devices) return note(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

RUNTIME_CALL cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  ENTER("cudaGetDeviceProperties");
  give_libtorch_kernels();
  describe(*properties);
  return cudaSuccess;
}

RUNTIME_CALL cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  ENTER("cudaDeviceGetAttribute");
  switch (which) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 132;
      break;
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
      *value = options().managed ? 1 : 0;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}

RUNTIME_CALL cudaDeviceGetPCIBusId(char* id, int length, int) {
  ENTER("cudaDeviceGetPCIBusId");
  std::snprintf(id, static_cast<std::size_t>(length), "0000:00:00.0");
  return cudaSuccess;
}

RUNTIME_CALL cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

RUNTIME_CALL cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

RUNTIME_CALL cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

RUNTIME_CALL cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

RUNTIME_CALL cudaDeviceSynchronize() {
  ENTER_WAITING("cudaDeviceSynchronize");
  wait_for_device();
  return cudaSuccess;
}

RUNTIME_CALL cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
RUNTIME_CALL cudaPeekAtLastError() { return last_error; }

SIMULATED_EXPORT const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "an error of the simulated GPU";
}

SIMULATED_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    default:
      return "an error of the simulated GPU";
  }
}

RUNTIME_CALL cudaMalloc(void** out, std::size_t bytes) {
  ENTER_WAITING("cudaMalloc");
  return note(allocate_device(out, bytes));
}

RUNTIME_CALL cudaFree(void* at) {
  ENTER_WAITING("cudaFree");
  return note(free_device(at));
}

RUNTIME_CALL cudaMallocManaged(void** out, std::size_t bytes, unsigned) {
  ENTER_WAITING("cudaMallocManaged");
  return note(allocate_managed(out, bytes));
}

RUNTIME_CALL cudaMemAdvise(const void* at, std::size_t bytes, cudaMemoryAdvise advice, cudaMemLocation) {
  ENTER("cudaMemAdvise");
  return note(advise_managed(at, bytes, advice));
}

RUNTIME_CALL cudaMemPrefetchAsync(const void* at, std::size_t bytes, cudaMemLocation to, unsigned,
                                  cudaStream_t stream) {
  ENTER("cudaMemPrefetchAsync");
  return note(prefetch_managed(at, bytes, to.type == cudaMemLocationTypeDevice, stream));
}

RUNTIME_CALL cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  ENTER("cudaMemGetInfo");
  *free = memory().free_bytes();
  *total = memory().bytes();
  return cudaSuccess;
}

RUNTIME_CALL cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
  ENTER_WAITING("cudaHostAlloc");
  return note(allocate_host(out, bytes));
}

RUNTIME_CALL cudaFreeHost(void* at) {
  ENTER_WAITING("cudaFreeHost");
  return note(free_host(at));
}

RUNTIME_CALL cudaHostRegister(void* at, std::size_t bytes, unsigned) {
  ENTER_WAITING("cudaHostRegister");
  return note(register_host(at, bytes));
}

RUNTIME_CALL cudaHostUnregister(void* at) {
  ENTER_WAITING("cudaHostUnregister");
  return note(unregister_host(at));
}

RUNTIME_CALL cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* at) {
  ENTER("cudaPointerGetAttributes");
  *attributes = {};
  attributes->type = is_managed(at, 1)     ? cudaMemoryTypeManaged
                     : memory().holds(at)  ? cudaMemoryTypeDevice
                     : memory().pinned(at) ? cudaMemoryTypeHost
                                           : cudaMemoryTypeUnregistered;
  attributes->device = current_device;
  return cudaSuccess;
}

RUNTIME_CALL cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  ENTER("cudaMemcpyAsync");
  return note(copy_async(to, from, bytes, stream));
}

RUNTIME_CALL cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  ENTER_WAITING("cudaMemcpy");
  const int error = copy_async(to, from, bytes, nullptr);
  stream_of(nullptr)->wait();
  return note(error);
}

RUNTIME_CALL cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  ENTER("cudaMemsetAsync");
  launch(*stream_of(ours(stream)), "memset", {{.at = to, .bytes = bytes, .write = true}},
         [=] { std::memset(memory().reach(to), value, bytes); });
  return cudaSuccess;
}

RUNTIME_CALL cudaMemset(void* to, int value, std::size_t bytes) { return cudaMemsetAsync(to, value, bytes, nullptr); }

RUNTIME_CALL cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  ENTER("cudaStreamCreateWithPriority");
  *stream = reinterpret_cast<cudaStream_t>(make_stream(flags != cudaStreamNonBlocking));
  return cudaSuccess;
}

RUNTIME_CALL cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

RUNTIME_CALL cudaStreamDestroy(cudaStream_t stream) {
  ENTER("cudaStreamDestroy");
  destroy(ours(stream));
  return cudaSuccess;
}

RUNTIME_CALL cudaStreamSynchronize(cudaStream_t stream) {
  ENTER("cudaStreamSynchronize");
  const auto found = stream_of(ours(stream));
  if (const int refused = found->refuses_waits(); refused != 0) return note(refused);
  found->wait();
  return cudaSuccess;
}

RUNTIME_CALL cudaStreamQuery(cudaStream_t stream) {
  ENTER("cudaStreamQuery");
  const auto found = stream_of(ours(stream));
  if (const int refused = found->refuses_waits(); refused != 0) return note(refused);
  if (!found->idle()) return cudaErrorNotReady;
  found->wait();
  return cudaSuccess;
}

RUNTIME_CALL cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}

RUNTIME_CALL cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* number,
                                      cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, std::size_t*) {
  const auto capture = stream_of(ours(stream))->capture();
  *status = capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (capture != nullptr && number != nullptr) *number = capture->number();
  return cudaSuccess;
}

RUNTIME_CALL cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

RUNTIME_CALL cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return note(cuThreadExchangeStreamCaptureMode(reinterpret_cast<Capture::Mode*>(mode)));
}

RUNTIME_CALL cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  make_context_current(true);
  return note(cuStreamBeginCapture_v2(ours(stream), mode));
}

RUNTIME_CALL cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return note(cuStreamEndCapture(ours(stream), reinterpret_cast<GraphHandle*>(graph)));
}

RUNTIME_CALL cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
  return note(cuGraphInstantiateWithFlags(reinterpret_cast<GraphHandle*>(made), ours(graph), flags));
}

RUNTIME_CALL cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  *count = (*ours(graph))->size();
  return cudaSuccess;
}

RUNTIME_CALL cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  make_context_current(true);
  return note(cuGraphLaunch(reinterpret_cast<GraphHandle>(graph), ours(stream)));
}

RUNTIME_CALL cudaGraphDestroy(cudaGraph_t graph) { return note(cuGraphDestroy(ours(graph))); }
RUNTIME_CALL cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return note(cuGraphDestroy(reinterpret_cast<GraphHandle>(graph)));
}

RUNTIME_CALL cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  ENTER("cudaLaunchHostFunc");
  stream_of(ours(stream))->push([=] { function(argument); });
  return cudaSuccess;
}

RUNTIME_CALL cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ENTER("cudaStreamWaitEvent");
  return note(event_of(ours(event))->let_wait(*stream_of(ours(stream))));
}

RUNTIME_CALL cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  ENTER("cudaEventCreateWithFlags");
  *event = reinterpret_cast<cudaEvent_t>(make_event((flags & cudaEventDisableTiming) == 0));
  return cudaSuccess;
}

RUNTIME_CALL cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

RUNTIME_CALL cudaEventDestroy(cudaEvent_t event) {
  ENTER("cudaEventDestroy");
  destroy(ours(event));
  return cudaSuccess;
}

RUNTIME_CALL cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTER("cudaEventRecord");
  event_of(ours(event))->record(*stream_of(ours(stream)));
  return cudaSuccess;
}

RUNTIME_CALL cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

RUNTIME_CALL cudaEventQuery(cudaEvent_t event) {
  ENTER_WAITING("cudaEventQuery");
  const auto found = event_of(ours(event));
  if (const int refused = found->refuses_waits(); refused != 0) return note(refused);
  return found->done() ? cudaSuccess : cudaErrorNotReady;
}

RUNTIME_CALL cudaEventSynchronize(cudaEvent_t event) {
  ENTER_WAITING("cudaEventSynchronize");
  const auto found = event_of(ours(event));
  if (const int refused = found->refuses_waits(); refused != 0) return note(refused);
  found->wait();
  return cudaSuccess;
}

RUNTIME_CALL cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  ENTER("cudaEventElapsedTime");
  const auto from = event_of(ours(begin)), to = event_of(ours(end));
  if (!from->timed() || !to->timed()) return note(cudaErrorInvalidResourceHandle);
  *ms = std::chrono::duration<float, std::milli>(to->at() - from->at()).count();
  return cudaSuccess;
}

SIMULATED_EXPORT int simulated_call_is_missing() { return vedette::cuda::error_not_supported; }

RUNTIME_CALL cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                              cudaDriverEntryPointQueryResult* status) {
  *function = nullptr;
  for (const char* const suffix : {"_v2", ""}) {
    if (*function == nullptr) *function = ::dlsym(RTLD_DEFAULT, (std::string(name) + suffix).c_str());
  }
  if (*function == nullptr) *function = reinterpret_cast<void*>(&simulated_call_is_missing);
  if (status != nullptr) *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
