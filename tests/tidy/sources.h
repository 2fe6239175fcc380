// The project's own text files, for tests that read them.
#pragma once
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace vedette::testing {

struct Source {
  std::string path;  // from the root of the project, with '/'
  std::string text;
};

// Files under these folders of the project whose name ends with one of `endings`, sorted by path.
inline std::vector<Source> sources(const std::vector<std::string>& folders, const std::vector<std::string>& endings) {
  namespace fs = std::filesystem;
  const fs::path root = VEDETTE_SOURCE_DIR;
  std::vector<Source> found;
  for (const std::string& folder : folders) {
    if (!fs::is_directory(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_regular_file() ||
          std::none_of(endings.begin(), endings.end(), [&](const std::string& end) { return name.ends_with(end); }))
        continue;
      std::ifstream in(entry.path(), std::ios::binary);
      found.push_back({fs::relative(entry.path(), root).generic_string(), {std::istreambuf_iterator<char>(in), {}}});
    }
  }
  std::sort(found.begin(), found.end(), [](const Source& a, const Source& b) { return a.path < b.path; });
  return found;
}

}  // namespace vedette::testing
