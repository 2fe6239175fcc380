// Machines as text, and machines that papers used: what a plan is made for and a replay runs on.
//
// vedette-machine-1 is JSON:
//   {"format": "vedette-machine-1", "name": "a100-g10",
//    "tiers": [{"name": "gpu", "bytes": 42949672960}, {"name": "host", "bytes": 137438953472, "addressable": false}],
//    "links": [{"from": "host", "to": "gpu", "bytes_per_s": 15754000000, "latency_ns": 5000, "bus": 0}],
//    "fault_ns": 45000, "granule_bytes": 4096, "can_recompute": true, "can_reorder": false, "interference_percent": 0,
//    "remap_ns": 18000}
// Tiers stand fastest first. Left out: addressable, latency_ns, fault_ns, remap_ns, can_* count as false or 0,
// granule_bytes as 4096, bytes_per_s as no limit, interference_percent as not known; links without "bus" share nothing.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette {

struct MachinePreset {
  std::string_view name, source;  // where its numbers are from
  Machine (*make)();
};
std::span<const MachinePreset> machine_presets() noexcept;

// Errors: malformed_input, naming the place.
Result<Machine> parse_machine(std::string_view json);
std::string format_machine(const Machine&, std::string_view name = {});

}  // namespace vedette
