// Buffers for CUPTI, and what is in them: see fault_records.h.
#include "cuda/fault_records.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

namespace vedette::cuda {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

struct Filled {
  std::uint8_t* buffer = nullptr;
  std::size_t valid_bytes = 0;
};

// CUPTI's callbacks collect here.
std::mutex guard;
std::vector<Filled> filled;          // guarded by `guard`
std::atomic<bool> one_lives{false};  // relaxed: a flag alone

void give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_bytes));
  *bytes = *buffer == nullptr ? 0 : buffer_bytes;
  *most_records = 0;  // as many as fit
}

void take_buffer(ContextHandle, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  const std::lock_guard lock(guard);
  filled.push_back({buffer, valid_bytes});
}

Error unavailable(std::string message) { return {.cause = Cause::unavailable, .message = std::move(message)}; }

void* load(const std::string& file) {
  if (!file.empty()) return ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (const char* const name :
       {"libcupti.so.13", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13", "/usr/local/cuda/lib64/libcupti.so.13"})
    if (void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

Result<CuptiCalls> calls_of(const std::string& file) {
  const std::string name = file.empty() ? "libcupti.so.13" : file;
  void* const library = load(file);
  if (library == nullptr)
    return unavailable("page faults of a GPU cannot be recorded: CUPTI of CUDA 13 (" + name +
                       ") is not there; install it (the wheel nvidia-cuda-cupti, or the toolkit) where the loader "
                       "finds it");
  CuptiCalls calls;
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* exported) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, exported));
    if (function == nullptr) missing = exported;
  };
#define CALL(member, header_name, exported_name, ...) find(calls.member, #exported_name);
#include "cuda/cupti_calls.def"
#undef CALL
  if (missing != nullptr)
    return unavailable("page faults of a GPU cannot be recorded: " + name + " lacks " + missing +
                       "; install CUPTI of CUDA 13");
  return calls;
}

Error refused(const CuptiCalls& calls, int error, const char* function) {
  const char* text = nullptr;
  const bool named = calls.name_of_result(error, &text) == 0 && text != nullptr;
  const std::string which =
      (named ? std::string(text) : "CUPTI error " + std::to_string(error)) + " (" + function + ")";
  const std::string remedy =
      error == cupti_other_subscriber
          ? "another profiler holds CUPTI: end it (nsys, ncu, libtorch's own), or start the program without it"
      : error == cupti_no_privileges
          ? "run as root, or let the administrator allow it (NVreg_RestrictProfilingToAdminUsers=0)"
          : "choose another page tracker";
  return unavailable("page faults of a GPU cannot be recorded: " + which + "; " + remedy);
}

// Records of another activity that the process has enabled are passed over.
void append(const CuptiCalls& calls, const Filled& from, std::vector<CounterRecord>& records) {
  void* record = nullptr;
  while (calls.next_record(from.buffer, from.valid_bytes, &record) == 0) {
    CounterRecord copied;
    std::memcpy(&copied, record, sizeof copied.activity_kind);
    if (copied.activity_kind != activity_managed_memory) continue;
    std::memcpy(&copied, record, sizeof copied);
    records.push_back(copied);
  }
}

}  // namespace

Result<std::unique_ptr<FaultRecords>> FaultRecords::open(std::span<const CounterKind> kinds, const std::string& file) {
  auto calls = calls_of(file);
  if (!calls) return calls.error();
  if (one_lives.exchange(true, std::memory_order_relaxed))
    return unavailable("page faults of a GPU are recorded by this process already; end that first");
  std::unique_ptr<FaultRecords> records(new FaultRecords(*calls));
  std::vector<CounterConfiguration> wanted(kinds.size());
  for (std::size_t i = 0; i < kinds.size(); ++i) wanted[i].kind = kinds[i];
  if (const int error = calls->register_callbacks(give_buffer, take_buffer); error != 0)
    return refused(*calls, error, "cuptiActivityRegisterCallbacks");
  if (const int error = calls->configure(wanted.data(), static_cast<std::uint32_t>(wanted.size())); error != 0)
    return refused(*calls, error, "cuptiActivityConfigureUnifiedMemoryCounter");
  if (const int error = calls->enable(activity_managed_memory); error != 0)
    return refused(*calls, error, "cuptiActivityEnable");
  return records;
}

FaultRecords::~FaultRecords() {
  calls_.disable(activity_managed_memory);
  static_cast<void>(take());  // gives the buffers back
  one_lives.store(false, std::memory_order_relaxed);
}

Result<std::vector<CounterRecord>> FaultRecords::take() {
  const int flushed = calls_.flush(activity_flush_forced);
  std::size_t lost = 0;
  const int asked = calls_.lost_records(nullptr, 0, &lost);
  std::vector<Filled> buffers;
  {
    const std::lock_guard lock(guard);
    buffers.swap(filled);
  }
  std::vector<CounterRecord> records;
  for (const Filled& each : buffers) {
    append(calls_, each, records);
    std::free(each.buffer);
  }
  if (flushed != 0) return refused(calls_, flushed, "cuptiActivityFlushAll");
  if (asked != 0) return refused(calls_, asked, "cuptiActivityGetNumDroppedRecords");
  if (lost != 0)
    return Error{.cause = Cause::system,
                 .message = "CUPTI lost " + std::to_string(lost) +
                            " records of page faults for want of room; profile a smaller model or batch"};
  return records;
}

}  // namespace vedette::cuda
