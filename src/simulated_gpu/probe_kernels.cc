// The kernels of bench/gpu_probe on the processor: see probe_kernels.h.
#include "simulated_gpu/probe_kernels.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "cuda/api.h"
#include "simulated_gpu/memory.h"

using namespace vedette::cuda;

namespace vedette::simulated {
namespace {

using Kernel = KernelWork;

class Arguments {
 public:
  explicit Arguments(void** pointers) : pointers_(pointers) {}
  template <class T>
  T at(std::size_t index) const {
    T value;
    std::memcpy(&value, pointers_[index], sizeof value);
    return value;
  }
  Address address(std::size_t index) const { return at<Address>(index); }
  std::uint64_t count(std::size_t index) const { return at<std::uint64_t>(index); }
  std::uint32_t word(std::size_t index) const { return at<std::uint32_t>(index); }

 private:
  void** pointers_;
};

void* pointer(Address at) { return reinterpret_cast<void*>(at); }
std::uint32_t* words_at(Address at) { return static_cast<std::uint32_t*>(memory().reach(pointer(at))); }
volatile std::uint32_t& flag(Address at) { return *words_at(at); }
Access access(Address at, std::size_t bytes, bool write) { return {.at = pointer(at), .bytes = bytes, .write = write}; }

// compute and walk: until stopped, or for a time at most.
Kernel busy(const Arguments& given, bool walks) {
  const std::uint64_t ns = given.count(0);
  const Address started = given.address(1), stop = given.address(2), from = walks ? given.address(3) : 0;
  const std::size_t bytes = walks ? given.count(4) * 16 : 0;
  const auto run = [=] {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::nanoseconds(ns);
    flag(started) = 1;
    while (flag(stop) == 0 && Clock::now() < end) {
      for (std::size_t at = 0; at < bytes; at += 4096) ++*words_at(from + at);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  };
  if (!walks) return {.accesses = {}, .run = run};
  return {.accesses = {access(from, bytes, true)}, .run = run};
}

Kernel write(const Arguments& given) {
  const Address to = given.address(0);
  const std::size_t words = given.count(1) * 4;
  return {.accesses = {access(to, words * 4, true)},
          .run = [=, value = given.word(2)] { std::fill_n(words_at(to), words, value); }};
}

Kernel read(const Arguments& given) {
  const Address from = given.address(0);
  const std::size_t words = given.count(1) * 4;
  return {.accesses = {access(from, words * 4, false)}, .run = [=, sink = given.address(2)] {
            std::uint32_t all = 0;
            for (std::size_t i = 0; i < words; i += 16) all ^= words_at(from)[i];
            if (all == 0x9E3779B9) flag(sink) = all;
          }};
}

Kernel check(const Arguments& given) {
  const Address from = given.address(0);
  const std::size_t words = given.count(1) * 4;
  return {.accesses = {access(from, words * 4, false)}, .run = [=, value = given.word(2), wrong = given.address(3)] {
            const std::uint32_t* const first = words_at(from);
            if (std::any_of(first, first + words, [&](std::uint32_t each) { return each != value; })) flag(wrong) = 1;
          }};
}

// touch and store: one word of each stride.
Kernel each_stride(const Arguments& given, bool written) {
  const Address from = given.address(0);
  const std::uint64_t stride = given.count(1), count = given.count(2);
  const Address sink = written ? 0 : given.address(3);
  const auto run = [=] {
    std::uint32_t all = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      volatile std::uint32_t& word = flag(from + i * stride);
      if (written) word = 1;
      if (!written) all += word;
    }
    if (!written && all == 0x9E3779B9) flag(sink) = all;
  };
  return {.accesses = {access(from, stride * count, written)}, .run = run};
}

}  // namespace

std::optional<KernelWork> probe_kernel(const std::string& name, void** arguments) {
  static const std::map<std::string, Kernel (*)(const Arguments&)> known = {
      {"compute", [](const Arguments& given) { return busy(given, false); }},
      {"walk", [](const Arguments& given) { return busy(given, true); }},
      {"read", read},
      {"write", write},
      {"check", check},
      {"touch", [](const Arguments& given) { return each_stride(given, false); }},
      {"store", [](const Arguments& given) { return each_stride(given, true); }}};
  const auto found = known.find(name);
  if (found == known.end()) return std::nullopt;
  return found->second(Arguments(arguments));
}

}  // namespace vedette::simulated
