// Ops that are planned in sections. A large op allocates scratch and results as it goes, and does not touch all its
// operands all the time. Backward of a convolution, for instance, makes the input's gradient first and reads the input
// afterwards. From one of its births to the next it is an op of its own to a planner, which then brings the input while
// the gradient is made.
//
// Pure, deterministic.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "pack/units.h"

namespace vedette {

struct LogSection {  // of one op, up to its next section
  // births and deaths up to this number are before it; of an op's first: its events.begin
  std::uint32_t after_event = 0;
  Nanoseconds time;
  std::vector<std::uint32_t> touched;  // tensors of the log among the op's operands
};

struct SectionedOp {
  std::uint32_t op = 0;
  std::vector<LogSection> sections;  // in order; two at least
};

struct SectionedLog {
  StepLog log;                       // sections are ops
  std::vector<std::uint32_t> first;  // [i]: the first section of op i; one more entry at the end: how many there are
};

// `ops` sorted, each once. An operand that a sectioned op announced but touched in no section counts as touched in all
// of them; a tensor born in it is touched from there on to its death.
SectionedLog cut_into_sections(StepLog log, std::span<const SectionedOp> ops);

// The other way: the trace and the plan as if no op had sections. A move within one op is due when it was issued.
Trace whole_ops(const Trace& sectioned, std::span<const std::uint32_t> first);
Plan whole_ops(Plan sectioned, std::span<const std::uint32_t> first);

// The sections of an op that are worth planning, from observations between its births. Neighbours are joined where
// their needs differ by less than `least_difference` chunks, or where one takes less than 0.2 ms. Needs are the
// operands that only one of them touches, and the birth between them, whose room is not needed before. An operand that
// no section touched counts as touched in all. With fewer than two sections the op stays whole.
struct WatchedSection {
  std::uint32_t birth = 0;        // the op's n-th birth begins it, counted from 1; 0: the op does
  std::uint64_t bytes = 0;        // of that birth
  std::uint32_t after_event = 0;  // as LogSection's, in the latest step
  Nanoseconds time;
  std::vector<char> touched;  // by operand of the op
};
std::vector<WatchedSection> worth_planning(std::vector<WatchedSection> watched,
                                           std::span<const std::uint32_t> operand_chunks, Bytes chunk,
                                           std::uint32_t least_difference);

}  // namespace vedette
