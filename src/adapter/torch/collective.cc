// Collectives by c10d: see collective.h.
#include "adapter/torch/collective.h"

#include <ATen/ops/from_blob.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "adapter/torch/allocator.h"
#include "adapter/torch/gloo_works.h"
#include "adapter/torch/session_memory.h"

namespace vedette::adapter {

namespace {

std::uint64_t pinned_bytes = 0;  // by all that is under way

// In memory that never moves.
at::Tensor ordinary_copy(const at::Tensor& tensor) {
  auto memory = std::make_shared<c10::DataPtr>(ordinary_memory(tensor.nbytes()));
  const at::Tensor copy = at::from_blob(
      memory->get(), tensor.sizes(), [memory](void*) mutable { memory.reset(); }, tensor.options());
  copy.copy_(tensor);
  return copy;
}

}  // namespace

struct Collective::Pin {
  Pin(Session& session, const at::Tensor& tensor)
      : bytes(tensor.storage().nbytes()),
        scope(session.resident(session_memory(*tensor.storage().unsafeGetStorageImpl()))) {
    pinned_bytes += bytes;
  }
  ~Pin() { pinned_bytes -= bytes; }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  std::uint64_t bytes;
  ResidentScope scope;
};
void Collective::Unpin::operator()(Pin* pin) const noexcept { delete pin; }

Collective::Collective(at::Tensor tensor) : tensor_(std::move(tensor)), sent_(tensor_.contiguous()) {
  Session* const session = active_session();
  if (session != nullptr && !session->in_child()) pin_or_copy(*session);
}

void Collective::pin_or_copy(Session& session) {
  constexpr std::uint64_t parts_of_the_budget = 4;
  if (!Session::owns(session_memory(*sent_.storage().unsafeGetStorageImpl()))) return;
  if (pinned_bytes + sent_.storage().nbytes() <= session.budget().value / parts_of_the_budget) {
    pin_.reset(new Pin(session, sent_));
  } else if (!serves_system_calls(session)) {
    sent_ = ordinary_copy(sent_);
  }
}

Collective Collective::sum(const Ranks& ranks, at::Tensor tensor) {
  Collective begun(std::move(tensor));
  std::vector<at::Tensor> one{begun.sent_};
  if (ranks.group() != nullptr) begun.work_ = ranks.group()->allreduce(one);
  return begun;
}

Collective Collective::sum_at(const Ranks& ranks, int owner, at::Tensor tensor) {
  Collective begun(std::move(tensor));
  std::vector<at::Tensor> one{begun.sent_};
  c10d::ReduceOptions options;
  options.rootRank = owner;
  if (ranks.group() != nullptr) begun.work_ = ranks.group()->reduce(one, options);
  return begun;
}

Collective Collective::largest(const Ranks& ranks, at::Tensor tensor) {
  Collective begun(std::move(tensor));
  std::vector<at::Tensor> one{begun.sent_};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  if (ranks.group() != nullptr) begun.work_ = ranks.group()->allreduce(one, options);
  return begun;
}

Collective Collective::copy_from(const Ranks& ranks, int owner, at::Tensor tensor) {
  Collective begun(std::move(tensor));
  std::vector<at::Tensor> one{begun.sent_};
  c10d::BroadcastOptions options;
  options.rootRank = owner;
  if (ranks.group() != nullptr) begun.work_ = ranks.group()->broadcast(one, options);
  return begun;
}

void Collective::wait() {
  if (work_ != nullptr) work_->wait();
  work_.reset();
  pin_.reset();
  if (!sent_.is_same(tensor_)) tensor_.copy_(sent_);
}

}  // namespace vedette::adapter
