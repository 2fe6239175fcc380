// The device a run trains on: the CPU, or CUDA's first GPU. One program does both, since libtorch_cuda.so is
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

// Of libtorch and cuBLAS, for the process. Before the first operator. An operator without a deterministic form throws,
// or, where `missing` is allowed, warns and runs as it is; then the attention of float32 is not deterministic either.
enum class Missing : bool { refused, allowed };
void use_deterministic_algorithms(Missing missing = Missing::refused);

std::uint64_t device_peak_bytes();  // largest sum of live allocations of the GPU, as libtorch's allocator counts them

}  // namespace vedette::examples
