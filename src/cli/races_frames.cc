// Names and lines of frames: see races_frames.h.
#include "cli/races_frames.h"

#include <array>
#include <cstdio>
#include <memory>

#include "profiler/stacks.h"

namespace vedette::cli {
namespace {

// The simulated GPU, and Python itself, whose own frames are told by Python.
bool is_of_the_machine(std::string_view file) {
  file.remove_prefix(file.rfind('/') + 1);
  for (const std::string_view each :
       {"libcuda.so", "libcudart", "libsimulated", "libcublas", "libnccl", "libpython", "python"})
    if (file.starts_with(each)) return true;
  return false;
}

std::string quoted(const std::string& path) {
  std::string out = "'";
  for (const char c : path) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string RacesFrames::line(const std::string& file, std::uint64_t offset) {
  const auto [known, fresh] = lines_.try_emplace({file, offset});
  if (!fresh) return known->second;
  std::array<char, 64> number{};
  std::snprintf(number.data(), number.size(), "%#llx", static_cast<unsigned long long>(offset));
  const std::string command = "addr2line -e " + quoted(file) + " " + number.data() + " 2>/dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> answer(::popen(command.c_str(), "re"), &::pclose);
  std::array<char, 4096> text{};
  if (answer == nullptr || std::fgets(text.data(), static_cast<int>(text.size()), answer.get()) == nullptr) return {};
  std::string told(text.data());
  told = told.substr(0, told.find_first_of("\n ("));
  return known->second = told.starts_with("?") || told.ends_with(":?") || told.ends_with(":0") ? "" : told;
}

std::string RacesFrames::name(const std::string& file, std::uint64_t offset, const std::string& symbol) {
  const auto [symbols, fresh] = files_.try_emplace(file, file);
  return symbol.empty() ? symbols->second.at(offset) : symbol;
}

std::vector<std::string> RacesFrames::of(const nlohmann::json& native) {
  std::vector<std::string> frames;
  for (const nlohmann::json& each : native) {
    const std::string file = each.value("file", "");
    if (file.empty() || is_of_the_machine(file) || !is_own_frame(file, {})) continue;
    const auto offset = each.value("offset", std::uint64_t{0});
    const std::string symbol = name(file, offset, each.value("symbol", ""));
    if (!is_own_frame(file, symbol)) continue;
    std::string told = symbol.empty() ? file.substr(file.rfind('/') + 1) : demangled(symbol);
    if (const std::string where = line(file, offset); !where.empty())
      told += " (" + where + ")";
    else if (symbol.empty())
      continue;  // a frame that says nothing
    frames.push_back(std::move(told));
  }
  return frames;
}

}  // namespace vedette::cli
