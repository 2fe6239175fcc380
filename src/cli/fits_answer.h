// Plans of a step in one size of memory, and their figures, for `vedette fits`.
//
// Thread rule: functions of their arguments.
#pragma once
#include <string>
#include <vector>

#include "vedette/model.h"

namespace vedette::cli {

struct Subject {
  std::vector<Trace> steps;  // one, as it was recorded, or a slow and a fast estimate
  Machine machine;
  std::string words;
  bool given = false;  // the time of the step
};

struct Answer {  // of one size of memory; speeds are shares of the step's with all memory, by estimate
  Bytes memory;
  std::vector<double> moving, recomputing, bound;
  Bytes moved, below, to_disk;  // a step, of the slowest estimate with what is faster of the two
  Nanoseconds step;
};

// Plans with and without recomputation, and their replays; seconds. `smaller`: the answer of less memory, or nullptr.
// Its plans are plans here, too.
Answer answer(const Subject& subject, Bytes memory, const Answer* smaller);

struct Needs {
  Bytes peak;   // of tensors
  Bytes whole;  // the same as it moves
  Bytes least;  // the largest operator's at once, in chunks with those beside it; no less than a session takes
};

Needs needs_of(const Trace& step, const Machine& machine);
Bytes fewest_of(const Machine& machine);  // that a session takes, whatever runs in it

Nanoseconds ideal_of(const Trace& step);  // all of its operators' time

}  // namespace vedette::cli
