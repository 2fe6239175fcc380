// How fast all processors together go through memory: what links and a program's own work share.
#pragma once
#include <cstdint>

namespace vedette::cli {

// HostMemory::bytes_per_s: bytes a second that all processors, or as many as the limit of threads allows, read and
// write of memory that no cache holds; the best of five passes. It takes 1 GiB of memory, or an eighth of what is
// available, for about a second. 0: no memory was left.
std::uint64_t measure_host_memory();

}  // namespace vedette::cli
