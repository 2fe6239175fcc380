// Reads a recording back: headline figures, and how often each page was touched in each layer.
//
// Thread rule: one thread at a time.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/sqlite.h"
#include "vedette/gpu.h"
#include "vedette/model.h"
#include "vedette/observer.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette {

// Enough to make a recording again, as far as it is known; the rest is empty or 0.
struct BudgetSizes {          // that fast memory had after its first
  std::uint64_t changes = 0;  // between steps
  Bytes least, most, last;    // the first included; 0 without changes
};

struct DiskWrites {      // in a second
  Bytes bound, without;  // as SessionOptions::max_writes; what the disk takes. 0: there is no bound
};

struct Origin {
  std::string imported;                   // the format that it came from; empty: recorded
  std::string assumed;                    // of an import: a sentence about what its format does not tell
  std::string started;                    // UTC
  std::string command;                    // of the recorded program, quoted for a shell
  std::string vedette, commit, libtorch;  // versions; commit: of the sources that vedette was built from
  std::string cpu, kernel;                // of the machine that ran it
  std::string mechanism;                  // the way in which chunks moved, in words
  std::uint64_t cores = 0;
  Bytes memory;
  BudgetSizes sizes;
  GpuTableCounters tables;  // as they were when last told
  GpuBytes gpu;             // as well
  DiskWrites disk_writes;
  std::int64_t schema = 0;  // of the file
};

struct StepsByPhase {
  std::uint64_t warm_up = 0, profiling = 0, planned = 0;
};

struct MovedBytes {  // between fast memory and slower tiers; in_place: that ops used where they lay in one
  Bytes in, out, dropped, in_place;
};

struct FarBytes {  // of all steps, with two slow tiers: from and to the far one, and between them
  Bytes in, out, between;
};

struct EnergyTotal {  // of the steps in which a GPU's counter was read
  std::uint64_t steps = 0, millijoules = 0;
  std::string device;
};

struct Headline {
  Origin origin;
  std::string program, policy;
  Bytes budget, chunk;
  std::uint64_t steps = 0;
  Bytes peak, resident_max;  // largest of all steps
  MovedBytes moved;          // of all steps
  FarBytes far;
  std::uint64_t stall_count = 0, faults = 0, dropped_events = 0;
  Nanoseconds stall_time;   // of all steps
  Nanoseconds median_step;  // of the planned steps; of all where no plan ran; 0 without steps
  std::uint64_t profiles = 0, plans = 0;
  std::uint64_t moves = 0, op_times = 0;
  StepsByPhase by_phase;
  bool complete = false;  // the recorder closed the file; else the run lives, or was killed
  std::vector<Tier> tiers;
  std::vector<std::string> reasons;  // of the last plan
};

// Pages [begin, end) of one tensor that were all touched by the same numbers of ticks of one layer.
struct PageFrequency {
  std::int64_t layer = -1;  // of `layers`; -1: ops without a layer
  TensorIndex tensor;
  Span<std::uint64_t> pages;
  std::uint32_t ticks = 0;  // ops that read or wrote these pages
  std::uint32_t reads = 0, writes = 0;
  bool operator==(const PageFrequency&) const = default;
};

struct LayerTouches {
  std::string name;  // empty: ops without a layer
  std::string phase;
  std::uint64_t pages = 0;    // different pages touched
  std::uint64_t touches = 0;  // sum over pages of the ticks that touched them
  std::uint64_t written_pages = 0;
  std::uint32_t hottest = 0;  // ticks, of the page touched most often
};

struct ProfileInfo {
  std::int64_t profile = 0;
  std::uint64_t step = 0;
  std::string bucket;
  Bytes page_bytes;
  bool tracked = false;  // page accesses were seen; else operands count as touched from end to end
};

// The file begins as recordings do: SQLite made it. No more of it is read.
bool begins_as_recording(const std::string& path);

// The database of a recording, its tables not yet looked at. Errors: system where there is no such file,
// malformed_input where it is something else or cut short, unsupported where its schema is not read. What is asked of
// the newest schema's tables an older recording answers, too.
Result<Database> open_recording(const std::string& path);

Origin origin_of(Database& recording);

class Recording {
 public:
  // Errors: Cause::system (no such file), Cause::malformed_input (not a recording, or its tables are not those of its
  // schema), Cause::unsupported (another schema).
  static Result<Recording> open(const std::string& path);

  Result<Headline> headline();
  Result<EnergyTotal> energy();
  Result<std::vector<ProfileInfo>> profiles();
  // Sorted by (layer, tensor, pages); neighbouring ranges differ. Errors: Cause::unsupported where there are more than
  // 5,000,000 ranges.
  Result<std::vector<PageFrequency>> page_frequencies(const ProfileInfo& profile);
  // The layers that touched most pages first.
  Result<std::vector<LayerTouches>> layers_by_pages(const ProfileInfo& profile);

  Database& database() noexcept { return database_; }  // for what is asked nowhere else

 private:
  void read_more(Headline& headline);
  explicit Recording(Database database) : database_(std::move(database)) {}
  Database database_;
};

}  // namespace vedette
