// Stacks and the names of their frames: see stacks.h.
#include "profiler/stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "profiler/symbols.h"

namespace vedette {
namespace {

constexpr std::size_t longest_name = 200;

// Prefixes of mangled names, which begin with the namespace whatever a function returns.
bool is_of_a_library(std::string_view symbol) {
  constexpr std::string_view insides[] = {"_ZN7vedette", "_ZNK7vedette", "_ZThn",     "_ZN2at",     "_ZNK2at",
                                          "_ZN3c10",     "_ZNK3c10",     "_ZN5torch", "_ZNK5torch", "_ZNSt",
                                          "_ZNKSt",      "_ZSt",         "_Zn",       "_start"};
  constexpr std::string_view examples = "_ZN7vedette8examples";
  return !symbol.starts_with(examples) &&
         std::any_of(std::begin(insides), std::end(insides), [&](auto prefix) { return symbol.starts_with(prefix); });
}

bool is_a_library(std::string_view file) {
  constexpr std::string_view libraries[] = {"libtorch",   "libc10",   "libc.so",    "libstdc++", "libgcc_s", "libgomp",
                                            "libpthread", "ld-linux", "libvedette", "libasan",   "libtsan"};
  return std::any_of(std::begin(libraries), std::end(libraries), [&](auto name) { return file.starts_with(name); });
}

std::string in_hex(std::uintptr_t number) {
  std::string digits;
  do digits.insert(digits.begin(), "0123456789abcdef"[number % 16]);
  while ((number /= 16) != 0);
  return "0x" + digits;
}

}  // namespace

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return std::string(status == 0 && name != nullptr ? name.get() : symbol).substr(0, longest_name);
}

bool is_own_frame(std::string_view file, std::string_view symbol) {
  file.remove_prefix(file.rfind('/') + 1);
  return !is_a_library(file) && (symbol.empty() || !is_of_a_library(symbol));
}

StackTable::StackTable() {
  void* frame = nullptr;
  static_cast<void>(::backtrace(&frame, 1));
}

std::uint32_t StackTable::here() {
  Stack stack;
  stack.count = static_cast<std::size_t>(std::max(0, ::backtrace(stack.frames.data(), static_cast<int>(most_frames))));
  std::uint64_t hash = 1469598103934665603u;  // FNV-1a, of addresses
  for (const void* const frame : stack.all()) hash = (hash ^ reinterpret_cast<std::uintptr_t>(frame)) * 1099511628211u;
  const auto [known, fresh] = by_hash_.try_emplace(hash, static_cast<std::uint32_t>(stacks_.size() + 1));
  if (!fresh) return known->second;
  if (stacks_.size() == most_stacks) {
    by_hash_.erase(known);
    return 0;
  }
  stacks_.push_back(stack);
  return known->second;
}

std::vector<std::string> FrameNames::of(std::span<void* const> stack) {
  std::vector<std::string> frames;
  for (void* const frame : stack) {
    // A return address may be the next function's first: the call lies before it.
    const auto call = reinterpret_cast<std::uintptr_t>(frame) - 1;
    Dl_info found{};
    if (::dladdr(reinterpret_cast<const void*>(call), &found) == 0 || found.dli_fname == nullptr) continue;
    std::string_view file = found.dli_fname;
    file.remove_prefix(file.rfind('/') + 1);
    if (!is_own_frame(file, {})) continue;
    const std::uintptr_t offset = call - reinterpret_cast<std::uintptr_t>(found.dli_fbase);
    const auto [symbols, fresh] = files_.try_emplace(found.dli_fname, found.dli_fname);
    const std::string symbol = found.dli_sname != nullptr ? found.dli_sname : symbols->second.at(offset);
    if (symbol.empty())
      frames.push_back(std::string(file) + "+" + in_hex(offset));
    else if (!is_of_a_library(symbol))
      frames.push_back(demangled(symbol));
  }
  return frames;
}

}  // namespace vedette
