// The stacks of calls that allocated tensors: return addresses, taken by glibc's unwinder, each distinct stack once.
// Some microseconds a stack. At most `most_stacks` of them are kept, with `most_frames` frames each: 1.6 MiB.
//
// Thread rule: a StackTable one thread at a time; as FrameNames.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/symbols.h"

namespace vedette {

class StackTable {
 public:
  static constexpr std::size_t most_frames = 48, most_stacks = 4096;
  struct Stack {
    std::array<void*, most_frames> frames{};
    std::size_t count = 0;
    std::span<void* const> all() const noexcept { return {frames.data(), count}; }
  };
  StackTable();  // loads the unwinder, which allocates

  // The number of the calling thread's stack, from 1; 0: there is no room for another one.
  std::uint32_t here();
  const Stack& operator[](std::uint32_t number) const { return stacks_[number - 1]; }
  std::size_t size() const noexcept { return stacks_.size(); }

 private:
  std::vector<Stack> stacks_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_hash_;  // a collision of 64 bits would join two stacks
};

// Of a file's path and a mangled name: the program's own, and none of libtorch, vedette and the C and C++ libraries.
bool is_own_frame(std::string_view file, std::string_view symbol);
std::string demangled(const std::string& symbol);  // at most 200 bytes

class FrameNames {
 public:
  // The program's own frames, the innermost first: a function's name, or "file+0x1a2b" where its file is stripped
  // (addr2line -e file 0x1a2b). Frames of libtorch, vedette and the C and C++ libraries are left out.
  std::vector<std::string> of(std::span<void* const> stack);

 private:
  std::map<std::string, Symbols> files_;
};

}  // namespace vedette
