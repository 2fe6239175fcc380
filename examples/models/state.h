// What training leaves behind, to compare two runs bit by bit: parameters, buffers (running statistics), the state of
// the optimizers, and the random generators, whose next draws are equal when they are.
//
// Thread rule: the training thread, between two steps. On a GPU it waits for the device.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "models/model.h"

namespace vedette::examples {

// Calls each(name, tensor) for the tensors that an optimizer has made, and count(name, steps) for its counts of steps.
// Throws std::logic_error for an optimizer that no model here uses.
void each_state(torch::optim::Optimizer& optimizer,
                const std::function<void(const std::string&, const at::Tensor&)>& each,
                const std::function<void(const std::string&, std::int64_t)>& count = {});

// By name, the bytes of all that training changes. Tensors of a GPU are copied to the host, one at a time.
void each_bytes(Model& model, const std::function<void(const std::string&, std::string_view bytes)>& each);

// By name, digests of 128 bits of each_bytes(). Not for adversaries.
std::map<std::string, std::string> digests(Model& model);

// The first name under which the two differ, or one of them has nothing; empty when they are equal.
std::string first_difference(const std::map<std::string, std::string>& a, const std::map<std::string, std::string>& b);

}  // namespace vedette::examples
