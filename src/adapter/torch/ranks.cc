// The process group of a job, from torchrun's environment: see Ranks in vedette/distributed.h.
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "adapter/torch/collective.h"
#include "vedette/distributed.h"

namespace vedette {
namespace {

std::string_view environment(const char* name) {
  const char* const value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

int number(const char* name, int least, int most) {
  const std::string_view text = environment(name);
  int value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size() || value < least || value > most)
    throw Failure({.cause = Cause::malformed_input,
                   .message = std::string("the environment variable ") + name + " is '" + std::string(text) +
                              "', which is no number from " + std::to_string(least) + " to " + std::to_string(most) +
                              "; start the program by torchrun"});
  return value;
}

// As torch/distributed/rendezvous.py has it: under torchrun the agent serves and all ranks are its clients, else rank
// 0 serves. Each start of a job has keys of its own.
c10::intrusive_ptr<c10d::Store> store_of_the_job(int rank, int size, std::chrono::seconds patience) {
  constexpr int largest_port = 65535;
  const bool agent_serves = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(number("MASTER_PORT", 0, largest_port));
  options.isServer = rank == 0 && !agent_serves;
  options.multiTenant = !agent_serves;
  options.numWorkers = static_cast<std::size_t>(size);
  options.waitWorkers = false;
  options.timeout = patience;
  const std::string restarts(environment("TORCHELASTIC_RESTART_COUNT"));
  return c10::make_intrusive<c10d::PrefixStore>(
      "vedette/" + restarts, c10::make_intrusive<c10d::TCPStore>(std::string(environment("MASTER_ADDR")), options));
}

c10::intrusive_ptr<c10d::ProcessGroup> open_group(int rank, int size, std::chrono::seconds patience) {
  const auto store = store_of_the_job(rank, size, patience);
  const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
      store, rank, size, c10d::ProcessGroupGloo::Options::create_default(patience));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setGroupName("vedette");
  return group;
}

}  // namespace

Ranks::Ranks(std::chrono::seconds patience) {
  if (environment("RANK").empty() && environment("WORLD_SIZE").empty()) return;
  constexpr int most = 1 << 20;
  size_ = number("WORLD_SIZE", 1, most);
  rank_ = number("RANK", 0, size_ - 1);
  if (size_ == 1) return;
  if (environment("MASTER_ADDR").empty())
    throw Failure({.cause = Cause::malformed_input,
                   .message = "RANK and WORLD_SIZE are set and MASTER_ADDR is not; start the program by torchrun"});
  group_ = open_group(rank_, size_, patience);
}

Ranks::~Ranks() = default;

void Ranks::use(c10::DeviceType device, c10::intrusive_ptr<c10d::Backend> backend) {
  using Type = c10d::ProcessGroup::BackendType;
  if (group_ == nullptr) return;
  if (backend == nullptr || device == c10::kCPU)
    throw Failure({.cause = Cause::unsupported,
                   .message = "tensors of the CPU go by gloo, and those of a GPU by a backend that is there; give "
                              "Ranks::use() a device such as at::kCUDA, and its backend"});
  group_->setBackend(device, backend->getBackendName() == "nccl" ? Type::NCCL : Type::CUSTOM, backend);
}

c10::intrusive_ptr<c10d::Store> Ranks::store() const {
  if (group_ == nullptr) return {};
  return c10::make_intrusive<c10d::PrefixStore>("of the program", group_->getStore());
}

void Ranks::broadcast(torch::nn::Module& module) {
  if (group_ == nullptr) return;
  const at::NoGradGuard no_gradients;
  const auto send = [&](const at::Tensor& tensor) { adapter::Collective::copy_from(*this, 0, tensor.detach()).wait(); };
  for (const at::Tensor& parameter : module.parameters()) send(parameter);
  for (const at::Tensor& buffer : module.buffers()) send(buffer);
}

double Ranks::mean(double value) {
  const at::Tensor sum = at::full({1}, value, at::kDouble);
  adapter::Collective::sum(*this, sum).wait();
  return sum.item<double>() / size_;
}

void Ranks::barrier() {
  if (group_ != nullptr) group_->barrier()->wait();
}

}  // namespace vedette
