#include "cli/host_speed.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "base/mapping.h"
#include "os/probe.h"

namespace vedette::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Each thread its part of the words; as many threads as there may be.
void pass(std::uint64_t* words, std::size_t count, std::size_t threads) {
  const std::size_t part = count / threads;
  const auto change = [words, part](std::size_t thread) {
    std::uint64_t* const begin = words + thread * part;
    for (std::size_t i = 0; i < part; ++i) begin[i] = begin[i] * 3 + 1;
  };
  std::vector<std::thread> others;
  std::size_t begun = 1;
  try {
    for (; begun < threads; ++begun) others.emplace_back(change, begun);
  } catch (const std::system_error&) {
  }
  change(0);
  for (std::size_t left = begun; left < threads; ++left) change(left);
  for (std::thread& other : others) other.join();
}

}  // namespace

std::uint64_t measure_host_memory() {
  constexpr int passes = 5;
  const MachineFacts facts = probe_machine();
  const std::uint64_t limit = facts.memory_limit.value_or(facts.available_memory).value;
  const Bytes bytes{std::min((1_GiB).value, std::min(limit, facts.available_memory.value) / 8) / (2_MiB).value *
                    (2_MiB).value};
  if (bytes.value == 0) return 0;
  auto memory = Mapping::reserve(bytes, 2_MiB);
  if (!memory) return 0;
  const std::size_t count = bytes.value / sizeof(std::uint64_t), threads = std::max(1u, facts.processors);
  auto* const words = reinterpret_cast<std::uint64_t*>(memory->data());
  pass(words, count, threads);  // so that all has memory
  double best = 0;
  for (int round = 0; round < passes; ++round) {
    const auto began = Clock::now();
    pass(words, count, threads);
    const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
    best = std::max(best, 2 * static_cast<double>(bytes.value) / seconds);  // read, and written
  }
  return static_cast<std::uint64_t>(best);
}

}  // namespace vedette::cli
