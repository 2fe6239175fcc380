// Backward begins before the copy out of a tensor has ended, and its reload reads the staging buffer that the copy
// still fills (Megatron-LM#7398). `--repaired`: the reload waits for the copy.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

namespace {

constexpr std::size_t bytes = 1 << 20;

void check(cudaError_t error) {
  if (error != cudaSuccess) std::printf("error %d\n", static_cast<int>(error));
}

struct Streams {
  cudaStream_t out{}, in{};
};

void copy_out(void* staging, const void* tensor, const Streams& streams) {
  check(cudaMemcpyAsync(staging, tensor, bytes, cudaMemcpyDeviceToHost, streams.out));  // unordered: first
}

void reload(void* tensor, const void* staging, const Streams& streams) {
  check(cudaMemcpyAsync(tensor, staging, bytes, cudaMemcpyHostToDevice, streams.in));  // unordered: then
}

}  // namespace

int main(int count, char** words) {
  const bool repaired = count > 1 && std::strcmp(words[1], "--repaired") == 0;
  Streams streams;
  check(cudaStreamCreateWithFlags(&streams.out, cudaStreamNonBlocking));
  check(cudaStreamCreateWithFlags(&streams.in, cudaStreamNonBlocking));
  cudaEvent_t left{};
  check(cudaEventCreateWithFlags(&left, cudaEventDisableTiming));
  void *tensor = nullptr, *again = nullptr, *staging = nullptr;
  check(cudaMalloc(&tensor, bytes));
  check(cudaMalloc(&again, bytes));
  check(cudaMallocHost(&staging, bytes));
  check(cudaMemsetAsync(tensor, 1, bytes, streams.out));
  copy_out(staging, tensor, streams);
  check(cudaEventRecord(left, streams.out));
  if (repaired) check(cudaStreamWaitEvent(streams.in, left, 0));
  reload(again, staging, streams);
  check(cudaDeviceSynchronize());
  return 0;
}
