// How long does a session of a large budget take to open? What is resident beneath a program that needs 8 MiB, and how
// long is the first step of one that needs nearly all?
//
//   opening [--runs N] [--slow nvme:DIRECTORY] MIB...     each run in a process of its own; medians and quartiles
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "machine.h"
#include "vedette/session.h"

namespace {

using namespace vedette;

constexpr Bytes tensor = 16_MiB, small_program = 8_MiB;

struct Run {
  double open_ms = 0, first_ms = 0, second_ms = 0;  // steps
  double resident_mib = 0;                          // after the second step, less what was before the session
};

double since_ms(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
}

double resident_mib() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  unsigned long long all = 0, resident = 0;
  if (file == nullptr || std::fscanf(file, "%llu %llu", &all, &resident) != 2) std::exit(1);
  std::fclose(file);
  return static_cast<double>(resident) * 4096 / (1 << 20);
}

// Every op bears a tensor and writes it; all live until the step ends.
void step(Session& session, Bytes each, std::size_t tensors) {
  auto scope = session.step();
  std::vector<std::byte*> living;
  for (std::size_t t = 0; t < tensors; ++t) {
    auto op = session.op("fill", {}, {});
    living.push_back(session.allocate({.bytes = each}).value());
    std::memset(living.back(), static_cast<int>(t), each.value);
  }
  for (std::byte* const memory : living) Session::release(memory);
}

Run one_run(Bytes budget, const std::string& slow, bool whole) {
  const double before = resident_mib();
  const auto opened = std::chrono::steady_clock::now();
  auto session = Session::open({.fast_memory = budget, .slow = slow, .profile = ProfileTicks::operands}).value();
  Run run{.open_ms = since_ms(opened)};
  const Bytes each = whole ? tensor : Bytes{small_program.value / 4};
  const std::size_t tensors = whole ? budget.value / 10 * 9 / tensor.value : 4;
  for (double* const took : {&run.first_ms, &run.second_ms}) {
    const auto began = std::chrono::steady_clock::now();
    step(*session, each, tensors);
    *took = since_ms(began);
  }
  run.resident_mib = resident_mib() - before;
  return run;
}

Run in_a_process(const std::function<Run()>& body) {
  std::array<int, 2> ends;
  if (::pipe(ends.data()) != 0) std::exit(1);
  const pid_t child = ::fork();
  if (child == 0) {
    const Run run = body();
    ::_exit(::write(ends[1], &run, sizeof run) == sizeof run ? 0 : 1);
  }
  Run run;
  const bool told = ::read(ends[0], &run, sizeof run) == sizeof run;
  ::close(ends[0]);
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
  if (!told) std::exit(1);
  return run;
}

void print(const char* what, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](std::size_t quarter) { return values[quarter * (values.size() - 1) / 4]; };
  std::printf("  %-28s %9.1f  (%.1f to %.1f)\n", what, at(2), at(1), at(3));
}

void table(Bytes budget, const std::string& slow, std::size_t runs) {
  std::vector<double> open, small_resident, first, second, until_end, whole_resident;
  for (std::size_t i = 0; i < runs; ++i) {
    const Run small = in_a_process([&] { return one_run(budget, slow, false); });
    const Run whole = in_a_process([&] { return one_run(budget, slow, true); });
    open.push_back(small.open_ms);
    open.push_back(whole.open_ms);
    small_resident.push_back(small.resident_mib);
    first.push_back(whole.first_ms);
    second.push_back(whole.second_ms);
    until_end.push_back(whole.open_ms + whole.first_ms);
    whole_resident.push_back(whole.resident_mib);
  }
  std::printf("budget %llu MiB, %zu runs\n", static_cast<unsigned long long>(budget.value >> 20), runs);
  print("opening, ms", open);
  print("resident, 8 MiB used, MiB", small_resident);
  print("first step of 90 %, ms", first);
  print("opening and first step, ms", until_end);
  print("second step, ms", second);
  print("resident, 90 % used, MiB", whole_resident);
}

}  // namespace

int main(int count, char** arguments) {
  std::size_t runs = 10;
  std::string slow = "nvme:.";
  std::vector<Bytes> budgets;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    if (word == "--runs" && i + 1 < count) {
      runs = std::max<std::size_t>(1, std::strtoul(arguments[++i], nullptr, 10));
    } else if (word == "--slow" && i + 1 < count) {
      slow = arguments[++i];
    } else {
      budgets.push_back({std::strtoull(word.c_str(), nullptr, 10) << 20});
    }
  }
  if (budgets.empty()) budgets = {2_GiB, 8_GiB};
  std::printf("%s\n", bench::machine_line().c_str());
  for (const Bytes budget : budgets) table(budget, slow, runs);
}
