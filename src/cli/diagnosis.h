// The abilities of this machine, and the steps that would give it more. Facts come from os/probe.h, the choice of
// mechanisms from opening the real ones, the disk's speed from the real store, a GPU's from copies.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/gpus.h"
#include "cli/nodes.h"
#include "os/probe.h"
#include "tier/link_habits.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette::cli {

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

}  // namespace vedette::cli
