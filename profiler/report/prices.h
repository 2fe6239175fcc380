// The price list: what memory costs a step, tensor by tensor, and what would make a tenth less of it cost nothing.
//
// Thread rule: values.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vedette/memory_prices.h"
#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::report {

struct Simulated {
  Nanoseconds step, stall;
  Bytes bytes_in, bytes_out;
  std::uint64_t late = 0;   // fetches that were not done when due, or that nothing had planned
  Nanoseconds recompute{};  // running ops again
};
// Runs a step on a machine under the run's policy, in a simulator. The analysis knows none; the command line gives it
// one.
using Simulate = std::function<Result<Simulated>(const Trace&, const Machine&, std::string_view policy)>;

// The prices of memory in a step.
using PriceMemory = std::function<MemoryPrices(const Trace&, const Machine&)>;

struct Pricer {
  Simulate simulate;   // empty: prices alone
  PriceMemory prices;  // empty: there is no price list
};

struct PricedTensor {
  std::uint32_t tensor = 0;
  std::string name, layer, role;  // layer: the first that touches it
  Bytes bytes;
  Nanoseconds gone;              // a step would wait less if the tensor were not there, at most
  double ns_per_mib = 0;         // of them, a MiB
  double budget_ns_per_mib = 0;  // that a MiB of budget less costs, at least, if it lacks while the tensor lives
};

struct PricedGroup {
  std::string by, name;  // "layer", "role" or "alike": names that differ in numbers alone
  std::uint64_t tensors = 0;
  Bytes bytes;
  Nanoseconds gone;  // summed
};

// A change with which a tenth less memory costs nothing.
struct FreeMemory {
  std::string change;  // "nothing", "tensors", "links" or "recompute"
  std::string sentence;
  Bytes bytes = {};                         // of the tensors
  std::vector<std::uint32_t> tensors = {};  // that would not be there
  double factor = 1;                        // of the links' speed
  Nanoseconds step = {};                    // simulated
};

// Prices are of the waits that no plan avoids; the simulated steps say how much more a plan waits.
struct PriceList {
  bool known = false;
  std::string note;       // why not; or what leads to `free`
  Nanoseconds waiting;    // of the bound, a step
  double ns_per_mib = 0;  // that a MiB of budget less costs, all through the step
  std::optional<Nanoseconds> simulated, simulated_stall, less, more;  // with the budget, a tenth less, a tenth more
  std::vector<Span<std::uint32_t>> runs;  // of ops, first and last, in which a step has to wait
  std::vector<PricedTensor> tensors;      // that have a price, the dearest first
  std::vector<PricedGroup> groups;        // by kind of group, the dearest first
  std::vector<FreeMemory> free;
};

}  // namespace vedette::report
