// One training run in this process, plain or under a guard, and its results. The driver starts each run of a
// comparison in a process of its own, so that none inherits the other's memory.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace vedette::examples {

struct RunOptions {
  std::string model = "resnet18";
  std::string script;          // the model "script": path of its TorchScript file
  std::string device = "cpu";  // or "cuda"
  bool guarded = true;
  bool small = false;
  bool made_up_data = false;   // where the data's packages are missing
  bool deterministic = false;  // operators that have a deterministic form take it
  bool amp = false;            // autocast to bf16, and a scaler of gradients
  std::int64_t steps = 20, batch = 0;
  std::uint64_t seed = 1;
  int threads = 2;
  // each parameter is updated as soon as its gradient is there (vedette::step_in_backward)
  bool step_in_backward = false;
  // Of data parallel training. A run is the rank that the environment names; the driver starts `ranks` of them.
  int ranks = 1;
  std::uint32_t lag = 2;
  bool shard_optimizer = false;
  std::string checkpoint;  // folder, empty: none
  std::int64_t every = 10;
  std::uint64_t fast_memory = 0;  // bytes; from here on only under a guard
  std::string policy = "vedette", fast = "dram", slow = "nvme:.", profile, tracker = "best";
  std::uint64_t table_memory = 0;  // of fast_memory, on a GPU: for the hot rows of tables
  bool checksums = false;          // of the bytes in the slow tier
  std::string max_writes = {};     // as SessionOptions has it, and the next two
  std::string share = {};
  std::uint32_t warmup_steps = 1;
  bool recompute = false;      // as the policy plans
  bool recompute_all = false;  // at every opportunity
  std::uint64_t chunk = std::uint64_t{2} << 20;
  std::string record;               // path of the recording, empty: none
  std::uint64_t plain_step_ns = 0;  // time of a plain step, for the recording; 0: not known
  // each step waits for a byte on standard input, so that two runs take turns (bench/recording.py)
  bool paced = false;
  std::string trace;  // where the profiled step goes as vedette-trace-1, empty: nowhere
  // where the steps that have plans go: in chunks to NAME.0, NAME.1 and so on, in tensors to NAME.0.program, with
  // NAME.0.rows where tables are; empty: nowhere
  std::string planned_traces;
  bool state = false;  // digests of what training leaves (models/state.h)
};

struct RunResult {
  std::uint64_t peak_bytes = 0;  // largest sum of live allocations, each rounded up to 64
  std::uint64_t budget_bytes = 0;
  std::uint64_t resident_max_bytes = 0;  // largest RssAnon + RssShmem, less that before model and guard
  std::uint64_t bytes_in = 0, bytes_out = 0, stall_count = 0, stall_ns = 0, faults = 0;  // of the whole run
  std::uint64_t smallest_budget = 0;
  std::uint64_t optimizer_state_bytes = 0;  // of this process
  std::vector<std::uint64_t> step_ns;
  // processor time of all threads: says more than step_ns where others use the machine
  std::vector<std::uint64_t> step_cpu_ns;
  // One entry a step, as step_ns; empty in a plain run but for the phase, "plain". A step's phase is the one it ended
  // in. What moves between two steps counts to the second.
  std::vector<std::string> step_phase;
  std::vector<std::uint64_t> step_bytes_in, step_bytes_out, step_stall_count, step_stall_ns, step_faults;
  std::vector<std::uint64_t> step_bytes_recomputed, step_ops_recomputed, step_recompute_ns;
  std::vector<std::uint64_t> energy_mj;      // of the GPU, its counter after each step; empty: there is none
  std::vector<std::uint32_t> losses;         // bit patterns
  std::map<std::string, std::string> state;  // digests by name, where they are asked for
  std::int64_t planned_from = 0;  // the first step that ran by a plan; steps before are warm-up and profiling
  std::string mechanism, tracker,
      torch;  // what moves memory; what sees pages in the profiling step; libtorch's version
  bool amp = false;
  float loss_scale = 0;              // at the end, with amp
  std::uint64_t steps_left_out = 0;  // of an optimizer, since gradients were not finite
  std::string sums;                  // what was asked for so that two runs have equal bits; empty: nothing
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunResult, peak_bytes, budget_bytes, resident_max_bytes, bytes_in, bytes_out,
                                   stall_count, stall_ns, faults, smallest_budget, optimizer_state_bytes, step_ns,
                                   step_cpu_ns, step_phase, step_bytes_in, step_bytes_out, step_stall_count,
                                   step_stall_ns, step_faults, step_bytes_recomputed, step_ops_recomputed,
                                   step_recompute_ns, losses, state, planned_from, mechanism, tracker, torch, amp,
                                   loss_scale, steps_left_out, sums, energy_mj)

// Prints progress to standard output. Throws std::exception with a sentence.
RunResult run(const RunOptions& options);

}  // namespace vedette::examples
