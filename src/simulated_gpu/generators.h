// Random numbers of the simulated GPU. They are the CPU's, in the order of the program, so that training on the device
// has the CPU's bits. And as on a GPU they are a function of the generator's state, a seed and an offset. Each draw
// moves the offset on. A draw from a state that has been before gives what it gave then.
//
// Draws in a graph are such functions, too, of the state that libtorch puts into device memory before each replay. They
// do not move the CPU's generator on.
//
// Thread rule: one draw at a time, by the thread that queues it; give_generator() on any stream's thread.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "simulated_gpu/streams.h"

namespace vedette::simulated {

// While it lives an operator that draws runs on the CPU's default generator; its arguments have no generator then.
class Drawing {
 public:
  // `arguments`: of the call, with the GPU's generator where it has one.
  explicit Drawing(const std::vector<c10::IValue>& arguments);
  ~Drawing();
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A call in a graph that is captured. Moves the generator on within the graph. Throws where the operator takes no
// generator.
class CapturedDraw {
 public:
  CapturedDraw(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);
  std::vector<Access> accesses() const;  // to what a replay puts into device memory
  // In a replay: `arguments` get a generator of the CPU in the replay's state.
  void give_generator(std::vector<c10::IValue>& arguments) const;

 private:
  std::size_t argument_ = 0;
  const std::int64_t *seed_ = nullptr, *offset_ = nullptr;  // device memory
  std::uint64_t inside_ = 0;                                // of the graph: what draws before it moved on
};

}  // namespace vedette::simulated
