// Machines as text, and the machines of published papers. Thread rule: any thread.
//
// vedette-machine-1 is JSON:
//   {"format": "vedette-machine-1", "name": "a100-g10",
//    "tiers": [{"name": "gpu", "bytes": 42949672960}, {"name": "host", "bytes": 137438953472, "addressable": false}],
//    "links": [{"from": "host", "to": "gpu", "bytes_per_s": 15754000000, "latency_ns": 5000, "bus": 0}],
//    "fault_ns": 45000, "granule_bytes": 4096, "can_recompute": true, "can_reorder": false, "interference_percent": 0,
//    "remap_ns": 18000, "early_fetches": false, "writes_wait": false, "plans_in_turns": false,
//    "host_memory": {"tier": "host", "bytes_per_s": 108000000000, "processor_bytes_per_s": 70000000000},
//    "in_place_prices": [{"op": "addmm", "percent": 12}]}
// Where two links are given with their shares of one bus, bytes_per_s is a link's bandwidth beside the other, and
// "alone_bytes_per_s" its bandwidth while the other rests. A session's machine says so of a half-duplex disk. Tiers
// stand fastest first. Defaults: addressable, latency_ns, fault_ns, remap_ns, can_*, early_fetches, writes_wait and
// plans_in_turns are false or 0, granule_bytes is 4096, bytes_per_s has no limit, interference_percent is not known.
// Links without "bus" share none. "host_memory" is model.h's HostMemory, without it the host's memory has no limit;
// the processor takes less than all of it, by default nothing. "in_place_prices" are InPlacePrices, in order of their
// ops' names.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette {

struct MachinePreset {
  std::string_view name, source;  // source: the paper or artifact that has these numbers
  Machine (*make)();
  // the source of its Machine::host_memory; empty: no figure of such a host is published, and it has no limit
  std::string_view host_memory = {};
};
std::span<const MachinePreset> machine_presets() noexcept;

// No link alone is faster than what the processor leaves of the host's memory: for planners, which look at links one by
// one.
Machine within_host_memory(Machine);

// As transfers run, where links tell their shares of a bus: each slow tier's links on a bus, with their bandwidth
// alone. All within the host's memory.
Machine on_its_bus(Machine);

// Errors: malformed_input, naming the place.
Result<Machine> parse_machine(std::string_view json);
std::string format_machine(const Machine&, std::string_view name = {});

}  // namespace vedette
