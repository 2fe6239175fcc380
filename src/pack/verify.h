// Whether offsets are sound, by the definition and nothing else: a walk through time that keeps the buffer at each
// offset. Shares no code with the planner, so that a mistake there is seen here.
//
// Pure; any thread. O(n log n).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "pack/buffers.h"

namespace vedette::pack {

// nullopt: sound. Else the first thing that is wrong, as a sentence.
std::optional<std::string> find_fault(const Problem& problem, const std::vector<std::uint64_t>& offset,
                                      std::optional<Bytes> capacity = std::nullopt);

}  // namespace vedette::pack
