// Works of gloo's: see gloo_works.h.
#include "adapter/torch/gloo_works.h"

#include <ATen/record_function.h>
#include <c10/core/StorageImpl.h>

#include <chrono>
#include <cstring>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "adapter/torch/allocator.h"
#include "adapter/torch/storages.h"
#include "adapter/torch/versions.h"
#include "base/readable.h"

namespace vedette::adapter {
namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

constexpr std::uint64_t parts_of_the_budget = 4;
// An op that pins all of the budget runs on meanwhile; longer than any op takes.
constexpr std::chrono::seconds patience{60};

thread_local const void* carried_here = nullptr;  // the work's context

class Work;
struct Holding {
  std::mutex mutex;
  Session* session = nullptr;  // nullptr: nothing is held
  std::function<void(std::string_view)> say;
  std::set<Work*> works;        // that hold something
  std::uint32_t beginning = 0;  // works that ask the session for memory
};
Holding& holding() {
  static Holding* const immortal = new Holding;  // gloo's threads may outlive static objects
  return *immortal;
}

struct Operands final : c10::DebugInfoBase {
  std::vector<WeakStorage> storages;
};

class Work final : public at::ObserverContext {
 public:
  Work() { carried_here = this; }
  ~Work() override { end(); }
  void end() {  // the program may keep the work for longer
    if (carried_here == this) carried_here = nullptr;
    const std::lock_guard lock(holding().mutex);
    holding().works.erase(this);
    scopes_.clear();
  }
  void hold(Session& session, const at::RecordFunction& function) {
    std::vector<c10::intrusive_ptr<c10::StorageImpl>> storages;  // gloo has them all, or does not use them
    const auto* const op = static_cast<const Operands*>(c10::ThreadLocalDebugInfo::get(our_debug_info));
    for (std::size_t i = 0; op != nullptr && i < op->storages.size(); ++i)
      if (auto storage = op->storages[i].lock()) storages.push_back(std::move(storage));
    for (const c10::IValue& input : function.inputs())
      each_storage(input, c10::kCPU, [&](c10::StorageImpl& storage) {
        storages.push_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage));
      });
    for (const auto& storage : storages) {
      const void* const memory = storage->data_ptr().get();
      if (memory != nullptr && Session::owns(memory)) scopes_.emplace_back(session, memory);
    }
  }
  void let_go() noexcept { scopes_.clear(); }

 private:
  struct Held {
    Held(Session& session, const void* memory) : scope(session.resident(memory, patience)) {}
    ResidentScope scope;
  };
  std::list<Held> scopes_;  // do not move
};

std::unique_ptr<at::ObserverContext> begin_work(const at::RecordFunction& function) {
  constexpr char gloo[] = "gloo:";
  if (std::strncmp(function.name(), gloo, sizeof gloo - 1) != 0) return nullptr;
  Holding& all = holding();
  Session* session = nullptr;
  {
    const std::lock_guard lock(all.mutex);
    session = all.session;
    if (session == nullptr || session->in_child()) return nullptr;
    ++all.beginning;
  }
  std::unique_ptr<Work> work;
  try {
    work = std::make_unique<Work>();
    work->hold(*session, function);
  } catch (...) {  // libtorch goes on without a context
    const std::lock_guard lock(all.mutex);
    --all.beginning;
    throw;
  }
  const std::lock_guard lock(all.mutex);
  all.works.insert(work.get());
  --all.beginning;
  return work;
}

void end_work(const at::RecordFunction&, at::ObserverContext* context) {
  if (context != nullptr) static_cast<Work*>(context)->end();
}

// Registered with libtorch once, and off while nothing is to be held.
void listen(bool on) {
  static const at::CallbackHandle handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&begin_work, &end_work).needsInputs(true).scopes({at::RecordScope::USER_SCOPE}));
  static bool is_on = true;
  if (std::exchange(is_on, on) == on) return;
  if (on) {
    at::reenableCallback(handle);
  } else {
    at::disableCallback(handle);
  }
}

void move_to_ordinary_memory(c10::StorageImpl& storage) {
  c10::DataPtr memory = ordinary_memory(storage.nbytes());
  std::memcpy(memory.get(), storage.data_ptr().get(), storage.nbytes());
  storage.set_data_ptr_noswap(std::move(memory));
}

}  // namespace

bool serves_system_calls(const Session& session) { return session.mechanism().starts_with("userfaultfd, "); }

void begin_to_hold(Session& session, std::function<void(std::string_view)> say) {
  if (serves_system_calls(session)) return;
  listen(true);
  const std::lock_guard lock(holding().mutex);
  holding().session = &session;
  holding().say = std::move(say);
}

void stop_holding(const Session& session) noexcept {
  Holding& all = holding();
  std::unique_lock lock(all.mutex);
  if (all.session != &session) return;
  all.session = nullptr;
  if (session.in_child()) return;  // the works are its parent's
  while (all.beginning > 0) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  for (Work* const work : all.works) work->let_go();
  listen(false);
}

bool carries_a_work() noexcept { return carried_here != nullptr; }

OpOfWorks::OpOfWorks(c10::ArrayRef<const c10::IValue> arguments)
    : guard_(our_debug_info, [&] {
        auto operands = std::make_shared<Operands>();
        for (const c10::IValue& argument : arguments)
          each_storage(argument, c10::kCPU, [&](c10::StorageImpl& storage) {
            operands->storages.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage));
          });
        return operands;
      }()) {}

void send_from_ordinary_memory(c10::ArrayRef<const c10::IValue> arguments) {
  Session* const session = holding().session;  // which this thread alone changes
  if (session == nullptr) return;
  std::set<c10::StorageImpl*> storages;
  std::uint64_t bytes = 0;
  for (const c10::IValue& argument : arguments)
    each_storage(argument, c10::kCPU, [&](c10::StorageImpl& storage) {
      const void* const memory = storage.data_ptr().get();
      if (memory != nullptr && Session::owns(memory) && storages.insert(&storage).second) bytes += storage.nbytes();
    });
  const Bytes most{session->budget().value / parts_of_the_budget};
  if (bytes <= most.value) return;
  holding().say(
      "A collective of " + readable({bytes}) +
      " is sent from ordinary memory, beside the budget, where its "
      "tensors stay: it exceeds " +
      readable(most) +
      ", a quarter of the budget, and without userfaultfd for "
      "system calls it would have to be resident; smaller buckets (bucket_cap_mb) or a larger budget prevent that.");
  for (c10::StorageImpl* const storage : storages) move_to_ordinary_memory(*storage);
}

}  // namespace vedette::adapter
