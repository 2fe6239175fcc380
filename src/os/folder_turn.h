// Processes that use one folder take turns: while a FolderTurn lives, no other process has one of this folder. A folder
// that cannot be locked (a file system without locks) is not waited for. Thread rule: one thread.
#pragma once
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace vedette {

class FolderTurn {
 public:
  explicit FolderTurn(const std::string& folder) : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd_ < 0) return;
    while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FolderTurn() {
    if (fd_ >= 0) ::close(fd_);  // the lock ends with it
  }
  FolderTurn(const FolderTurn&) = delete;
  FolderTurn& operator=(const FolderTurn&) = delete;

 private:
  const int fd_;
};

}  // namespace vedette
