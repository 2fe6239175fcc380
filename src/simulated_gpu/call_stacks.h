// The stacks of the calls that queue commands: return addresses, and Python's frames where the process has Python. Each
// distinct stack is kept once, by its number.
//
// A thread that queues does not hold Python's lock (GIL) as a rule: it is taken for the frames. A thread of autograd's
// has few frames of its own: those of the program's first thread, which waits for it meanwhile, are kept, too.
//
// Thread rule: any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace vedette::simulated {

struct CallStack {
  std::vector<void*> native;                 // return addresses, the innermost first
  std::vector<std::string> python;           // "file:line in function", the innermost first
  std::vector<std::string> of_first_thread;  // of Python's, where it is another
  bool operator<(const CallStack& other) const;
};

// Whether Python's lock may be taken for its frames: not where the caller holds a lock that another thread may wait for
// while it has Python's.
enum class PythonLock : std::uint8_t { take, only_where_held };

// From 1; 0: no report is written (reports.h).
std::uint32_t stack_here(PythonLock = PythonLock::take);
CallStack call_stack(std::uint32_t number);  // empty for 0

}  // namespace vedette::simulated
