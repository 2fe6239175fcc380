// Random numbers of the simulated GPU. They are the CPU's, in the order of the program, so that training on the device
// has the CPU's bits. And as on a GPU they are a function of the generator's state, a seed and an offset. Each draw
// moves the offset on. A draw from a state that has been before gives what it gave then.
//
// Thread rule: one draw at a time, by the thread that queues it.
#pragma once
#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

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

}  // namespace vedette::simulated
