// The slow tier's file, found from elsewhere in this process: it has no name. For tests that change it.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

namespace vedette::testing {

// -1: there is none.
inline int store_file() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.ends_with(" (deleted)") && target.find("memfd:") == std::string::npos &&
        target.find("/#") != std::string::npos)
      return std::stoi(entry.path().filename());
  }
  return -1;
}

inline void cut_store() {
  if (::ftruncate(store_file(), 0) != 0) ::_exit(4);
}

// Slots of 64 KiB.
inline void overwrite_store(int slots) {
  const int file = ::open(("/proc/self/fd/" + std::to_string(store_file())).c_str(), O_WRONLY);  // without O_DIRECT
  const std::vector<char> garbage(64 << 10, 'x');
  for (int slot = 0; slot < slots; ++slot)
    if (::pwrite(file, garbage.data(), garbage.size(), slot * (64 << 10)) < 0) ::_exit(4);
  ::fsync(file);
  ::close(file);
}

}  // namespace vedette::testing
