// The simulated driver's device, context, streams, events and copies.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "cuda/api.h"
#include "simulated_gpu/entry.h"
#include "simulated_gpu/graphs.h"
#include "simulated_gpu/memory.h"
#include "simulated_gpu/order.h"
#include "simulated_gpu/streams.h"

using namespace vedette::cuda;
using namespace vedette::simulated;

namespace {
const ContextHandle the_context = reinterpret_cast<ContextHandle>(0x10);
std::atomic<int> retained{0};
}  // namespace

SIMULATED_EXPORT int cuInit(unsigned) { return enter("cuInit", false); }

SIMULATED_EXPORT int cuDriverGetVersion(int* version) {
  *version = options().cuda;
  return enter("cuDriverGetVersion", false);
}

SIMULATED_EXPORT int cuDeviceGetCount(int* count) {
  *count = options().devices;
  return enter("cuDeviceGetCount", false);
}

SIMULATED_EXPORT int cuDeviceGet(DeviceNumber* device, int ordinal) {
  *device = ordinal;
  if (const int error = enter("cuDeviceGet", false); error != 0) return error;
  return ordinal >= 0 && ordinal < options().devices ? success : error_invalid_device;
}

SIMULATED_EXPORT int cuDeviceGetName(char* name, int length, DeviceNumber) {
  std::strncpy(name, "simulated GPU", static_cast<std::size_t>(length) - 1);
  name[length - 1] = 0;
  return enter("cuDeviceGetName", false);
}

SIMULATED_EXPORT int cuDeviceGetPCIBusId(char* id, int length, DeviceNumber) {
  std::strncpy(id, "0000:00:00.0", static_cast<std::size_t>(length) - 1);
  id[length - 1] = 0;
  return enter("cuDeviceGetPCIBusId", false);
}

SIMULATED_EXPORT int cuDeviceGetAttribute(int* value, Attribute which, DeviceNumber) {
  const std::map<Attribute, int> values = {
      {Attribute{1}, 1024},      // CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: from here on what Triton asks for
      {Attribute{10}, 32},       // WARP_SIZE
      {Attribute{12}, 65536},    // MAX_REGISTERS_PER_BLOCK
      {Attribute{13}, 1980000},  // CLOCK_RATE
      {Attribute{36}, 2619000},  // MEMORY_CLOCK_RATE
      {Attribute{37}, 6144},     // GLOBAL_MEMORY_BUS_WIDTH
      {Attribute{81}, 233472},   // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
      {Attribute{97}, 232448},   // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
      {Attribute::multiprocessor_count, 132},
      {Attribute::async_engine_count, options().one_engine ? 1 : 2},
      {Attribute::compute_capability_major, 9},
      {Attribute::managed_memory, options().managed},
      {Attribute::concurrent_managed_access, options().managed},
      {Attribute::pageable_memory_access, options().pageable},
      {Attribute::pageable_memory_access_uses_host_page_tables, options().page_tables},
      {Attribute::can_use_host_pointer_for_registered_memory, 1},
      {Attribute::host_register_supported, 1},
      {Attribute::virtual_memory_management_supported, 1},
      {Attribute::host_numa_memory_management_supported, 1},
      {Attribute::host_memory_management_supported, 1},
  };
  const auto found = values.find(which);
  *value = found == values.end() ? 0 : found->second;
  return enter("cuDeviceGetAttribute", false);
}

SIMULATED_EXPORT int cuDevicePrimaryCtxRetain(ContextHandle* context, DeviceNumber) {
  *context = the_context;
  if (const int error = enter("cuDevicePrimaryCtxRetain", false); error != 0) return error;
  ++retained;
  return success;
}

SIMULATED_EXPORT int cuDevicePrimaryCtxRelease_v2(DeviceNumber) {
  if (const int error = enter("cuDevicePrimaryCtxRelease_v2", false); error != 0) return error;
  const int left = --retained;
  if (left == 0) tell_leaks_where_asked();
  if (left < 0) misuse("the primary context is released more often than it was retained; release it once");
  return success;
}

SIMULATED_EXPORT int cuDevicePrimaryCtxGetState(DeviceNumber, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return enter("cuDevicePrimaryCtxGetState", false);
}

SIMULATED_EXPORT int cuCtxGetCurrent(ContextHandle* context) {
  *context = context_is_current() ? the_context : nullptr;
  return enter("cuCtxGetCurrent", false);
}

