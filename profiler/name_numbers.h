// Numbers for the names of ops. Thread rule: one thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace vedette {

// Numbers for names without keeping their text: open addressing on a 64-bit hash, never resized.
class NameNumbers {
 public:
  // The name's number (0 when the table is full), and whether this is the first time.
  std::pair<std::uint32_t, bool> number(std::string_view name) noexcept {
    const std::size_t hash = std::hash<std::string_view>{}(name) | 1;  // 0 marks a free slot
    for (std::size_t probe = 0; probe < name_slots; ++probe) {
      const std::size_t slot = (hash + probe) % name_slots;
      if (hashes_[slot] == hash) return {static_cast<std::uint32_t>(slot + 1), false};
      if (hashes_[slot] == 0) {
        hashes_[slot] = hash;
        return {static_cast<std::uint32_t>(slot + 1), true};
      }
    }
    return {0, false};
  }

 private:
  static constexpr std::size_t name_slots = 4096;  // distinct names; a training loop has under a hundred
  std::vector<std::size_t> hashes_ = std::vector<std::size_t>(name_slots);
};

}  // namespace vedette
