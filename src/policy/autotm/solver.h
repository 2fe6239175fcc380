// Integer programs of 0 and 1, solved by COIN-OR Cbc: one thread, stopped by a count of nodes. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace vedette::autotm {

// Solvers like numbers near one.
inline double millis(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }
inline double megabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

struct BinaryProgram {
  std::vector<double> cost;                                    // of each column; the sum is to be least
  std::vector<std::vector<std::pair<int, double>>> columns{};  // of each: rows, and its share in them
  std::vector<double> row_low{}, row_high{};
  int binaries = 0;  // the first columns are 0 or 1, the others 0 or more
};

struct Solved {
  std::vector<double> x;  // by column
  double bound = 0;       // no better sum exists
  bool proven = false;    // within the gap that was asked for
};

bool solver_present() noexcept;
// Stops within `gap` (a share) of the best. nullopt: none was found within `most_nodes`, or there is no solver.
std::optional<Solved> solve(const BinaryProgram& program, int most_nodes, double gap);

}  // namespace vedette::autotm
