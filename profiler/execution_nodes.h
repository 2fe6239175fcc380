// The nodes of an execution trace, and the step that they tell. PyTorch's JSON and Chakra's protobuf both end here.
//
// A storage is a tensor, by the number that the trace gives it, which another gets when it has died. Operators call
// operators, and all are nodes. One that only hands on is left out: a view, and a caller whose result another makes
// from all that the caller read. So is one that makes a part of its caller's work, as an allocation. Their times go to
// the op beside them. Thread rule: values.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "profiler/foreign.h"

namespace vedette::foreign {

struct StorageUse {
  std::uint64_t tensor = 0, storage = 0;
  std::uint64_t bytes = 0;   // of the storage, as far as this tensor reaches
  bool exact = false;        // its strides are known
  std::size_t argument = 0;  // which of the operator's
  std::vector<std::int64_t> shape;
};

struct ExecutionNode {
  std::uint64_t id = 0, parent = 0;  // 0: not told
  std::string name, schema;
  bool on_device = false;   // a kernel or a copy of a GPU, whose parent launched it
  double microseconds = 0;  // of itself, without what it calls
  std::vector<StorageUse> inputs, outputs;
};

// The tensors among the values of a node. `strides` may be null. Throws Malformed.
std::vector<StorageUse> storage_uses(const nlohmann::json& values, const nlohmann::json& shapes,
                                     const nlohmann::json& strides);

// Throws Malformed where no operator uses a tensor.
Trace trace_of_nodes(std::vector<ExecutionNode> nodes, std::string_view format);

}  // namespace vedette::foreign
