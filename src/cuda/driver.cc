// dlopen, dlsym and the sentences of errors: see driver.h.
#include "cuda/driver.h"

#include <dlfcn.h>

namespace vedette::cuda {
namespace {

// The remedy of an error, after its name.
const char* advice(int error, Driver::Memory wanted) {
  switch (error) {
    case error_out_of_memory:
      return wanted == Driver::Memory::of_gpu
                 ? "free memory of the GPU, or give a smaller budget"
                 : "free memory of the host, or give it less to hold: a limit (\"host:SIZE\"), or a disk below it "
                   "(\"host:SIZE+nvme:DIRECTORY\")";
    case error_no_device:
    case error_invalid_device:
      return "choose a GPU that this machine shows (nvidia-smi lists them)";
    case error_invalid_context:
      return "call Device::make_current() in this thread first";
    case error_not_supported:
      return "use a newer driver or another GPU";
    default:
      return "start the program again, and see the kernel's log (dmesg) for the GPU's own report";
  }
}

Cause cause_of(int error) {
  if (error == error_out_of_memory) return Cause::out_of_memory;
  if (error == error_no_device || error == error_invalid_device) return Cause::unavailable;
  return error == error_not_supported ? Cause::unsupported : Cause::system;
}

}  // namespace

Result<std::shared_ptr<const Driver>> Driver::load(const std::string& file) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Error{.cause = Cause::unavailable,
                 .message = "CUDA's driver cannot be loaded (" + std::string(::dlerror()) +
                            "); install NVIDIA's driver, or use fast = \"dram\""};
  auto driver = std::make_shared<Driver>();
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) missing = name;
  };
#define CALL(member, header_name, exported_name, ...) find(driver->calls_.member, #exported_name);
#include "cuda/managed_calls.def"
  missing = nullptr;  // an older driver lacks some of these
#include "cuda/calls.def"
#undef CALL
  if (missing != nullptr)
    return Error{.cause = Cause::unsupported,
                 .message = file + " lacks " + missing + "; install a driver for CUDA 12 or newer"};
  if (auto started = driver->check(driver->calls_.init(0), "starting CUDA's driver"); !started) return started.error();
  int version = 0;  // 12040 is CUDA 12.4
  if (auto known = driver->check(driver->calls_.driver_version(&version), "asking CUDA's driver for its version");
      !known)
    return known.error();
  if (constexpr int oldest = 12000; version < oldest)
    return Error{
        .cause = Cause::unsupported,
        .message = file + " is of CUDA " + std::to_string(version / 1000) + "; install a driver for CUDA 12 or newer"};
  driver->batched_copies_ = BatchedCopies(driver->calls_.procedure, version);
  return std::shared_ptr<const Driver>(std::move(driver));
}

Error Driver::error(int number, std::string_view doing, Memory wanted) const {
  const char* name = nullptr;
  const bool named = calls_.error_name(number, &name) == success && name != nullptr;
  return {.cause = cause_of(number),
          .message = std::string(doing) + " failed with " + (named ? name : "CUDA error " + std::to_string(number)) +
                     "; " + advice(number, wanted)};
}

Result<void> Driver::check(int number, std::string_view doing) const {
  if (number == success) return {};
  return error(number, doing);
}

}  // namespace vedette::cuda
