// Names of operators in reports (reports.h): a thread of autograd's has no frames of the program's, but a node.
#pragma once
#include <string>

namespace vedette::simulated {

// "aten::mm", or "aten::mm of MmBackward0" in a report's process. Thread rule: any thread.
std::string named_by_node(const char* op);

}  // namespace vedette::simulated
