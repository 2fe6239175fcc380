// Steps that PyTorch and its tools recorded, as a Trace: execution traces (torch.profiler.ExecutionTraceObserver,
// JSON), Chakra's protobuf of them (mlc-chakra), and pickles of torch.cuda.memory._snapshot().
//
// None tells all that a Trace holds. What is assumed in its place stands in the trace's only note, in one sentence.
// Nothing in a file is executed, and no class is looked up. Thread rule: functions of their arguments.
#pragma once
#include <string_view>

#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette {

inline constexpr std::string_view execution_trace_format = "pytorch-execution-trace", chakra_format = "chakra",
                                  memory_snapshot_format = "pytorch-memory-snapshot";

// By the first bytes; a file in one of the formats may still be refused.
bool is_foreign(std::string_view bytes) noexcept;

// Trace::source is the format's name above. Errors: malformed_input (with the place), unsupported.
Result<Trace> parse_foreign(std::string_view bytes);

// Whether the trace came from parse_foreign: its note is what a reader has to know before the figures.
inline bool has_assumptions(const Trace& trace) noexcept {
  return !trace.notes.empty() && (trace.source == execution_trace_format || trace.source == chakra_format ||
                                  trace.source == memory_snapshot_format);
}

namespace foreign {

struct Malformed {
  std::string message;
};

bool is_chakra(std::string_view bytes) noexcept;
Trace read_execution_trace(std::string_view json);  // these throw Malformed
Trace read_chakra(std::string_view bytes);
Trace read_memory_snapshot(std::string_view pickle);

}  // namespace foreign
}  // namespace vedette
