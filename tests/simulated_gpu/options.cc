// The words of SIMULATED_GPU: see options.h.
#include "simulated_gpu/options.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace vedette::simulated {
namespace {

Failing parse_failing(const std::string& text, std::string& call) {
  const std::size_t at = text.find('@'), colon = text.find(':', at == text.npos ? 0 : at);
  if (at == text.npos || colon == text.npos) misuse("fail=" + text + " is not understood; write fail=CALL@N:ERROR");
  call = text.substr(0, at);
  return {.nth = static_cast<unsigned>(std::strtoul(text.c_str() + at + 1, nullptr, 10)),
          .error = std::atoi(text.c_str() + colon + 1)};
}

}  // namespace

Options parse_options(const std::string& text) {
  Options options;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t at = word.find('=');
    const std::string key = word.substr(0, at), value = at == word.npos ? "" : word.substr(at + 1);
    const double number = std::strtod(value.c_str(), nullptr);
    if (key == "memory_mib")
      options.memory = static_cast<std::size_t>(number) << 20;
    else if (key == "devices")
      options.devices = static_cast<int>(number);
    else if (key == "gbs")
      options.gbs = number;
    else if (key == "latency_us")
      options.latency_us = number;
    else if (key == "one_engine")
      options.one_engine = number != 0;
    else if (key == "copies_wait")
      options.copies_wait = number != 0;
    else if (key == "unmap_waits")
      options.unmap_waits = number != 0;
    else if (key == "managed")
      options.managed = number != 0;
    else if (key == "sums_vary")
      options.sums_vary = number != 0;
    else if (key == "races")
      options.races = number != 0;
    else if (key == "fail") {
      std::string call;
      const Failing failing = parse_failing(value, call);
      options.failing.emplace(call, failing);
    } else {
      misuse("SIMULATED_GPU has the unknown word '" + word + "'; tests/simulated_gpu/options.h lists what there is");
    }
  }
  return options;
}

void misuse(const std::string& sentence) noexcept {
  const std::string line = "simulated GPU: " + sentence + "\n";
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) std::abort();
  ::_exit(exit_status);
}

}  // namespace vedette::simulated
