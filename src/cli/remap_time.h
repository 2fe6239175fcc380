// The cost of moving a chunk beside its transfer.
#pragma once
#include "vedette/units.h"

namespace vedette::cli {

// Of the thread that shows a chunk or hides it, one of either, while the other processors compute: changing the page
// tables interrupts them, and that thread waits for their answers. The median of 500, some 20 ms. Zero: no session
// could be opened here.
Nanoseconds measure_remap(Bytes chunk);

}  // namespace vedette::cli
