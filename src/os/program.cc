#include "os/program.h"

#include <ctime>

namespace vedette {

Nanoseconds HostProgram::now() noexcept {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return {std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec};
}

Program& host_program() noexcept {
  static HostProgram program;
  return program;
}

}  // namespace vedette
