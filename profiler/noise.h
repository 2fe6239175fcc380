// The machine's other load while a step ran: the process's share of the processors, time that a hypervisor took, waits
// of the machine's tasks (PSI), and involuntary switches as interruptions. They tell a slow step from a disturbed one.
//
// Thread rule: use_of_process() any thread, a MachineWatch one thread at a time.
#pragma once
#include <cstdint>
#include <optional>

#include "vedette/units.h"

namespace vedette {

struct ProcessUse {            // since the process began
  Nanoseconds at;              // of the monotonic clock
  Nanoseconds processor;       // of all its threads, user and system
  std::uint64_t switches = 0;  // involuntary: another task got its processor
};
ProcessUse use_of_process() noexcept;  // two system calls

// Nanoseconds of all processors, or in which some task waited for a resource; none: the kernel does not tell.
struct MachineUse {
  Nanoseconds elapsed;  // for so long it was watched; 0: it was not
  std::optional<Nanoseconds> steal, processor_wait, memory_wait, io_wait;
};

class MachineWatch {
 public:
  // Since the call before; the first answers nothing. Some 50 us.
  MachineUse since_last();

 private:
  MachineUse last_;  // its elapsed is the clock then
};

struct StepNoise {      // of one step
  Nanoseconds elapsed;  // between its begin and end, as the recorder saw them
  Nanoseconds processor;
  std::uint64_t switches = 0;
  MachineUse machine;  // from about the end of the step before to about its own
};

}  // namespace vedette
