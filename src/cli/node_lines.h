// The lines of `vedette doctor` about NUMA nodes, and their part of its JSON.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/diagnosis.h"

namespace vedette::cli {

void add_nodes(const std::vector<NumaNode>& nodes, const NodeFacts& facts, std::vector<Line>& lines);
nlohmann::ordered_json json_of(const std::vector<NumaNode>& nodes, const NodeFacts& facts);

std::string rate(std::uint64_t bytes_per_s);  // "1.25 GB/s"

}  // namespace vedette::cli
