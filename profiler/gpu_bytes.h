// Counters of the memory that a process holds for a GPU, field by field: keys in a recording's meta and in a report's
// JSON, and places in the live page.
#pragma once
#include <string>

#include "profiler/live.h"
#include "vedette/observer.h"

namespace vedette {

struct GpuBytesField {
  const char* key;
  Bytes GpuBytes::*bytes;
  Live live;
};
inline constexpr GpuBytesField gpu_bytes_fields[] = {
    {"gpu_bytes", &GpuBytes::on_device, Live::gpu_bytes},
    {"gpu_beside_bytes", &GpuBytes::beside, Live::gpu_beside},
    {"gpu_most_beside_bytes", &GpuBytes::most_beside, Live::gpu_most_beside},
    {"gpu_large_bytes", &GpuBytes::large, Live::gpu_large},
    {"gpu_pool_bytes", &GpuBytes::pools, Live::gpu_pools},
    {"gpu_workspace_bytes", &GpuBytes::workspaces, Live::gpu_workspaces},
    {"gpu_context_bytes", &GpuBytes::context, Live::gpu_context},
    {"locked_bytes", &GpuBytes::locked, Live::host_locked},
    {"in_locked_bytes", &GpuBytes::in_locked, Live::host_in_locked},
    {"most_locked_bytes", &GpuBytes::most_locked, Live::host_most_locked},
    {"pageable_bytes", &GpuBytes::pageable, Live::host_pageable},
};

// ": workspaces 2.0 MiB, context 520.0 MiB": the parts beside the budget that are known; empty where none is.
std::string parts_beside(const GpuBytes& gpu);
// "64.0 MiB of 1.0 GiB, tensors in 60.0 MiB"
std::string words_of_locked(const GpuBytes& gpu);

}  // namespace vedette
