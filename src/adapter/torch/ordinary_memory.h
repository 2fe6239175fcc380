// For what system calls read or write where they fail in memory that is away. Thread rule: any thread, each for itself.
#pragma once

namespace vedette::adapter {

// While it lives, what this thread allocates is ordinary memory, outside the budget.
class OrdinaryMemory {
 public:
  OrdinaryMemory() noexcept;
  ~OrdinaryMemory();
  OrdinaryMemory(const OrdinaryMemory&) = delete;
  OrdinaryMemory& operator=(const OrdinaryMemory&) = delete;
};

}  // namespace vedette::adapter
