// /proc, flock and fork: see machine.h.
#include "machine.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "fio.h"
#include "vedette/result.h"

namespace vedette::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds of processor time that were not idle, all cores, theft by the host included.
double busy_seconds() {
  std::ifstream stat("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  stat >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  return (user + nice + system + irq + softirq + steal) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double seconds_of(const rusage& usage) {
  const auto s = [](timeval t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return s(usage.ru_utime) + s(usage.ru_stime);
}

[[noreturn]] void become(std::vector<char*>& words, const char* log) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it must not outlive this program
  const int file = ::open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (file >= 0) ::dup2(file, STDOUT_FILENO), ::dup2(file, STDERR_FILENO);
  ::execv(words[0], words.data());
  ::_exit(127);
}

}  // namespace

std::string machine_line() {
  utsname kernel{};
  ::uname(&kernel);
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line, model = "unknown processor";
  while (std::getline(cpuinfo, line)) {
    if (line.starts_with("model name")) model = line.substr(line.find(':') + 2);
  }
  return model.append(", ").append(std::to_string(std::thread::hardware_concurrency())).append(" cores, Linux ") +
         kernel.release;
}

std::string file_system_of(const std::string& directory) {
  std::string found = output_of("findmnt -no SOURCE,FSTYPE -T '" + directory + "'");
  while (!found.empty() && found.back() == '\n') found.pop_back();
  return found;
}

std::string huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string word;
  while (file >> word) {
    if (word.front() == '[') return word.substr(1, word.size() - 2);
  }
  return "unknown";
}

double load_per_core() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load / std::max(1U, std::thread::hardware_concurrency()) : 0;
}

Turn::Turn(const std::string& path) {
  if (path.empty()) return;
  fd_ = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd_ || ::flock(fd_.get(), LOCK_EX) != 0)
    throw Failure({.message = "locking " + path + ": " + std::strerror(errno)});
}

ChildRun run_child(std::vector<std::string> words, const std::string& log, double limit_s) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const auto began = Clock::now();
  const double busy = busy_seconds();
  const auto since = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  const pid_t child = ::fork();
  if (child < 0) throw Failure({.message = std::string("no process can be made: ") + std::strerror(errno)});
  if (child == 0) become(arguments, log.c_str());
  int status = 0;
  rusage usage{};
  while (::wait4(child, &status, WNOHANG, &usage) == 0) {
    if (since() > limit_s) ::kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const double wall = since();
  return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .wall_s = wall,
          .others_cores = std::max(0.0, busy_seconds() - busy - seconds_of(usage)) / wall};
}

}  // namespace vedette::bench
