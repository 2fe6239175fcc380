// A device for tests: the simulated driver, loaded as a real one is, and what is asked of it beside CUDA.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "cuda/device_range.h"
#include "cuda/pinned_pool.h"
#include "simulated_gpu/control.h"

namespace vedette::testing {

inline simulated::Control& control() {
  static simulated::Control* const found = [] {
    void* const library = ::dlopen(SIMULATED_DRIVER, RTLD_NOW | RTLD_LOCAL);
    void* const entry = library == nullptr ? nullptr : ::dlsym(library, "simulated_gpu");
    if (entry == nullptr) ADD_FAILURE() << SIMULATED_DRIVER << " is no simulated driver";
    return reinterpret_cast<simulated::Control* (*)()>(entry)();
  }();
  return *found;
}

inline std::shared_ptr<cuda::Device> open_device() {
  return cuda::Device::open(cuda::Driver::load(SIMULATED_DRIVER).value(), 0).value();
}

// Begins without races and failing calls, and ends with nothing that was not given back.
class SimulatedGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    control().choose(options());
    control().fail_none();
    control().forget_races();
  }
  void TearDown() override {
    EXPECT_EQ(control().races(), std::vector<std::string>()) << "a test that plants a race forgets it";
    EXPECT_EQ(control().leaks(), std::vector<std::string>());
  }
  virtual simulated::Options options() const { return {.memory = std::size_t{256} << 20}; }
};

// Tests race on the device's memory on purpose, and the simulated GPU's own detector looks for that.
#define VEDETTE_ON_THE_DEVICE __attribute__((no_sanitize("thread")))

// Work on a stream: fills words, or copies words of the device to the host's.
inline void launch_fill(cuda::StreamHandle stream, cuda::Address to, std::size_t words, std::uint32_t value) {
  void* const at = reinterpret_cast<void*>(to);
  control().launch(stream, "fill", {{.at = at, .bytes = words * 4, .write = true}}, [=]() VEDETTE_ON_THE_DEVICE {
    auto* const first = static_cast<std::uint32_t*>(control().reach(at));
    for (std::size_t i = 0; i < words; ++i) first[i] = value;
  });
}

inline void launch_read(cuda::StreamHandle stream, cuda::Address from, std::size_t words, std::uint32_t* sum) {
  void* const at = reinterpret_cast<void*>(from);
  control().launch(stream, "read", {{.at = at, .bytes = words * 4}}, [=]() VEDETTE_ON_THE_DEVICE {
    const auto* const first = static_cast<const std::uint32_t*>(control().reach(at));
    *sum = 0;
    for (std::size_t i = 0; i < words; ++i) *sum += first[i];
  });
}

inline unsigned pinned_pieces() {  // registered, or allocated by the driver, since the process began
  const auto calls = control().calls();
  unsigned made = 0;
  for (const char* const name : {"cuMemHostRegister_v2", "cuMemHostAlloc"}) {
    const auto found = calls.find(name);
    made += found == calls.end() ? 0 : found->second;
  }
  return made;
}

inline cuda::Address address_of(const void* at) { return reinterpret_cast<cuda::Address>(at); }

}  // namespace vedette::testing
