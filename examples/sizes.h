// Sizes on the command line: 500MiB, 2GiB, 25%. Thread rule: any thread. Errors: std::runtime_error with a sentence.
#pragma once
#include <cstdint>
#include <string>

namespace vedette::examples {

// The value of --fast-memory: bytes, or a share of a peak that is still to be measured.
struct FastMemory {
  std::uint64_t bytes = 0;
  double share = 0;  // 0: bytes
};

std::uint64_t parse_bytes(const std::string& text);
FastMemory parse_fast_memory(const std::string& text);

}  // namespace vedette::examples
