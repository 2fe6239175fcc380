// A file without a name, which a process shares with those that it forks. Thread rule: one thread of each process.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace vedette::testing {

class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("training", 0)) {}
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int number() const { return file_; }
  void write(const std::string& text) const {
    if (::write(file_, text.data(), text.size()) < 0) std::abort();
  }
  std::string read() const {
    std::string text;
    char piece[4096];
    for (ssize_t got = 0; (got = ::pread(file_, piece, sizeof piece, static_cast<off_t>(text.size()))) > 0;)
      text.append(piece, static_cast<std::size_t>(got));
    return text;
  }

 private:
  const int file_;
};

}  // namespace vedette::testing