SIMULATED_EXPORT int cuCtxSetCurrent(ContextHandle context) {
  if (const int error = enter("cuCtxSetCurrent", false); error != 0) return error;
  if (context != nullptr && context != the_context) return error_invalid_context;
  make_context_current(context != nullptr);
  return success;
}

SIMULATED_EXPORT int cuCtxGetDevice(DeviceNumber* device) {
  *device = 0;
  return enter("cuCtxGetDevice");
}

SIMULATED_EXPORT int cuCtxGetLimit(std::size_t* value, int) {
  *value = std::size_t{1} << 20;
  return enter("cuCtxGetLimit");
}

SIMULATED_EXPORT int cuCtxSetLimit(int, std::size_t) { return enter("cuCtxSetLimit"); }

SIMULATED_EXPORT int cuCtxSynchronize() {
  if (const int error = enter_waiting("cuCtxSynchronize"); error != 0) return error;
  wait_for_device();
  return success;
}

SIMULATED_EXPORT int cuGetErrorName(int error, const char** name) {
  if (const int failed = enter("cuGetErrorName", false); failed != 0) return failed;
  static const std::map<int, const char*> names = {
      {error_invalid_value, "CUDA_ERROR_INVALID_VALUE"},
      {error_out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {error_no_device, "CUDA_ERROR_NO_DEVICE"},
      {error_invalid_context, "CUDA_ERROR_INVALID_CONTEXT"},
      {error_already_registered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
      {error_not_supported, "CUDA_ERROR_NOT_SUPPORTED"}};
  const auto found = names.find(error);
  *name = found == names.end() ? nullptr : found->second;
  return *name == nullptr ? error_invalid_value : success;
}

SIMULATED_EXPORT int cuStreamIsCapturing(StreamHandle, int* status) {
  *status = 0;  // CU_STREAM_CAPTURE_STATUS_NONE
  return enter("cuStreamIsCapturing");
}

SIMULATED_EXPORT int cuGetErrorString(int, const char** text) {
  *text = "an error of the simulated driver";
  return success;
}

SIMULATED_EXPORT int cuMemcpyAsync(Address to, Address from, std::size_t bytes, StreamHandle stream) {
  if (const int error = enter("cuMemcpyAsync"); error != 0) return error;
  return copy_async(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes, stream);
}

namespace {

bool overlap(Address a, std::size_t bytes_of_a, Address b, std::size_t bytes_of_b) {
  return a < b + bytes_of_b && b < a + bytes_of_a;
}

// The real driver orders a call's copies in no way.
void expect_no_overlap(const Address* to, const Address* from, const std::size_t* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      if (i != j && (overlap(to[i], bytes[i], from[j], bytes[j]) || overlap(to[i], bytes[i], to[j], bytes[j])))
        misuse("two copies of one call of cuMemcpyBatchAsync overlap, which nothing orders; make two calls");
    }
  }
}

int copy_batch(Address* to, Address* from, std::size_t* bytes, std::size_t count, void*, std::size_t* first,
               std::size_t attribute_count, StreamHandle stream) {
  if (const int error = enter("cuMemcpyBatchAsync"); error != 0) return error;
  if (attribute_count != 1 || *first != 0) return error_invalid_value;  // one set of attributes for all
  if (stream == nullptr) return error_invalid_handle;                   // nor the default stream
  expect_no_overlap(to, from, bytes, count);
  for (std::size_t i = 0; i < count; ++i) {
    const int error =
        copy_async(reinterpret_cast<void*>(to[i]), reinterpret_cast<const void*>(from[i]), bytes[i], stream, true);
    if (error != 0) return error;
  }
  return success;
}

int copy_batch_of_12_8(Address* to, Address* from, std::size_t* bytes, std::size_t count, void* attributes,
                       std::size_t* first, std::size_t attribute_count, std::size_t* failed, StreamHandle stream) {
  const int error = copy_batch(to, from, bytes, count, attributes, first, attribute_count, stream);
  if (error != 0) *failed = SIZE_MAX;  // of no one copy
  return error;
}

void* batch_function(const char* name, int version) {
  if (!options().batched_copies || std::strcmp(name, "cuMemcpyBatchAsync") != 0 || version > options().cuda)
    return nullptr;
  if (version >= 13000) return reinterpret_cast<void*>(&copy_batch);
  return version >= 12080 ? reinterpret_cast<void*>(&copy_batch_of_12_8) : nullptr;
}

}  // namespace

