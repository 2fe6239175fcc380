// A trace that is kept to be told some day: its ops in about a quarter of their memory.
//
// Pure. unpack() gives the same trace.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "vedette/model.h"

namespace vedette {

class PackedTrace {
 public:
  explicit PackedTrace(Trace trace);
  Trace unpack() const;

 private:
  struct PackedOp {
    std::uint32_t name = 0, layer = 0;                           // layer: one more than its number; 0: none
    std::uint32_t reads_end = 0, writes_end = 0, frees_end = 0;  // in operands_, where the op before ends
    Phase phase = Phase::forward;
    Nanoseconds time;
    Bytes workspace;
  };

  Trace rest_;  // without ops
  std::vector<std::string> names_;
  std::vector<PackedOp> ops_;
  std::vector<TensorIndex> operands_;
};

}  // namespace vedette
