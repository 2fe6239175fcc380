// NCCL's types of elements and its reductions, on the processor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vedette::simulated::nccl {

enum Type { i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16, types };  // ncclDataType_t
enum Reduction { sum, prod, max, min, avg, first_own };                // ncclRedOp_t; from first_own on: own factors
constexpr std::size_t type_bytes[types] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

struct Bf16 {
  std::uint16_t bits = 0;
  Bf16(double value) {  // NOLINT: as a number; rounds to nearest, ties to even
    const auto narrow = static_cast<float>(value);
    std::uint32_t all;
    std::memcpy(&all, &narrow, sizeof all);
    const bool is_nan = narrow != narrow;
    bits = static_cast<std::uint16_t>(is_nan ? 0x7fc0 : (all + 0x7fff + ((all >> 16) & 1)) >> 16);
  }
  operator float() const {  // NOLINT: as a number
    const std::uint32_t all = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &all, sizeof value);
    return value;
  }
};

template <class Use>
void with_type(int type, const Use& use) {
  switch (type) {
    case i8:
      return use(std::int8_t{});
    case u8:
      return use(std::uint8_t{});
    case i32:
      return use(std::int32_t{});
    case u32:
      return use(std::uint32_t{});
    case i64:
      return use(std::int64_t{});
    case u64:
      return use(std::uint64_t{});
    case f16:
      return use(_Float16{});
    case f32:
      return use(float{});
    case f64:
      return use(double{});
    default:
      return use(Bf16{0});
  }
}

// to := to (reduction) from; a sum is rounded to the type at each addition.
inline void combine(int type, int reduction, void* to, const void* from, std::size_t n) {
  with_type(type, [&](auto example) {
    using T = decltype(example);
    auto* const a = static_cast<T*>(to);
    const auto* const b = static_cast<const T*>(from);
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = reduction == prod  ? static_cast<T>(a[i] * b[i])
             : reduction == max ? (a[i] < b[i] ? b[i] : a[i])
             : reduction == min ? (b[i] < a[i] ? b[i] : a[i])
                                : static_cast<T>(a[i] + b[i]);
    }
  });
}

inline void multiply(int type, void* to, std::size_t n, double by) {
  with_type(type, [&](auto example) {
    using T = decltype(example);
    auto* const a = static_cast<T*>(to);
    for (std::size_t i = 0; i < n; ++i) a[i] = static_cast<T>(a[i] * static_cast<T>(by));
  });
}

inline void divide(int type, void* to, std::size_t n, double by) {
  with_type(type, [&](auto example) {
    using T = decltype(example);
    auto* const a = static_cast<T*>(to);
    for (std::size_t i = 0; i < n; ++i) a[i] = static_cast<T>(a[i] / static_cast<T>(by));
  });
}

inline double number_at(int type, const void* at) {
  double number = 0;
  with_type(type, [&](auto example) {
    std::memcpy(&example, at, sizeof example);
    number = static_cast<double>(example);
  });
  return number;
}

}  // namespace vedette::simulated::nccl
