#include "profiler/noise.h"

#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace vedette {
namespace {

Nanoseconds of(const timeval& time) {
  return {static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::int64_t>(time.tv_usec) * 1'000};
}

Nanoseconds monotonic() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return {static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec};
}

// "cpu user nice system idle iowait irq softirq steal ..." in ticks.
std::optional<Nanoseconds> steal_now() {
  std::ifstream file("/proc/stat");
  std::string word;
  std::int64_t ticks = 0;
  if (!(file >> word) || word != "cpu") return std::nullopt;
  for (int column = 0; column < 8; ++column)
    if (!(file >> ticks)) return std::nullopt;
  const std::int64_t rate = ::sysconf(_SC_CLK_TCK);
  if (rate <= 0) return std::nullopt;
  return Nanoseconds{ticks * (1'000'000'000 / rate)};
}

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=123", in microseconds.
std::optional<Nanoseconds> pressure_now(const char* of_what) {
  std::ifstream file(of_what);
  std::string line;
  if (!std::getline(file, line) || !line.starts_with("some ")) return std::nullopt;
  const std::size_t at = line.find("total=");
  std::int64_t micros = 0;
  if (at == std::string::npos || !(std::istringstream(line.substr(at + 6)) >> micros)) return std::nullopt;
  return Nanoseconds{micros * 1'000};
}

std::optional<Nanoseconds> difference(std::optional<Nanoseconds> now, std::optional<Nanoseconds> then) {
  if (!now || !then) return std::nullopt;
  return *now < *then ? Nanoseconds{} : *now - *then;
}

}  // namespace

ProcessUse use_of_process() noexcept {
  rusage use{};
  if (::getrusage(RUSAGE_SELF, &use) != 0) return {};
  return {.at = monotonic(),
          .processor = of(use.ru_utime) + of(use.ru_stime),
          .switches = static_cast<std::uint64_t>(use.ru_nivcsw)};
}

MachineUse MachineWatch::since_last() {
  const MachineUse now{.elapsed = monotonic(),
                       .steal = steal_now(),
                       .processor_wait = pressure_now("/proc/pressure/cpu"),
                       .memory_wait = pressure_now("/proc/pressure/memory"),
                       .io_wait = pressure_now("/proc/pressure/io")};
  const MachineUse since{.elapsed = last_.elapsed.value == 0 ? Nanoseconds{} : now.elapsed - last_.elapsed,
                         .steal = difference(now.steal, last_.steal),
                         .processor_wait = difference(now.processor_wait, last_.processor_wait),
                         .memory_wait = difference(now.memory_wait, last_.memory_wait),
                         .io_wait = difference(now.io_wait, last_.io_wait)};
  last_ = now;
  return since;
}

}  // namespace vedette