// Of the one function that this driver does not export by name.
SIMULATED_EXPORT int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t, int* status) {
  if (const int error = enter("cuGetProcAddress_v2", false); error != 0) return error;
  *function = batch_function(name, version);
  if (status != nullptr) *status = *function != nullptr ? 0 : 1;  // CU_GET_PROC_ADDRESS_SUCCESS, ..._SYMBOL_NOT_FOUND
  return *function != nullptr ? success : error_not_found;
}

SIMULATED_EXPORT int cuMemsetD8Async(Address to, unsigned char value, std::size_t bytes, StreamHandle stream) {
  if (const int error = enter("cuMemsetD8Async"); error != 0) return error;
  void* const at = reinterpret_cast<void*>(to);
  launch(*stream_of(stream), "memset", {{.at = at, .bytes = bytes, .write = true}},
         [=] { std::memset(memory().reach(at), value, bytes); });
  return success;
}

SIMULATED_EXPORT int cuStreamCreate(StreamHandle* stream, unsigned flags) {
  if (const int error = enter("cuStreamCreate"); error != 0) return error;
  *stream = make_stream(flags != stream_non_blocking);
  return success;
}

SIMULATED_EXPORT int cuStreamDestroy_v2(StreamHandle stream) {
  if (const int error = enter("cuStreamDestroy_v2"); error != 0) return error;
  destroy(stream);
  return success;
}

SIMULATED_EXPORT int cuStreamSynchronize(StreamHandle stream) {
  if (const int error = enter("cuStreamSynchronize"); error != 0) return error;
  const auto found = stream_of(stream);
  if (const int refused = found->refuses_waits(); refused != 0) return refused;
  found->wait();
  return success;
}

SIMULATED_EXPORT int cuStreamQuery(StreamHandle stream) {
  if (const int error = enter("cuStreamQuery"); error != 0) return error;
  const auto found = stream_of(stream);
  if (const int refused = found->refuses_waits(); refused != 0) return refused;
  if (!found->idle()) return error_not_ready;
  found->wait();
  return success;
}

SIMULATED_EXPORT int cuStreamWaitEvent(StreamHandle stream, EventHandle event, unsigned) {
  if (const int error = enter("cuStreamWaitEvent"); error != 0) return error;
  return event_of(event)->let_wait(*stream_of(stream));
}

// The word lies in pinned host memory; a write to it is seen by nobody but this wait.
SIMULATED_EXPORT int cuStreamWaitValue32_v2(StreamHandle stream, Address at, std::uint32_t value, unsigned) {
  if (const int error = enter("cuStreamWaitValue32_v2"); error != 0) return error;
  const auto found = stream_of(stream);
  if (found->capture() != nullptr) return error_not_supported;  // in graphs the simulation lacks it
  order().stream_waits_for_all(found->number());
  found->push([word = static_cast<const std::uint32_t*>(memory().reach(reinterpret_cast<const void*>(at))), value] {
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value) std::this_thread::sleep_for(std::chrono::microseconds(20));
  });
  return success;
}

SIMULATED_EXPORT int cuEventCreate(EventHandle* event, unsigned flags) {
  if (const int error = enter("cuEventCreate"); error != 0) return error;
  *event = make_event((flags & event_disable_timing) == 0);
  return success;
}

SIMULATED_EXPORT int cuEventDestroy_v2(EventHandle event) {
  if (const int error = enter("cuEventDestroy_v2"); error != 0) return error;
  destroy(event);
  return success;
}

SIMULATED_EXPORT int cuEventRecord(EventHandle event, StreamHandle stream) {
  if (const int error = enter("cuEventRecord"); error != 0) return error;
  event_of(event)->record(*stream_of(stream));
  return success;
}

SIMULATED_EXPORT int cuEventQuery(EventHandle event) {
  if (const int error = enter_waiting("cuEventQuery"); error != 0) return error;
  const auto found = event_of(event);
  if (const int refused = found->refuses_waits(); refused != 0) return refused;
  return found->done() ? success : error_not_ready;
}

SIMULATED_EXPORT int cuEventSynchronize(EventHandle event) {
  if (const int error = enter_waiting("cuEventSynchronize"); error != 0) return error;
  const auto found = event_of(event);
  if (const int refused = found->refuses_waits(); refused != 0) return refused;
  found->wait();
  return success;
}

SIMULATED_EXPORT int cuEventElapsedTime(float* ms, EventHandle begin, EventHandle end) {
  if (const int error = enter("cuEventElapsedTime"); error != 0) return error;
  const auto from = event_of(begin), to = event_of(end);
  if (!from->timed() || !to->timed()) return error_invalid_handle;
  *ms = std::chrono::duration<float, std::milli>(to->at() - from->at()).count();
  return success;
}
