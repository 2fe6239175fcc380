// The names of fast memory. "cuda:1" and "cuda", as libtorch calls a GPU, are "gpu:1" and "gpu:0".
#pragma once
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace vedette {

inline std::string gpu_name(std::string_view fast) {
  constexpr std::string_view cuda = "cuda";
  if (!fast.starts_with(cuda)) return std::string(fast);
  const std::string_view number = fast.substr(cuda.size());
  return number.empty() ? "gpu:0" : "gpu" + std::string(number);
}

// Of "gpu:N"; nullopt: it is something else.
inline std::optional<int> gpu_number(std::string_view name) {
  constexpr std::string_view scheme = "gpu:";
  if (!name.starts_with(scheme)) return std::nullopt;
  int number = -1;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + scheme.size(), end, number);
  return read.ptr == end && read.ec == std::errc() && number >= 0 ? std::optional(number) : std::nullopt;
}

// The processor's memory, of any NUMA node or of one: "dram", "numa:N".
inline bool is_host_memory(std::string_view fast) noexcept { return fast == "dram" || fast.starts_with("numa:"); }

}  // namespace vedette
