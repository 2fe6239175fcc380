// Which process runs this. A child has another number than its parent where it has a copy of the parent's memory,
// however it was made: fork(), _Fork() or clone(2), which run no fork handlers. A child of vfork() shares the memory,
// and the threads that serve it, so its number is the same.
//
// Thread rule: any thread; in a signal handler where the process, or a parent, has called it before.
#pragma once
#include <cstdint>

namespace vedette {

std::uint64_t this_process() noexcept;

}  // namespace vedette
