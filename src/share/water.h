// The rest of a memory, given where it saves the most: by the marginal stall per byte of each job's profile.
//
// Pure; any thread.
#pragma once
#include <span>
#include <vector>

#include "share/decide.h"

namespace vedette::share {

// Adds `left` bytes at most to the leases of jobs that run. The largest saving a byte and a second of the job's own
// time comes first, times its weight. Of a profile its lower convex hull counts: a gain that needs much memory is seen
// before its last byte. Bytes that save nothing come last, in the order of arrival.
void pour(std::span<const Job> jobs, Bytes left, std::vector<Grant>& grants);

}  // namespace vedette::share
