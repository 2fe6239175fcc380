// From writes that are no ops to Session::others_write: see other_writers.h.
#include "adapter/torch/other_writers.h"

#include <ATen/record_function.h>

#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "adapter/torch/session_memory.h"
#include "adapter/torch/storages.h"
#include "vedette/session.h"

namespace vedette::adapter {

std::atomic<bool> writers_are_looked_for{false};

namespace {

std::atomic<Session*> looks{nullptr};
std::atomic<std::uint32_t> calls{0};  // that may use the session

class Call {
 public:
  Call() noexcept { calls.fetch_add(1); }
  ~Call() { calls.fetch_sub(1); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  Session* session() const noexcept {  // nullptr: there is none, or not in this process
    Session* const living = looks.load();
    return living == nullptr || living->in_child() ? nullptr : living;
  }
};

// As its schema says; an operator without one may write them all.
bool may_write(const std::optional<c10::FunctionSchema>& schema, std::size_t argument) {
  if (!schema || argument >= schema->arguments().size()) return true;
  const c10::AliasInfo* const alias = schema->arguments()[argument].alias_info();
  return alias != nullptr && alias->isWrite();
}

}  // namespace

void look_for_other_writers(Session* session) {
  const bool looked = session != nullptr && session->recomputes();
  writers_are_looked_for.store(looked, std::memory_order_relaxed);
  looks.store(looked ? session : nullptr);
  while (!looked && calls.load() > 0) std::this_thread::yield();
}

void others_write(const c10::StorageImpl& storage) {
  if (!writers_are_looked_for.load(std::memory_order_relaxed)) return;
  const Call call;
  if (Session* const session = call.session())
    if (const void* const memory = session_memory(storage)) session->others_write(memory);
}

void others_write(const at::RecordFunction& function) {
  if (function.scope() != at::RecordScope::FUNCTION) return;
  const Call call;
  Session* const session = call.session();
  if (session == nullptr) return;
  std::vector<std::pair<std::size_t, const void*>> used;  // by argument; most operators of other threads have none
  std::size_t argument = 0;
  for (const c10::IValue& input : function.inputs()) {
    each_storage(input, c10::kCPU, [&](const c10::StorageImpl& storage) {
      if (const void* const memory = session_memory(storage)) used.emplace_back(argument, memory);
    });
    ++argument;
  }
  if (used.empty()) return;
  const std::optional<c10::FunctionSchema> schema = function.operator_schema();
  for (const auto& [of, memory] : used)
    if (may_write(schema, of)) session->others_write(memory);
}

void others_write(std::span<const at::Tensor> tensors) {
  if (!writers_are_looked_for.load(std::memory_order_relaxed)) return;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.has_storage()) others_write(*tensor.storage().unsafeGetStorageImpl());
}

}  // namespace vedette::adapter
