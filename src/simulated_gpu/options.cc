// The words of SIMULATED_GPU: see options.h.
#include "simulated_gpu/options.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <thread>

namespace vedette::simulated {
namespace {

// "CALL@N:X", or "CALL@N" without a number behind it.
Failing parse_failing(const std::string& word, const std::string& text, std::string& call) {
  const bool wants_number = word == "fail" || word == "slow";
  const std::size_t at = text.find('@'), colon = text.find(':', at == text.npos ? 0 : at);
  if (at == text.npos || (colon == text.npos) == wants_number)
    misuse(word + "=" + text + " is not understood; write " + word + "=CALL@N" + (wants_number ? ":NUMBER" : ""));
  call = text.substr(0, at);
  const int number = colon == text.npos ? 0 : std::atoi(text.c_str() + colon + 1);
  Failing failing{.error = word == "fail" ? number : 0, .slow_us = word == "slow" ? number : 0};
  failing.nth = text[at + 1] == '*' ? 0 : static_cast<unsigned>(std::strtoul(text.c_str() + at + 1, nullptr, 10));
  failing.hangs = word == "hang";
  failing.crashes = word == "crash";
  return failing;
}

bool parse_switch(Options& options, const std::string& key, bool on) {
  const std::map<std::string, bool*> switches = {{"one_engine", &options.one_engine},
                                                 {"copies_wait", &options.copies_wait},
                                                 {"unmap_waits", &options.unmap_waits},
                                                 {"managed", &options.managed},
                                                 {"sums_vary", &options.sums_vary},
                                                 {"races", &options.races},
                                                 {"stale_maps", &options.stale_maps},
                                                 {"pageable", &options.pageable},
                                                 {"page_tables", &options.page_tables},
                                                 {"batched_copies", &options.batched_copies},
                                                 {"leaks", &options.leaks},
                                                 {"first_calls_order", &options.first_calls_order},
                                                 {"skip_kernels", &options.skip_kernels},
                                                 {"fault_access", &options.fault_access}};
  const auto found = switches.find(key);
  if (found != switches.end()) *found->second = on;
  return found != switches.end();
}

}  // namespace

Options parse_options(const std::string& text) {
  Options options;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t at = word.find('=');
    const std::string key = word.substr(0, at), value = at == word.npos ? "" : word.substr(at + 1);
    const double number = std::strtod(value.c_str(), nullptr);
    if (parse_switch(options, key, number != 0)) continue;
    if (key == "memory_mib")
      options.memory = static_cast<std::size_t>(number) << 20;
    else if (key == "context_mib")
      options.context = static_cast<std::size_t>(number) << 20;
    else if (key == "lock_mib")
      options.lock = static_cast<std::size_t>(number) << 20;
    else if (key == "devices")
      options.devices = static_cast<int>(number);
    else if (key == "cuda")
      options.cuda = static_cast<int>(number);
    else if (key == "shared")
      options.shared = value;
    else if (key == "gbs")
      options.gbs = number;
    else if (key == "latency_us")
      options.latency_us = number;
    else if (key == "fault_records")
      options.fault_records = static_cast<std::size_t>(number);
    else if (key == "fail" || key == "slow" || key == "hang" || key == "crash") {
      std::string call;
      const Failing failing = parse_failing(key, value, call);
      options.failing.emplace(call, failing);
    } else {
      misuse("SIMULATED_GPU has the unknown word '" + word + "'; src/simulated_gpu/options.h lists what there is");
    }
  }
  return options;
}

int follow(const std::multimap<std::string, Failing>& script, const std::string& call, unsigned number) {
  const auto [begin, end] = script.equal_range(call);
  for (auto each = begin; each != end; ++each) {
    const Failing& failing = each->second;
    if (failing.nth != 0 && failing.nth != number) continue;
    if (failing.slow_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(failing.slow_us));
    if (failing.hangs) std::this_thread::sleep_for(std::chrono::hours(1));
    if (failing.crashes) std::raise(SIGKILL);
    if (failing.error != 0) return failing.error;
  }
  return 0;
}

void (*before_the_end)(const std::string& sentence) = nullptr;

void misuse(const std::string& sentence) noexcept {
  if (before_the_end != nullptr) before_the_end(sentence);
  const std::string line = "simulated GPU: " + sentence + "\n";
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) std::abort();
  ::_exit(exit_status);
}

}  // namespace vedette::simulated
