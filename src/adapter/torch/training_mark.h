// A mark that the training's thread leaves in libtorch's thread-local state. A backward pass takes that state along to
// the threads that run it, so that each node tells by whose thread its pass began. One thread of a device runs the
// nodes of all passes.
//
// The mark is a callback of RecordFunction for one thread that is never called. Thread rule: any thread, about itself.
#pragma once

namespace vedette::adapter {

// This thread trains from now on, and no other one does.
void mark_training_thread();
// This thread trains, or runs a part of a backward pass that began there.
bool has_training_mark() noexcept;

}  // namespace vedette::adapter
