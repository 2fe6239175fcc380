// States of the GPU's generator and the CPU's: see generators.h.
#include "simulated_gpu/generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDAFunctions.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "simulated_gpu/aliases.h"
#include "simulated_gpu/memory.h"

namespace vedette::simulated {
namespace {

constexpr std::uint64_t draw = 4;  // offsets are multiples of it

using Seeded = std::pair<std::uint64_t, std::uint64_t>;  // seed and offset

// The CPU's state before each draw so far.
class States {
 public:
  // What belongs to a state of the GPU's generator, which is `otherwise` where it has not been before.
  at::Tensor of(const Seeded& at, const at::Tensor& otherwise) {
    const std::lock_guard lock(guard_);
    return states_.emplace(at, otherwise).first->second;
  }

 private:
  std::mutex guard_;
  std::map<Seeded, at::Tensor> states_;
};

States& known() {
  static auto* const states = new States;
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
  return at::globalContext().defaultGenerator(c10::Device(c10::kCUDA, c10::cuda::current_device()));
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

std::atomic<bool> any_captured{false};  // relaxed: a thread that draws knows of the graphs whose replays it awaits

std::uint64_t mixed(std::uint64_t bits) {  // splitmix64
  bits += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

}  // namespace

struct Drawing::State {
  at::Generator of_gpu, of_cpu = at::detail::getDefaultCPUGenerator();
  std::optional<at::Tensor> put_back;  // the CPU's state, of a draw that was before
};

// A program that seeds its generators anew draws from a state that has been before, too. It seeds both, so that the
// CPU's state is what it was then, and the draw moves it on.
Drawing::Drawing(const std::vector<c10::IValue>& arguments) : state_(new State{generator_of(arguments)}) {
  if (any_captured.load(std::memory_order_relaxed))
    current_stream().wait_unordered();  // replays that come before have drawn
  const Seeded at = [&] {
    const std::lock_guard<std::mutex> lock(state_->of_gpu.mutex());
    return Seeded{state_->of_gpu.current_seed(), state_->of_gpu.get_offset()};
  }();
  const at::Tensor now = state_of(state_->of_cpu), then = known().of(at, now);
  if (same(then, now)) return;
  state_->put_back = now;
  set_state(state_->of_cpu, then);
}

Drawing::~Drawing() {
  if (state_->put_back) set_state(state_->of_cpu, *state_->put_back);
  const std::lock_guard<std::mutex> lock(state_->of_gpu.mutex());
  state_->of_gpu.set_offset(state_->of_gpu.get_offset() + draw);
}

CapturedDraw::CapturedDraw(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  const auto& declared = op.schema().arguments();
  while (argument_ < declared.size() && declared[argument_].name() != "generator") ++argument_;
  if (argument_ == declared.size())
    refuse_where_captured(op.operator_name().name.c_str(), "draws random numbers and takes no generator");
  any_captured.store(true, std::memory_order_relaxed);
  at::Generator generator = generator_of(arguments);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const at::PhiloxCudaState state = at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(draw);
  seed_ = state.seed_.ptr;
  offset_ = state.offset_.ptr;
  inside_ = state.offset_intragraph_;
}

std::vector<Access> CapturedDraw::accesses() const {
  return {{.at = seed_, .bytes = sizeof *seed_}, {.at = offset_, .bytes = sizeof *offset_}};
}

void CapturedDraw::give_generator(std::vector<c10::IValue>& arguments) const {
  const auto value = [](const std::int64_t* of_device) {
    return static_cast<std::uint64_t>(*static_cast<const std::int64_t*>(memory().reach(of_device)));
  };
  const Seeded at{value(seed_), value(offset_) + inside_};
  at::Generator own = at::detail::createCPUGenerator(mixed(mixed(at.first) ^ at.second));
  own.set_state(known().of(at, own.get_state()));
  arguments[argument_] = std::move(own);
}

}  // namespace vedette::simulated
