// A command of a shell, its standard output, and its exit status.
#pragma once
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace vedette::testing {

struct Answer {
  std::string text;
  int status = -1;  // -1: it did not exit
};

inline Answer run(const std::string& command) {
  Answer answer;
  std::FILE* const pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return answer;
  std::array<char, 1 << 16> buffer;
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    answer.text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return answer;
}

}  // namespace vedette::testing
