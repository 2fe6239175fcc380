#include "profiler/origin.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <string_view>
#include <thread>

#include "profiler/commit.h"

namespace vedette {

std::string command_of_this_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line;
  for (std::string word; std::getline(file, word, '\0');) {
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 ||
             std::string_view("-_./=,%:+@").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (!line.empty()) line += ' ';
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) {
      if (c == '\'') line.append("'\\'");
      line += c;
    }
    line += '\'';
  }
  return line;
}

std::vector<std::pair<std::string, std::string>> facts_of_this_run() {
  std::vector<std::pair<std::string, std::string>> facts;
  struct utsname system {};
  if (::uname(&system) == 0)
    facts.emplace_back("kernel", std::string(system.sysname) + " " + system.release + " " + system.machine);
  std::ifstream cpu("/proc/cpuinfo");
  for (std::string line; std::getline(cpu, line);) {
    if (!line.starts_with("model name")) continue;
    facts.emplace_back("cpu", line.substr(std::min(line.size(), line.find(": ") + 2)));
    break;
  }
  facts.emplace_back("cores", std::to_string(std::thread::hardware_concurrency()));
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  facts.emplace_back("memory_bytes", std::to_string(static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page));
  facts.emplace_back("page_bytes", std::to_string(page));
  const std::time_t now = std::time(nullptr);
  char text[32] = "";
  struct tm parts {};
  if (::gmtime_r(&now, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  facts.emplace_back("started", text);
  facts.emplace_back("pid", std::to_string(::getpid()));
  facts.emplace_back("command", command_of_this_process());
  facts.emplace_back("vedette", VEDETTE_VERSION);
  facts.emplace_back("commit", VEDETTE_COMMIT);
  return facts;
}

}  // namespace vedette
