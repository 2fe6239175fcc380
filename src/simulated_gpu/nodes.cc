// The node that autograd evaluates on the calling thread: see nodes.h.
#include "simulated_gpu/nodes.h"

#include <torch/csrc/autograd/function.h>

#include "simulated_gpu/reports.h"

namespace vedette::simulated {

std::string named_by_node(const char* op) {
  if (!reporting()) return op;
  const auto node = torch::autograd::get_current_node();
  return node == nullptr ? op : std::string(op) + " of " + node->name();
}

}  // namespace vedette::simulated
