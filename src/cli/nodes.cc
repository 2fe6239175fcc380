// NUMA nodes as a session meets them: what firmware says of their speed and what was measured.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <system_error>
#include <thread>

#include "base/mapping.h"
#include "cli/diagnosis.h"

namespace vedette::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

constexpr Bytes most_of_a_node = 64_MiB;

// Filled memory of a node; nullopt: it has no room, or the kernel does not bind.
std::optional<Mapping> memory_of(NodeIndex node, Bytes bytes) {
  auto memory = Mapping::reserve(bytes, node_piece);
  if (!memory || !prefer_node(memory->data(), bytes, node)) return std::nullopt;
  if (fill_from_node(memory->data(), bytes, node, Pages::small).bytes < bytes) return std::nullopt;
  return std::move(*memory);
}

// Each thread its part of the bytes; as many threads as the limit of processes allows.
template <class Body>
void on_all_processors(std::uint32_t processors, const Body& body) {
  std::vector<std::thread> threads;
  std::uint32_t begun = 1;
  try {
    for (; begun < processors; ++begun) threads.emplace_back([&body, begun] { body(begun); });
  } catch (const std::system_error&) {
  }
  body(0);
  for (std::uint32_t left = begun; left < processors; ++left) body(left);
  for (std::thread& thread : threads) thread.join();
}

std::uint64_t copy_speed(std::byte* target, const std::byte* source, Bytes bytes, std::uint32_t processors) {
  constexpr int rounds = 5;
  const std::size_t part = bytes.value / processors / 64 * 64;
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto began = Clock::now();
    on_all_processors(processors, [&](std::uint32_t p) { std::memcpy(target + p * part, source + p * part, part); });
    best = std::max(best, static_cast<double>(part * processors) / seconds_since(began));
  }
  return static_cast<std::uint64_t>(best);
}

// A cycle through all lines in random order: no prefetcher knows the next.
void make_cycle(std::byte* memory, Bytes bytes) {
  constexpr std::size_t line = 64;
  std::vector<std::uint32_t> order(bytes.value / line);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::uint64_t next = std::uint64_t{order[(i + 1) % order.size()]} * line;
    std::memcpy(memory + std::uint64_t{order[i]} * line, &next, sizeof next);
  }
}

Nanoseconds load_latency(const std::byte* memory) {
  constexpr std::int64_t loads = 200'000;
  std::uint64_t at = 0;
  const auto began = Clock::now();
  for (std::int64_t i = 0; i < loads; ++i) std::memcpy(&at, memory + at, sizeof at);
  const double seconds = seconds_since(began);
  const volatile std::uint64_t end = at;  // so that the loads are made
  static_cast<void>(end);
  return {static_cast<std::int64_t>(seconds * 1e9) / loads};
}

// While other processors copy into the same node.
Nanoseconds load_latency_beside(const std::byte* chased, std::byte* target, const std::byte* source, Bytes bytes,
                                std::uint32_t processors) {
  std::atomic<bool> done{false};
  Nanoseconds latency;
  const std::uint32_t threads = std::max(2u, processors);
  const std::size_t part = bytes.value / threads / 64 * 64;
  on_all_processors(threads, [&](std::uint32_t p) {
    if (p == 0) {
      latency = load_latency(chased);
      done.store(true, std::memory_order_relaxed);  // nothing is handed over
    }
    while (!done.load(std::memory_order_relaxed)) std::memcpy(target + p * part, source + p * part, part);
  });
  return latency;
}

std::optional<NodeSpeed> measure(NodeIndex first, NodeIndex node, std::uint32_t processors) {
  const auto room = room_of_node(node), room_of_first = room_of_node(first);
  if (!room || !room_of_first) return std::nullopt;
  // A third of what is free there holds both buffers of a node that is measured against itself.
  const std::uint64_t least = std::min(room->free.value, room_of_first->free.value) / 6;
  const Bytes bytes{std::min(most_of_a_node.value / 2, least) / node_piece.value * node_piece.value};
  if (bytes < 8_MiB) return std::nullopt;
  auto here = memory_of(first, bytes), there = memory_of(node, bytes);
  if (!here || !there) return std::nullopt;
  NodeSpeed speed;
  speed.node = node;
  speed.to = copy_speed(there->data(), here->data(), bytes, processors);
  speed.from = copy_speed(here->data(), there->data(), bytes, processors);
  make_cycle(there->data(), bytes);
  speed.latency = load_latency(there->data());
  auto beside = memory_of(node, bytes);
  if (beside)
    speed.latency_beside_copies = load_latency_beside(there->data(), beside->data(), here->data(), bytes, processors);
  return speed;
}

}  // namespace

NodeFacts examine_nodes(const std::vector<NumaNode>& nodes) {
  NodeFacts facts{.movers = find_page_movers()};
  const auto first = std::find_if(nodes.begin(), nodes.end(), [](const NumaNode& node) { return node.processors > 0; });
  if (nodes.size() < 2 || first == nodes.end() || first->described) return facts;
  const std::uint32_t processors = std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
  for (const NumaNode& node : nodes)
    if (const auto speed = measure({first->number}, {node.number}, processors)) facts.speeds.push_back(*speed);
  return facts;
}

}  // namespace vedette::cli
