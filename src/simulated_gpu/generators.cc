// States of the GPU's generator and the CPU's: see generators.h.
#include "simulated_gpu/generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "simulated_gpu/aliases.h"

namespace vedette::simulated {
namespace {

constexpr std::uint64_t draw = 4;  // offsets are multiples of it

using Seeded = std::pair<std::uint64_t, std::uint64_t>;  // seed and offset

// The CPU's state before each draw so far.
std::map<Seeded, at::Tensor>& known() {
  static auto* const states = new std::map<Seeded, at::Tensor>;
  return *states;
}

at::Tensor state_of(at::Generator& generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator& generator, const at::Tensor& state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

at::Generator generator_of(const std::vector<c10::IValue>& arguments) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isGenerator() && argument.toGenerator().defined() && argument.toGenerator().device().is_cuda())
      return argument.toGenerator();
  }
  return at::globalContext().defaultGenerator(c10::Device(c10::kCUDA, 0));
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

struct Drawing::State {
  at::Generator of_gpu, of_cpu = at::detail::getDefaultCPUGenerator();
  std::optional<at::Tensor> put_back;  // the CPU's state, of a draw that was before
};

// A program that seeds its generators anew draws from a state that has been before, too. It seeds both, so that the
// CPU's state is what it was then, and the draw moves it on.
Drawing::Drawing(const std::vector<c10::IValue>& arguments) : state_(new State{generator_of(arguments)}) {
  refuse_where_captured("an operator", "draws random numbers, which the simulated GPU cannot capture");
  const Seeded at = [&] {
    const std::lock_guard<std::mutex> lock(state_->of_gpu.mutex());
    return Seeded{state_->of_gpu.current_seed(), state_->of_gpu.get_offset()};
  }();
  const at::Tensor now = state_of(state_->of_cpu);
  const auto found = known().find(at);
  if (found != known().end() && !same(found->second, now)) {
    state_->put_back = now;
    set_state(state_->of_cpu, found->second);
  } else {
    known().insert_or_assign(at, now);
  }
}

Drawing::~Drawing() {
  if (state_->put_back) set_state(state_->of_cpu, *state_->put_back);
  const std::lock_guard<std::mutex> lock(state_->of_gpu.mutex());
  state_->of_gpu.set_offset(state_->of_gpu.get_offset() + draw);
}

}  // namespace vedette::simulated
