// From a trace to a log with addresses, and from the log to units, as a session does it (session/address_plan.cc).
#include "cli/chunked.h"

#include <vector>

#include "base/arithmetic.h"
#include "model/liveness.h"
#include "pack/coallocate.h"
#include "pack/units.h"
#include "session/step_plan.h"
#include "vedette/policy.h"

namespace vedette::cli {

namespace {

constexpr std::uint64_t alignment = 64;  // of a session's allocations

// Events in the order of the ops: births in an op, its scratch, and, after it, deaths.
class Log {
 public:
  explicit Log(const Trace& trace) : trace_(trace) {
    const auto alive = lives(trace);
    std::vector<std::vector<std::uint32_t>> births(trace.ops.size()), deaths(trace.ops.size());
    for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
      const Tensor& tensor = trace.tensors[t];
      log_.tensors.push_back({.name = tensor.name, .bytes = tensor.bytes, .kind = tensor.kind});
      if (tensor.persistent || alive[t].begin == alive[t].end) {
        if (!tensor.persistent) log_.tensors[t].bytes = {};  // never born
        continue;
      }
      births[alive[t].begin.value].push_back(t);
      deaths[alive[t].end.value - 1].push_back(t);
    }
    log_.layers = trace.layers;
    for (std::uint32_t i = 0; i < trace.ops.size(); ++i) add_op(i, births[i], deaths[i]);
  }

  StepLog laid(Bytes chunk) {
    std::uint64_t end = 0;
    std::vector<Lifetime> temporary;
    for (LoggedTensor& t : log_.tensors)
      if (t.birth == 0) t.offset = end, end += round_up(t.bytes.value, alignment);
    for (const std::uint32_t t : born_)
      temporary.push_back({.bytes = log_.tensors[t].bytes, .life = {log_.tensors[t].birth, log_.tensors[t].death}});
    const Placement placement = coallocate(temporary, chunk);
    const std::uint64_t zone = round_up(end, chunk.value);
    for (std::size_t i = 0; i < born_.size(); ++i) log_.tensors[born_[i]].offset = zone + placement.offset[i];
    return std::move(log_);
  }

 private:
  void bear(std::uint32_t t, std::uint32_t op) {
    log_.tensors[t].birth = ++event_;
    log_.tensors[t].birth_op = op;
    born_.push_back(t);
  }
  void end(std::uint32_t t, std::uint32_t op) {
    log_.tensors[t].death = ++event_;
    log_.tensors[t].death_op = op;
  }

  void add_op(std::uint32_t i, const std::vector<std::uint32_t>& births, const std::vector<std::uint32_t>& deaths) {
    const Op& op = trace_.ops[i];
    LoggedOp logged{.name = op.name, .layer = op.layer, .phase = op.phase, .time = op.time};
    for (const TensorIndex t : op.reads) logged.reads.push_back(t.value);
    for (const TensorIndex t : op.writes) logged.writes.push_back(t.value);
    logged.events.begin = event_;
    for (const std::uint32_t t : births) bear(t, i);
    if (op.workspace.value > 0) {
      const auto scratch = static_cast<std::uint32_t>(log_.tensors.size());
      log_.tensors.push_back({.name = op.name, .bytes = op.workspace, .kind = TensorKind::workspace});
      bear(scratch, i);
      end(scratch, i);
    }
    logged.events.end = event_;
    log_.ops.push_back(std::move(logged));
    for (const std::uint32_t t : deaths) end(t, i);
  }

  const Trace& trace_;
  StepLog log_;
  std::vector<std::uint32_t> born_;  // in order
  std::uint32_t event_ = 0;
};

// Its changes in place are the chain's business, not its own.
bool may_run_again(const Op& op) {
  if (op.runs_again) return *op.runs_again;
  return op.name.find("batch_norm") != std::string::npos || replayable({.name = op.name});
}

}  // namespace

Trace in_chunks(const Trace& trace, const Machine& machine, std::string_view policy) {
  const Bytes chunk = machine.granule;
  const StepLog log = Log(trace).laid(chunk);
  const auto made = make_policy(policy, 1);
  Units units =
      form_units(log, chunk, detail::most_chunks_of_a_unit(made.get(), machine.tiers.front().capacity, chunk));
  if (machine.can_recompute) {
    std::vector<char> again;
    for (const Op& op : trace.ops) again.push_back(may_run_again(op) ? 1 : 0);
    detail::tell_what_runs_again(units, log, again, chunk);
  }
  units.trace.name = trace.name;
  return std::move(units.trace);
}

}  // namespace vedette::cli
