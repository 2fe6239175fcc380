// Ops are announced one at a time, and the outermost of a thread alone: the thread whose op runs has the turn. On a GPU
// backward runs on a thread of its device. Thread rule: any thread, about itself.
#pragma once

namespace vedette::adapter {

const void* this_thread() noexcept;  // the address of a variable of its own

bool has_turn() noexcept;  // an op of this thread runs
// Waits for another thread's op. False: has_turn(). `in_node`: a node of a backward pass calls the op.
bool take_turn(bool in_node);
void end_turn() noexcept;
void end_turn_of_this_thread() noexcept;  // if it has it
void forget_turn() noexcept;              // in a forked child: of its parent's thread
// The op that runs was called outside of all nodes. To a thread that runs a node of the training's: the op runs that
// pass, and waits for it.
bool turn_is_outside_of_nodes() noexcept;

}  // namespace vedette::adapter
