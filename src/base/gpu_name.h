// "cuda:1" and "cuda", as libtorch calls a GPU, are "gpu:1" and "gpu:0".
#pragma once
#include <string>
#include <string_view>

namespace vedette {

inline std::string gpu_name(std::string_view fast) {
  constexpr std::string_view cuda = "cuda";
  if (!fast.starts_with(cuda)) return std::string(fast);
  const std::string_view number = fast.substr(cuda.size());
  return number.empty() ? "gpu:0" : "gpu" + std::string(number);
}

}  // namespace vedette
