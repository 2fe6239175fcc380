// The cells of bench/train_table: results of single runs of examples/train, gathered by model, policy and budget, and
// the bars that they must reach. No clock, no file: a test fills cells by hand.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belady_bound.h"

namespace vedette::bench {

struct Spread {  // quartiles
  double lower = 0, median = 0, upper = 0;
  bool operator==(const Spread&) const = default;
};
Spread spread(std::vector<double> values);  // interpolated; of nothing: zeros

// A plain run (no policy), or a guarded one at one budget; all its runs added up. Per-step vectors hold the counted
// steps only.
struct Cell {
  std::string model, policy;
  bool step_in_backward = false;  // vedette::step_in_backward instead of a step after backward
  double share = 0;               // of the plain run's peak
  Bytes budget;
  std::vector<double> step_ms, stall_ms;
  std::vector<std::uint64_t> bytes_in, bytes_out, stalls, faults;
  std::vector<double> others_cores;                      // one a run
  std::vector<std::uint32_t> losses;                     // of the first run, bit patterns
  bool repeats = true;                                   // every run had the losses of the first
  std::uint64_t peak_bytes = 0, resident_max_bytes = 0;  // largest of its runs
  std::string mechanism, torch, failure;                 // failure: why a run ended without a result

  // Adds what examples/train --json wrote. Steps before the plan, and the first three of any run, do not count. Throws
  // nlohmann::json::exception when a key is missing.
  void add(const nlohmann::json& run, double others);
  bool plain() const { return policy.empty(); }
  double step() const { return spread(step_ms).median; }
};

double mean(const std::vector<std::uint64_t>& values);
double mean(const std::vector<double>& values);

struct Disk {  // the cost that no plan avoids, at one budget of a model
  double share = 0;
  bool step_in_backward = false;     // as the cells it is for
  std::optional<BeladyBound> moves;  // a step; nullopt: one op alone exceeds the budget
  std::vector<double> bytes_per_s;   // fio at this mix, once a round
  // of a step, whoever plans: proven (vedette/bound.h) of the recorded ops, at fio's median in both directions together
  double waits_ms = 0;

  void prove(const Trace& trace, Bytes budget);
  int read_percent() const;  // of the bytes; 0 when nothing moves
  double step_ms() const;    // the bytes over fio's median; 0 when nothing moves
};

constexpr double of_plain = 0.95, of_bound = 0.85;  // speeds, as shares

struct Bar {  // the longest step that is good enough
  double step_ms = 0;
  bool by_disk = false;
};
// 0.95 x plain's speed where the disk allows that; else 0.85 x the speed that the disk allows.
Bar bar(double plain_ms, double disk_ms);

struct Row {  // everything the table says about a cell
  const Cell* cell = nullptr;
  const Disk* disk = nullptr;         // nullptr: plain
  double plain_ms = 0, arena_ms = 0;  // 0: there is none
  Bar bar;
  bool met = false, equal = false;  // equal: the losses of the plain run, bit by bit

  // Not where one op alone exceeds the budget, or nothing was recorded: Belady has no choice then, and there is no bar.
  bool bounded() const { return disk != nullptr && disk->moves.has_value(); }
  // of any plan, at the arena's speed; 0: not known
  double least_ms() const { return bounded() && arena_ms > 0 ? arena_ms + disk->waits_ms : 0; }
};
// `cells` of one model: plain first, the one whose speed is 1. The arena is the same policy's cell with the largest
// budget, if that is at least the peak.
std::vector<Row> rows(const std::vector<Cell>& cells, const std::vector<Disk>& disks);

std::string text_head();
std::string text(const Row& row);
std::string markdown_head();
std::string markdown(const Row& row);
nlohmann::ordered_json json(const Row& row);

}  // namespace vedette::bench
