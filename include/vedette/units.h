// Quantities of their own types: a tensor number, an op number and a byte count cannot be mixed up. Each is one machine
// word, ordered, hashable, and converts to its number only through `.value`.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace vedette {

// A position in a table: positions compare, they never add.
template <class Tag>
struct Index {
  std::uint32_t value = 0;
  auto operator<=>(const Index&) const = default;
};
using TensorIndex = Index<struct TensorTag>;
using OpIndex = Index<struct OpTag>;        // one tick of the program's clock
using LayerIndex = Index<struct LayerTag>;  // a named run of ops
using TierIndex = Index<struct TierTag>;    // 0 is the fastest tier

struct Bytes {
  std::uint64_t value = 0;
  auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) noexcept {
    value += other.value;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) noexcept {
    value -= other.value;
    return *this;
  }
  friend constexpr Bytes operator*(Bytes a, std::uint64_t times) noexcept { return {a.value * times}; }
  friend constexpr Bytes operator*(std::uint64_t times, Bytes a) noexcept { return a * times; }
  friend constexpr Bytes operator+(Bytes a, Bytes b) noexcept { return {a.value + b.value}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) noexcept { return {a.value - b.value}; }  // a >= b
};

struct Nanoseconds {  // an integer, so that replays compare byte for byte
  std::int64_t value = 0;
  auto operator<=>(const Nanoseconds&) const = default;
  constexpr Nanoseconds& operator+=(Nanoseconds other) noexcept {
    value += other.value;
    return *this;
  }
  constexpr Nanoseconds& operator-=(Nanoseconds other) noexcept {
    value -= other.value;
    return *this;
  }
  friend constexpr Nanoseconds operator+(Nanoseconds a, Nanoseconds b) noexcept { return {a.value + b.value}; }
  friend constexpr Nanoseconds operator-(Nanoseconds a, Nanoseconds b) noexcept { return {a.value - b.value}; }
};

// Half open, like every interval in this code: [begin, end); empty is begin == end.
template <class T>
struct Span {
  T begin{}, end{};
  auto operator<=>(const Span&) const = default;
};

inline namespace literals {
consteval Bytes operator""_KiB(unsigned long long n) { return {n << 10}; }
consteval Bytes operator""_MiB(unsigned long long n) { return {n << 20}; }
consteval Bytes operator""_GiB(unsigned long long n) { return {n << 30}; }
}  // namespace literals

// The time that moving `bytes` takes on a link of `bytes_per_s`, rounded up; 0 when the link has no limit (0).
constexpr Nanoseconds transfer_time(Bytes bytes, std::uint64_t bytes_per_s) noexcept {
  if (bytes_per_s == 0) return {0};
  const long double seconds = static_cast<long double>(bytes.value) / static_cast<long double>(bytes_per_s);
  return {static_cast<std::int64_t>(seconds * 1e9L + 0.999999L)};
}

}  // namespace vedette

template <class Tag>
struct std::hash<vedette::Index<Tag>> {
  std::size_t operator()(vedette::Index<Tag> index) const noexcept { return std::hash<std::uint32_t>{}(index.value); }
};
