// Kernels of cubins. The simulated device cannot run their code: a program that knows their source runs it on the
// processor, on the stream's thread and in the device's memory. Python does so for Triton
// (python/tests/triton_device.py).
//
// Without C++, for ctypes. Thread rule: any thread. `accesses` is called on the thread that launches, `run` on the
// stream's.
#pragma once
#include <cstddef>

namespace vedette::simulated {

struct InterpretedAccess {
  const void* at;
  std::size_t bytes;
  int write;
};

struct InterpretedLaunch {
  const char* name;
  const char* image;  // the cubin
  std::size_t image_bytes;
  unsigned grid[3];
  unsigned argument_count;
  const void* const* arguments;  // copies
  const std::size_t* argument_bytes;
  unsigned access_count;  // what `accesses` has said
  const InterpretedAccess* accesses;
};

// Fills at most `room` accesses that the kernel will make, and returns how many they are.
using AskAccesses = int (*)(const InterpretedLaunch*, InterpretedAccess*, int room);
using RunInterpreted = void (*)(const InterpretedLaunch*);

}  // namespace vedette::simulated

extern "C" {
// Of all kernels of cubins that are launched from now on; nullptr: they end the process with their name.
void simulated_gpu_interpret(vedette::simulated::AskAccesses, vedette::simulated::RunInterpreted);
void* simulated_gpu_reach(const void* device);  // where a stream's thread finds it
std::size_t simulated_gpu_race_count();
void simulated_gpu_end(const char* sentence);  // ends the process, as misuse of the device does
}
