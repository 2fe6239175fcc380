// Which threads of this process would run a signal handler of the program, as /proc tells.
#pragma once
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace vedette {

// How many threads but the calling one have `signal` open.
inline int threads_open_to(int signal) {
  int open = 0;
  const std::string self = std::to_string(::syscall(SYS_gettid));
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == self) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("SigBlk:")) continue;
      const unsigned long long mask = std::stoull(line.substr(7), nullptr, 16);
      open += (mask >> (signal - 1) & 1) == 0 ? 1 : 0;
    }
  }
  return open;
}

// Whether `count` of them have it open within ten seconds: a thread that has just started has all signals blocked.
inline bool come_to_be_open_to(int signal, int count) {
  for (int tries = 0; tries < 1000; ++tries) {
    if (threads_open_to(signal) == count) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace vedette
