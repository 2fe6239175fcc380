// The description of the machine under a table of measurements, and a run of another program with its cost.
#pragma once
#include <string>
#include <vector>

#include "base/fd.h"

namespace vedette::bench {

std::string machine_line();                                // processor, cores, kernel
std::string file_system_of(const std::string& directory);  // device and type
std::string huge_pages();                                  // which memory gets them unasked: always, madvise, never
double load_per_core();                                    // the load average of the last minute
constexpr double busy_load = 0.5;                          // above it nothing measured is worth a README

// Exclusive use of a file that others of the same machine lock, too (flock); with an empty path nothing is locked.
class Turn {
 public:
  explicit Turn(const std::string& path);  // waits; throws vedette::Failure

 private:
  Fd fd_;
};

struct ChildRun {
  int status = 0;  // of exit; 128 + the signal that ended it
  double wall_s = 0;
  // processor time of everything else on the machine meanwhile, kernel threads and the host's theft included, over the
  // wall time
  double others_cores = 0;
};
// Runs words[0] with the others as its arguments; its output goes to `log`. After `limit_s` it is killed. Throws
// vedette::Failure when no process can be made.
ChildRun run_child(std::vector<std::string> words, const std::string& log, double limit_s);

}  // namespace vedette::bench
