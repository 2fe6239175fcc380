// The device a plain run trains on: the CPU, or CUDA's first GPU. One program does both, since libtorch_cuda.so is
// loaded only when a GPU is asked for. Thread rule: one thread.
#pragma once
#include <cstdint>
#include <string>

namespace torch::nn {
class Module;
}

namespace vedette::examples {

// Loads what the device needs. "cpu" or "cuda"; throws std::runtime_error with a sentence where there is no GPU.
void prepare_device(const std::string& device);

// Moves parameters and buffers there. An optimizer that holds the parameters stays valid while it has no state yet.
void move_to_device(torch::nn::Module& module, const std::string& device);

// Of a run on the GPU inside a budget of its memory: storages that are used least recently leave for the host. Before
// the model is made. Throws std::runtime_error with a sentence.
struct GpuBudget {
  std::uint64_t bytes = 0, small = 0;  // allocations below `small` bytes are not counted
};
struct GpuTraffic {
  std::uint64_t bytes_in = 0, bytes_out = 0, most_in_use = 0;
};
void keep_gpu_budget(const GpuBudget& budget);
GpuTraffic gpu_traffic();

std::uint64_t device_peak_bytes();  // largest sum of live allocations of the GPU, as libtorch's allocator counts them

}  // namespace vedette::examples
