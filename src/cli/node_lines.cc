#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/readable.h"
#include "cli/diagnosis.h"

namespace vedette::cli {
namespace {

std::uint32_t kinds_of(const std::vector<NumaNode>& nodes) {
  std::uint32_t count = 0;
  for (const NumaNode& node : nodes) count = std::max(count, node.kind + 1);
  return count;
}

const NodeSpeed* speed_of(const NumaNode& node, const NodeFacts& facts) {
  const auto found = std::find_if(facts.speeds.begin(), facts.speeds.end(),
                                  [&](const NodeSpeed& each) { return each.node.value == node.number; });
  return found == facts.speeds.end() ? nullptr : &*found;
}

std::string told_of(const NumaNode& node, const NodeFacts& facts) {
  std::string told = (node.type.empty() ? "" : node.type + ", ") + readable(node.memory);
  const auto room = node.described ? std::nullopt : room_of_node({node.number});
  if (room) told += fmt::format(", {} free and {} of files", readable(room->free), readable(room->files));
  told += node.processors == 0 ? std::string(", no processors")
                               : fmt::format(", {} processor{}", node.processors, node.processors == 1 ? "" : "s");
  if (node.bytes_per_s > 0 || node.latency.value > 0)
    told += fmt::format("; firmware says {}, {} ns", rate(node.bytes_per_s), node.latency.value);
  if (const NodeSpeed* const speed = speed_of(node, facts))
    told += fmt::format("; measured: copies to it {}, from it {}, a load {} ns, beside copies {} ns", rate(speed->to),
                        rate(speed->from), speed->latency.value, speed->latency_beside_copies.value);
  return told;
}

void add_movers(const PageMovers& movers, std::vector<Line>& lines) {
  if (movers.balancing > 0)
    lines.push_back({.mark = Mark::partly,
                     .subject = "NUMA balancing",
                     .finding = fmt::format("on (kernel.numa_balancing={})", movers.balancing),
                     .unlocks = "fast memory that stays where it is: the kernel moves pages to the node whose "
                                "processors touch them, unless they were bound (fast = \"numa:N\")",
                     .remedy = "sysctl kernel.numa_balancing=0, or fast = \"numa:N\""});
  if (movers.demotion)
    lines.push_back({.mark = Mark::partly,
                     .subject = "demotion",
                     .finding = "on (/sys/kernel/mm/numa/demotion_enabled)",
                     .unlocks = "fast memory that stays fast: where a node is full the kernel moves its pages to a "
                                "slower one, also those that are bound",
                     .remedy = "echo false > /sys/kernel/mm/numa/demotion_enabled"});
  if (movers.schemes > 0)
    lines.push_back({.mark = Mark::partly,
                     .subject = "DAMON",
                     .finding = fmt::format("{} scheme{} that migrate{}", movers.schemes,
                                            movers.schemes == 1 ? "" : "s", movers.schemes == 1 ? "s" : ""),
                     .unlocks = "memory that stays where it was put: these schemes move pages between nodes",
                     .remedy = "write off into the state of each in /sys/kernel/mm/damon/admin/kdamonds"});
}

}  // namespace

std::string rate(std::uint64_t bytes_per_s) {
  return fmt::format("{:.2f} GB/s", static_cast<double>(bytes_per_s) / 1e9);
}

void add_nodes(const std::vector<NumaNode>& nodes, const NodeFacts& facts, std::vector<Line>& lines) {
  Line all{.subject = "NUMA nodes", .finding = std::to_string(nodes.size())};
  const std::uint32_t kinds = kinds_of(nodes);
  if (nodes.size() > 1) {
    all.finding += kinds == 1 ? ", of one kind" : fmt::format(", of {} kinds, the fastest first", kinds);
    if (nodes.front().described) all.finding += ", of another machine, which hwloc's environment describes";
    all.finding += "; a session's slow = \"numa:N\" copies what leaves to node N, and fast = \"numa:N\" is of node N";
  }
  lines.push_back(std::move(all));
  if (nodes.size() < 2) return;
  for (std::uint32_t kind = 0; kind < kinds; ++kind)
    for (const NumaNode& node : nodes)
      if (node.kind == kind)
        lines.push_back({.subject = fmt::format("  node {}", node.number), .finding = told_of(node, facts)});
  if (!nodes.front().described) add_movers(facts.movers, lines);
}

nlohmann::ordered_json json_of(const std::vector<NumaNode>& nodes, const NodeFacts& facts) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const NumaNode& node : nodes) {
    nlohmann::ordered_json json{
        {"node", node.number}, {"bytes", node.memory.value}, {"processors", node.processors}, {"kind", node.kind}};
    if (!node.type.empty()) json["type"] = node.type;
    if (node.bytes_per_s > 0) json["firmware_bytes_per_s"] = node.bytes_per_s;
    if (node.latency.value > 0) json["firmware_latency_ns"] = node.latency.value;
    if (const auto room = node.described ? std::nullopt : room_of_node({node.number})) {
      json["free_bytes"] = room->free.value;
      json["files_bytes"] = room->files.value;
    }
    if (const NodeSpeed* const speed = speed_of(node, facts)) {
      json["to_bytes_per_s"] = speed->to;
      json["from_bytes_per_s"] = speed->from;
      json["latency_ns"] = speed->latency.value;
      json["latency_beside_copies_ns"] = speed->latency_beside_copies.value;
    }
    all.push_back(std::move(json));
  }
  return all;
}

}  // namespace vedette::cli
