// The traces that tests read: the small committed ones, and the given ones where VEDETTE_DATA names their folder.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "vedette/model.h"

namespace vedette::testing {

std::string read_text(const std::filesystem::path& file);
std::vector<std::filesystem::path> toy_trace_files();  // tests/traces, sorted
Trace load_trace(const std::filesystem::path& file);   // throws vedette::Failure

// Sorted files of VEDETTE_DATA/traces; empty where the folder is absent. `data_folder()` says which folder was looked
// at.
std::vector<std::filesystem::path> given_trace_files();
std::string data_folder();

// A machine of two tiers: `fast` bytes over a slow tier without limit, both links of the same bandwidth.
Machine two_tiers(Bytes fast, Bytes granule = {4096}, std::uint64_t bytes_per_s = 1'000'000'000);
Machine on_one_bus(Machine machine);  // the same machine, whose links take turns
// The smallest fast tier in which each op has its operands, each rounded up to the granule.
Bytes smallest_fast_tier(const Trace& trace, Bytes granule);
// Everything live at once, each tensor rounded up: room enough to move nothing.
Bytes ample_fast_tier(const Trace& trace, Bytes granule);

}  // namespace vedette::testing
