// Results that a change of the code's shape must not move: a file of lines, each a name and its result. A commit that
// means to change them remakes the file, alone: the test writes what it found beside the build, and names it.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace vedette::testing {

using Goldens = std::map<std::string, std::string>;  // [name without blanks at its end] = result, a word or more

inline Goldens read_goldens(const std::filesystem::path& file) {
  Goldens goldens;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t end = line.find(": ");
    if (!line.starts_with('#') && end != std::string::npos) goldens[line.substr(0, end)] = line.substr(end + 2);
  }
  return goldens;
}

// `file` is in tests/; expects what it has, and nothing else.
inline void expect_goldens(const std::string& file, const Goldens& found) {
  const Goldens wanted = read_goldens(std::filesystem::path(VEDETTE_SOURCE_DIR) / "tests" / file);
  std::ostringstream wrong;
  for (const auto& [name, result] : wanted)
    if (!found.contains(name)) wrong << "  " << name << " is gone\n";
  for (const auto& [name, result] : found) {
    const auto before = wanted.find(name);
    if (before == wanted.end())
      wrong << "  " << name << " is new: " << result << '\n';
    else if (before->second != result)
      wrong << "  " << name << ": " << before->second << " before, now " << result << '\n';
  }
  if (wrong.str().empty()) return;
  const std::filesystem::path made =
      std::filesystem::current_path() / (std::filesystem::path(file).filename().string() + ".found");
  std::ofstream out(made);
  for (const auto& [name, result] : found) out << name << ": " << result << '\n';
  ADD_FAILURE() << "tests/" << file << " differs; where that is meant, " << made.string()
                << " replaces it, in a commit of its own:\n"
                << wrong.str();
}

}  // namespace vedette::testing
