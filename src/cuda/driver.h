// CUDA's driver, loaded at run time: one binary with and without a GPU, and nothing to link.
//
// Functions answer 0 or the number of an error, which check() turns into a sentence. A loaded driver stays loaded,
// since it starts threads of its own. Thread rule: any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cuda/api.h"
#include "cuda/batched_copies.h"
#include "vedette/result.h"

namespace vedette::cuda {

struct Calls {
#define CALL(member, header_name, exported_name, ...) int (*member)(__VA_ARGS__) = nullptr;
#include "cuda/calls.def"
#include "cuda/managed_calls.def"
#undef CALL
};

class Driver {
 public:
  // Errors: no such file, a function that it lacks, cuInit's refusal.
  static Result<std::shared_ptr<const Driver>> load(const std::string& file = "libcuda.so.1");

  const Calls& calls() const noexcept { return calls_; }
  const BatchedCopies& batched_copies() const noexcept { return batched_copies_; }  // false: a driver before CUDA 12.8
  // `doing` begins the sentence: "copying 2 MiB to the host".
  Result<void> check(int error, std::string_view doing) const;
  // Of a number that is not 0. The remedy depends on whose memory was wanted.
  enum class Memory : std::uint8_t { of_gpu, of_host };
  Error error(int number, std::string_view doing, Memory wanted = Memory::of_gpu) const;

 private:
  Calls calls_;
  BatchedCopies batched_copies_;
};

}  // namespace vedette::cuda
