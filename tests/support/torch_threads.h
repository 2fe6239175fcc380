// With how many threads a test of libtorch computes.
#pragma once
#include <ATen/Parallel.h>

#include <algorithm>

namespace vedette::testing {

// As many as ctest says by OMP_NUM_THREADS (tests/CMakeLists.txt); at most two, also where a test is run by hand on a
// large machine.
inline void compute_with_given_threads() { at::set_num_threads(std::min(at::get_num_threads(), 2)); }

}  // namespace vedette::testing
