// The abilities of this machine, and the steps that would give it more. Facts come from os/probe.h, the choice of
// mechanisms from opening the real ones, the disk's speed from the real store, a GPU's from copies.
// CUDA's driver and NVML are loaded at run time; everything is given back.
//
// Thread rule: one thread.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "os/node_memory.h"
#include "os/page_movers.h"
#include "os/probe.h"
#include "tier/link_habits.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette::cli {

// Of one node, seen from the first that has processors: copies by all processors that this process may use, each with
// 8 MiB or more, and loads that wait for each other.
struct NodeSpeed {
  NodeIndex node;
  std::uint64_t to = 0, from = 0;  // bytes a second; of the first node itself: within it
  Nanoseconds latency, latency_beside_copies;
};

struct NodeFacts {
  std::vector<NodeSpeed> speeds;  // empty: not measured
  PageMovers movers;
};

// Where there are several, it takes about half a second a node and at most 64 MiB of each to measure them; one that has
// no room for it is left out.
NodeFacts examine_nodes(const std::vector<NumaNode>& nodes);

struct GpuFacts {
  std::string name;
  Bytes free, total;
  std::optional<int> numa_node;  // the nearest one
  Result<LinkHabits> link;       // measured; an error where memory cannot be pinned, or copies are refused
  Result<double> watts;          // of the whole GPU, now
};

// One entry a GPU, in the driver's order. Errors: no driver, no GPU, or a driver that refuses. Takes half a second
// each.
Result<std::vector<GpuFacts>> examine_gpus();

enum class Mark { fine, partly, missing, fact };

struct Line {
  Mark mark = Mark::fact;
  std::string subject, finding;
  std::string unlocks, remedy;  // of what is missing
};

struct Uses {  // the choices of a session opened here
  Result<std::string> memory, tracking, io;
  bool registers_buffers = false;
};

struct Diagnosis {
  MachineFacts facts;
  Uses uses;
  NodeFacts nodes;
  std::string file_system;
  std::optional<Bytes> disk_room;
  std::optional<Result<LinkHabits>> disk;
  // measured with it; nullopt where that failed
  std::optional<std::uint32_t> interference_percent;
  std::optional<Nanoseconds> fault_time;
  std::optional<std::uint64_t> host_bytes_per_s;
  Result<std::vector<GpuFacts>> gpus = std::vector<GpuFacts>();
};

// `slow`: the directory of the slow tier. `measures`: its disk, and the cost of transfers for a program beside them:
// ten seconds.
Diagnosis examine(const std::string& slow, Bytes chunk, bool measures);
Bytes largest_budget(const MachineFacts& facts);  // of fast memory
std::vector<Line> lines_of(const Diagnosis& diagnosis, const std::string& directory);

// The lines about NUMA nodes, and their part of the JSON.
void add_nodes(const std::vector<NumaNode>& nodes, const NodeFacts& facts, std::vector<Line>& lines);
nlohmann::ordered_json json_of(const std::vector<NumaNode>& nodes, const NodeFacts& facts);

std::string rate(std::uint64_t bytes_per_s);  // "1.25 GB/s"

}  // namespace vedette::cli
