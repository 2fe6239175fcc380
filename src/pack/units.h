// Units, which the planner plans: chunks that share a history. A step's log tells which tensor lived where and which op
// touched it; a chunk that hosts several tensors has the union of their histories; neighbouring chunks with the same
// history are one unit. The result is an ordinary Trace whose tensors are units, so that every policy plans things that
// can really move.
//
// Pure, deterministic. O(chunks * accesses of their tensors).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pack/operand_list.h"
#include "pack/wishes.h"
#include "vedette/model.h"

namespace vedette {

struct LoggedTensor {
  std::string name;
  Bytes bytes;
  TensorKind kind = TensorKind::activation;
  std::uint64_t offset = 0;         // of its first byte in the arena
  std::uint32_t birth = 0;          // event number; 0: it lived when the step began
  std::uint32_t death = ~0u;        // event number; ~0u: it lived when the step ended
  std::uint32_t birth_op = 0;       // the op in which, or before which, it was born
  std::int64_t death_op = -1;       // the op after which it is dead; -1: it died before the first op
  bool dies_at_seam = false;        // born in this step, dies before the first op of the next one
  bool in_parts = false;            // some op touches rows of it, others at every step: in no unit
  bool whole = false;               // some op has all of it as an operand
  bool small = false;               // of the slab, on pages of its own for this step only: in no unit
  Wish wish = Wish::none;           // of the program, by the tensor's name
  std::vector<std::int64_t> shape;  // as Tensor's, as is the site
  Site site;
};

struct LoggedOp {
  std::string name;
  std::optional<LayerIndex> layer;
  Phase phase = Phase::forward;
  Nanoseconds time;
  OperandList reads, writes;      // tensors of the log
  Span<std::uint32_t> events;     // births and deaths inside the op have the numbers (begin, end]
  std::uint32_t named_reads = 0;  // as the program named them: those of no tensor of the log included
};

struct LoggedPages {  // as PageAccess, of a tensor of the log
  std::uint32_t op = 0, tensor = 0;
  Span<std::uint64_t> pages;  // of 4 KiB, from the tensor's first byte
  bool read = false, written = false;
  bool operator==(const LoggedPages&) const = default;
};

// An op's use of memory that the session does not have: it is in no unit, and in no plan.
struct LoggedBeside {
  std::uint32_t op = 0;
  std::uint64_t address = 0;  // with its bytes: of one tensor
  Bytes bytes;
  bool written = false;
  std::string name;
};

struct StepLog {
  std::vector<LoggedTensor> tensors;
  std::vector<LoggedOp> ops;
  std::vector<Layer> layers;
  std::vector<LoggedPages> pages;  // empty when nothing was tracked
  std::vector<LoggedBeside> beside;
  std::string device = "cpu";      // as the traces of this step name it
  std::vector<std::string> notes;  // of the trace
};

struct UnitChunks {  // where a unit lies: chunks [first, first + count) of the arena
  std::uint32_t first = 0, count = 0;
  auto operator<=>(const UnitChunks&) const = default;
};

struct Units {
  Trace trace;                    // tensors are units
  std::vector<UnitChunks> where;  // where[u] for each tensor of the trace
  std::vector<Wish> wishes;       // of each unit
  // frames_to_come[i][k]: after the k-th allocation or release inside op i, the number of further frames the op will
  // still take. The migrator leaves that many free.
  std::vector<std::vector<std::uint32_t>> frames_to_come;
};

void sort_operands(Op& op);  // reads, writes and frees as Op wants them: sorted, each once

// Persistent units have at most `most` chunks, or one and a half times as many: so a part of a large weight can leave.
// Policies cut temporaries themselves.
Units form_units(const StepLog& log, Bytes chunk, std::uint32_t most = ~0u);

// The same step in the program's own tensors, for recordings and exports. `logged` gets, for each of them, its number
// in the log. Tensors that are born and die within one op are its workspace, or tensors like others; then those in
// parts are left out.
enum class WithinOneOp : std::uint8_t { are_workspace, are_tensors };
Trace program_trace(const StepLog& log, std::vector<std::uint32_t>* logged = nullptr,
                    WithinOneOp short_lived = WithinOneOp::are_workspace);
// Adds what ops used beside, behind the trace's tensors: each address with its size is a tensor that persists.
void add_beside(Trace& trace, const StepLog& log);

}  // namespace vedette
