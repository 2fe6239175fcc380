// Many small results, computed beside each other and kept: a result that exists is read back, so that a run that was
// cut off goes on where it stopped.
//
// A cell is a file in a folder. It names the hash of all that it was made from, the program included, and counts only
// while that hash is the same. Files appear whole or not at all (written beside, then renamed).
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace vedette::cli {

using Json = nlohmann::ordered_json;

struct Cell {
  std::string name;               // of its file, without ending; unique
  std::string inputs;             // words for all that it is made from
  std::function<Json()> compute;  // called on any thread; may throw Failure
};

struct CellCounts {
  std::uint32_t computed = 0, kept = 0;
};

// In the order of `cells`, on `threads` threads (0: one a processor). `verb` says so on standard error meanwhile.
// Throws Failure: the first that a cell met, or where the folder cannot be written.
std::vector<Json> compute_cells(const std::string& folder, const std::vector<Cell>& cells, std::uint32_t threads,
                                const std::string& verb, CellCounts& counts);

}  // namespace vedette::cli
