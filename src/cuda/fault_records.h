// CUPTI's records of managed memory, loaded at run time: which pages the device took a fault for, and how it used them.
//
// They come from construction on. One object lives at a time in a process, since CUPTI's callbacks carry no pointer of
// ours. It is made once the driver is loaded (cuInit). A loaded CUPTI stays loaded. Thread rule: any thread, one call
// at a time; CUPTI hands buffers over on a thread of its own.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda/cupti_api.h"
#include "vedette/result.h"

namespace vedette::cuda {

struct CuptiCalls {
#define CALL(member, header_name, exported_name, ...) int (*member)(__VA_ARGS__) = nullptr;
#include "cuda/cupti_calls.def"
#undef CALL
};

class FaultRecords {
 public:
  // `file` "": CUPTI of CUDA 13, where the loader or the toolkit has it. Errors, a sentence each: unavailable where no
  // CUPTI is, where it lacks a function, where another profiler holds it, or where it refuses the device; and while
  // another object lives.
  static Result<std::unique_ptr<FaultRecords>> open(std::span<const CounterKind> kinds, const std::string& file = "");
  ~FaultRecords();  // CUPTI records no more
  FaultRecords(const FaultRecords&) = delete;
  FaultRecords& operator=(const FaultRecords&) = delete;

  // Records since the last call, oldest first. A kernel's are there once the device was waited for. An error where
  // CUPTI lost records for want of room: those that it has are gone, too.
  Result<std::vector<CounterRecord>> take();

 private:
  explicit FaultRecords(const CuptiCalls& calls) noexcept : calls_(calls) {}
  const CuptiCalls calls_;
};

}  // namespace vedette::cuda
