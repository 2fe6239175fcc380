// A guard for a Python process: loaded with ctypes, it makes the guard's allocator the one that torch's CPU tensors
// come from. tests/adapter/op_bits.py runs PyTorch's own operator samples over it.
//
// Thread rule: all of it from Python's main thread. Every function but the last says 0 where it failed, with the reason
// on standard error.
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "vedette/torch.h"

namespace {

std::unique_ptr<vedette::Guard> guard;
std::unique_ptr<vedette::Guard::Step> step;

template <class Body>
int told(Body&& body) noexcept {
  try {
    body();
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "op_allocator: %s\n", error.what());
    return 0;
  }
}

}  // namespace

extern "C" {

int vedette_begin(std::uint64_t fast_bytes, std::uint64_t chunk_bytes, const char* slow, const char* policy) {
  return told([&] {
    guard = std::make_unique<vedette::Guard>(vedette::GuardOptions{
        .fast_memory = vedette::Bytes{fast_bytes}, .slow = slow, .policy = policy, .chunk = {chunk_bytes}});
  });
}

int vedette_step_begin() {
  // A scope type: it can be made in place only, and make_unique would move it.
  return told([] { step.reset(new vedette::Guard::Step(guard->step())); });
}

int vedette_step_end() {
  return told([] { step.reset(); });
}

int vedette_end() {
  return told([] { step.reset(), guard.reset(); });
}

// Whether torch's memory at `address` comes from the arena.
int vedette_owns(const void* address) { return vedette::Session::owns(address) ? 1 : 0; }

std::uint64_t vedette_moved_bytes() {
  const vedette::Counters counters = guard->counters();
  return counters.bytes_in.value + counters.bytes_out.value;
}
}
