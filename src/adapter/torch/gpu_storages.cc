// DataPtrs whose address changes: see gpu_storages.h.
#include "adapter/torch/gpu_storages.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "adapter/torch/allocator.h"
#include "adapter/torch/behaviour_gpu.h"
#include "adapter/torch/exported.h"
#include "adapter/torch/gpu_beside.h"
#include "adapter/torch/gpu_graphs.h"
#include "adapter/torch/gpu_lookups.h"
#include "adapter/torch/operators.h"
#include "adapter/torch/storages.h"
#include "adapter/torch/training_mark.h"
#include "base/assert.h"
#include "base/readable.h"
#include "vedette/result.h"

namespace vedette::adapter {
namespace {

// Of a recipe that is made or runs on this thread.
thread_local std::vector<Noted>* noted_here = nullptr;
thread_local std::vector<Redirected>* redirected_here = nullptr;
thread_local std::unordered_map<std::size_t, std::uint32_t> born_here;  // by bytes: since redirect_births()

thread_local std::vector<const void*> unseen_here;  // names that were born since this thread's last op ended
struct Prepared {
  void* stream;
  bool lt;
};
thread_local std::vector<Prepared> prepared_here;

void leave_alone(void*) {}  // memory that was redirected belongs to the session

}  // namespace

void GpuStorages::activate(Session* session, std::size_t small, std::function<void(std::string_view)> say) {
  say_ = std::move(say);
  beside_.store(0);
  others_compute_.store(false);
  most_reserved_.store(0);
  constexpr std::uint64_t lists = 32;  // of this size fill the budget
  small_ = small;
  longest_list_ = session == nullptr ? 0 : static_cast<std::size_t>(session->budget().value / lists);
  session_.store(session);
  if (session != nullptr) see_earlier_graphs();
  listen_for_lookups(session != nullptr && session->gpu()->is_table(~std::uint64_t{0}));
}

c10::DataPtr GpuStorages::pointer_to(DeviceAddress address, Handle* handle) {
  return {reinterpret_cast<void*>(address), handle, &free, handle->born_on.device()};
}

// Another thread's operator may have the storage moved meanwhile.
const void* GpuStorages::name_of(const c10::StorageImpl& storage) noexcept {
  if (instance() == nullptr) return nullptr;
  const std::lock_guard lock(instance()->mutex_);
  const c10::DataPtr& memory = storage.data_ptr();
  return memory.get_deleter() == &free ? static_cast<const Handle*>(memory.get_context())->name : nullptr;
}

bool GpuStorages::is_of_this_session(const c10::StorageImpl& storage) const noexcept {
  const c10::DataPtr& memory = storage.data_ptr();
  const Session* const session = session_.load();
  return memory.get_deleter() == &free && session != nullptr &&
         static_cast<const Handle*>(memory.get_context())->memory == session->gpu();
}

bool GpuStorages::lives(const void* name) const noexcept {
  const std::lock_guard lock(mutex_);
  return handles_.contains(name);
}

void GpuStorages::keep_in_place(const c10::StorageImpl& storage) {
  auto& handle = *static_cast<Handle*>(storage.data_ptr().get_context());
  {
    const std::lock_guard lock(mutex_);
    handle.kept = true;
  }
  handle.memory->used_on(handle.name, current_stream());
}

void* GpuStorages::current_stream() noexcept {
  const c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
  return captured_here() ? beside_captures() : cuda.getStreamNativeHandle(cuda.getStream(device()));
}

// --- births and deaths -----------------------------------------------------------------------------------------------

bool GpuStorages::takes(std::size_t bytes) const noexcept {
  return session_.load() != nullptr && bytes >= small_ && !BesideTheBudget::here();
}

// Asked for its address without our lock, since the session's come first. It stays: no operator was seen with it yet.
c10::DataPtr GpuStorages::enter(Session& session, const void* name, std::size_t bytes) {
  const DeviceAddress address = session.gpu()->address(name);
  const c10::Stream born_on = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device());
  auto* const handle =
      new Handle{.name = name, .bytes = bytes, .born_on = born_on, .memory = session.gpu(), .storage = {}};
  const std::lock_guard lock(mutex_);
  handles_[name] = handle;
  return pointer_to(address, handle);
}

c10::DataPtr GpuStorages::allocate(std::size_t bytes) {
  Refused::throw_here();
  if (!takes(bytes)) return answer_of_gpu(bytes);
  Session* const session = session_.load();
  if (redirected_here != nullptr) return allocate_scratch(*session, bytes);
  if (!has_training_mark()) others_compute_.store(true, std::memory_order_relaxed);
  if (!announces_this_thread() || !on_its_device()) return {};
  if (session->gpu()->is_table(bytes)) return allocate_table(*session, bytes);
  const Birth birth = birth_now();
  const auto name =
      session->allocate({.bytes = {bytes}, .name = birth.name, .kind = birth.kind, .persistent = birth.persistent});
  settle();
  if (!name) {  // where the device has no room, either, libtorch says so
    hear_operators_after_this(*session);
    return piece_beside(bytes);
  }
  if (noted_here != nullptr) noted_here->push_back({.bytes = bytes, .at = *name});
  if (session->wants_ops()) unseen_here.push_back(*name);
  return enter(*session, *name, bytes);
}

bool GpuStorages::adopt(c10::StorageImpl& storage, std::string_view name, TensorKind kind) {
  const std::size_t bytes = storage.nbytes();
  if (!takes(bytes) || !announces_this_thread() || storage.device() != device()) return false;
  if (!adopts_ || GpuGraphs::instance().uses(storage)) return false;
  const c10::DeviceGuard on_device(device());
  Session& session = *session_.load();
  if (captured_here()) return false;
  c10::impl::VirtualGuardImpl(c10::kCUDA).synchronizeDevice(device().index());  // any stream may use it yet
  if (session.gpu()->is_table(bytes)) {
    const auto options = at::TensorOptions().dtype(at::kByte).device(device());
    const std::int64_t size[] = {static_cast<std::int64_t>(bytes)};
    c10::DataPtr table = allocate_table(session, bytes);
    at::from_blob(table.get(), size, options).copy_(at::from_blob(storage.data_ptr().get(), size, options));
    storage.set_data_ptr_noswap(std::move(table));
    return true;
  }
  const auto memory = session.allocate({.bytes = {bytes},
                                        .name = name,
                                        .kind = kind,
                                        .persistent = true,
                                        .copied_from = reinterpret_cast<DeviceAddress>(storage.data_ptr().get())});
  settle();
  if (!memory) throw Failure(memory.error());
  storage.set_data_ptr_noswap(enter(session, *memory, bytes));
  seen(storage);
  return true;
}

c10::DataPtr GpuStorages::allocate_table(Session& session, std::size_t bytes) {
  auto table = session.gpu()->allocate_table(bytes);
  if (!table) TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory: ", table.error().message);
  auto* const at = reinterpret_cast<void*>(table->address);
  return {at, new GpuTable(std::move(*table)), &free_table, device()};
}

void GpuStorages::free_table(void* context) {
  GpuGraphs::instance().forget(context);
  delete static_cast<GpuTable*>(context);
}

DeviceAddress GpuStorages::table_of(const c10::StorageImpl& storage) noexcept {
  const c10::DataPtr& memory = storage.data_ptr();
  return memory.get_deleter() == &free_table ? static_cast<const GpuTable*>(memory.get_context())->address : 0;
}

std::shared_ptr<void> GpuStorages::shared_table_of(const c10::StorageImpl& storage) {
  return table_of(storage) == 0 ? nullptr : static_cast<const GpuTable*>(storage.data_ptr().get_context())->memory;
}

void GpuStorages::looked_up(const GpuLookup& lookup) {
  if (captured_here()) return;  // the numbers are there when it is replayed
  if (Session* const session = session_.load()) session->gpu()->looked_up(lookup, current_stream());
}

void GpuStorages::note_births(std::vector<Noted>* births) noexcept { noted_here = births; }

void GpuStorages::redirect_births(std::vector<Redirected>* births) noexcept {
  if (births != nullptr) instance()->prepare_workspaces(true);
  if (births == nullptr) instance()->op_has_ended();
  redirected_here = births;
  born_here.clear();
}

void GpuStorages::prepare_workspaces(bool lt) noexcept {
  void* const stream = current_stream();
  for (const Prepared& each : prepared_here)
    if (each.stream == stream && (each.lt || !lt)) return;
  if (!on_its_device()) return;
  try {
    const BesideTheBudget native;
    cuda_->make_workspaces(lt);
  } catch (const c10::Error&) {  // the product that needs one says it
  }
  prepared_here.push_back({stream, lt});
}

void GpuStorages::op_has_ended() {
  if (unseen_here.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(unseen_here, [&](const void* name) {
      const auto found = handles_.find(name);
      return found == handles_.end() || found->second->seen != nullptr;
    });
  }
  const std::vector<const void*> unseen = std::exchange(unseen_here, {});
  if (unseen.empty()) return;
  cuda_->exchange_workspaces([&](const c10::DataPtr& memory) {
    return memory.get_deleter() == &free &&
           std::find(unseen.begin(), unseen.end(), static_cast<const Handle*>(memory.get_context())->name) !=
               unseen.end();
  });
}

// Allocations of a running recipe. Nothing settles here: the session may hold the lock under which recipes run.
c10::DataPtr GpuStorages::allocate_scratch(Session& session, std::size_t bytes) {
  const std::uint32_t nth = born_here[bytes]++;
  for (Redirected& birth : *redirected_here) {
    if (birth.bytes != bytes || birth.nth != nth) continue;
    birth.made = true;
    auto* const at = reinterpret_cast<void*>(session.gpu()->address(birth.to));
    return {at, &birth, &leave_alone, device()};
  }
  const auto name = session.allocate({.bytes = {bytes}, .scratch = true});
  if (!name) TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory: ", name.error().message);
  unseen_here.push_back(*name);
  return enter(session, *name, bytes);
}

void GpuStorages::free(void* context) {
  auto* const handle = static_cast<Handle*>(context);
  GpuStorages& self = *instance();
  {
    const std::lock_guard lock(self.mutex_);
    handle->outlived = handle->pools > 0;
    if (handle->outlived) return;
    self.handles_.erase(handle->name);
  }
  Session::release(static_cast<std::byte*>(const_cast<void*>(handle->name)));
  GpuGraphs::instance().forget(handle);
  delete handle;
  // A death may have others recomputed, and so moved. A reference of ours would let autograd add out of place.
  if (redirected_here == nullptr) self.settle();
}

// The storage that an operator was last seen with has the memory still: it may have given it to another one. One that
// has no strong reference left is being destroyed, or has given its memory away before.
bool GpuStorages::may_move(const void* name) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(name);
  if (found == handles_.end()) return true;  // on its way to be released
  Handle& handle = *found->second;
  if (handle.kept || handle.pools > 0) return false;
  auto storage = handle.storage ? handle.storage->lock() : c10::intrusive_ptr<c10::StorageImpl>();
  const bool has = storage && storage->data_ptr().get_context() == &handle;
  if (storage) kept_.push_back(std::move(storage));  // its last reference may be this one
  if (!has) handle.seen = nullptr;
  return has;
}

void GpuStorages::moved(const void* name, DeviceAddress address) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(name);
  if (found == handles_.end() || !found->second->storage) return;
  auto storage = found->second->storage->lock();
  if (!storage) return;
  c10::DataPtr old =  // not set_data_ptr(), which may take the exchange for a write (gpu_beside.h)
      std::exchange(storage->_mutable_data_ptr_no_checks(), pointer_to(address, found->second));
  static_cast<void>(old.release_context());
  kept_.push_back(std::move(storage));  // its last reference may be this one, and its end calls the session
}

// By kernels of libtorch's, piece by piece: their result has a byte for each eight that are compared.
std::optional<bool> GpuStorages::same_bytes(DeviceAddress one, DeviceAddress other, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t piece = 64 << 20;
  try {
    const BesideTheBudget native;
    const at::DisableRecordFunctionGuard unheard;
    const at::NoGradGuard no_gradients;
    const c10::DeviceGuard on_device(device());
    const bool in_words = one % 8 == 0 && other % 8 == 0 && bytes % 8 == 0;
    const auto options = at::TensorOptions().dtype(in_words ? at::kLong : at::kByte).device(device());
    at::Tensor same = at::ones({}, at::TensorOptions().dtype(at::kBool).device(device()));
    for (std::uint64_t begin = 0; begin < bytes; begin += piece) {
      const std::uint64_t part = std::min(piece, bytes - begin);
      const auto words_from = [&](DeviceAddress first) {
        return at::from_blob(reinterpret_cast<void*>(first + begin),
                             {static_cast<std::int64_t>(part / (in_words ? 8 : 1))}, options);
      };
      same.logical_and_(at::eq(words_from(one), words_from(other)).all());
    }
    return same.item<bool>();
  } catch (const std::exception&) {  // no memory for the result
    return std::nullopt;
  }
}

void GpuStorages::settle() {
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> kept;
  const std::lock_guard lock(mutex_);
  kept.swap(kept_);
  // They are released after the lock: `kept` was made before it.
}

const void* GpuStorages::seen(c10::StorageImpl& storage) {
  const Handle* handle = nullptr;
  {
    const std::lock_guard lock(mutex_);  // moved() exchanges the pointer under it
    const c10::DataPtr& memory = storage.data_ptr();
    if (memory.get_deleter() != &free) return nullptr;
    auto& seen_now = *static_cast<Handle*>(memory.get_context());
    handle = &seen_now;
    if (seen_now.seen == &storage) return seen_now.name;
    seen_now.seen = &storage;
    seen_now.storage.emplace(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage));
  }
  handle->memory->allow_moves(handle->name);
  return handle->name;
}

bool GpuStorages::was_seen(const c10::StorageImpl& storage) const noexcept {
  const c10::DataPtr& memory = storage.data_ptr();
  if (memory.get_deleter() != &free) return false;
  const std::lock_guard lock(mutex_);
  return static_cast<const Handle*>(memory.get_context())->seen == &storage;
}

bool GpuStorages::record_stream(const c10::DataPtr& memory, void* stream) {
  if (memory.get_deleter() != &free) return false;
  if (captured_here()) return true;  // an operator of the capture has it, so that it stays
  const auto& handle = *static_cast<const Handle*>(memory.get_context());
  handle.memory->used_on(handle.name, stream);
  return true;
}

// Names are taken first: the session's lock comes before ours.
std::optional<CudaHooks::Held> GpuStorages::held(bool with_blocks) {
  Session* const session = session_.load();
  if (session == nullptr) return std::nullopt;
  const GpuMemory& memory = *session->gpu();
  Held held{.memory = memory.memory(), .tables = memory.tables(), .blocks = {}, .table_parts = {}};
  if (!with_blocks) return held;
  held.table_parts = memory.table_parts();
  std::vector<std::pair<const void*, std::size_t>> names;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, handle] : handles_)
      if (handle->memory == &memory) names.emplace_back(name, handle->bytes);
  }
  for (const auto& [name, bytes] : names) {
    if (const DeviceAddress address = memory.address(name); address != 0) held.blocks.push_back({address, bytes});
  }
  std::sort(held.blocks.begin(), held.blocks.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  return held;
}

// --- the way home ----------------------------------------------------------------------------------------------------

void GpuStorages::bring_all_home(Session& ending, const std::function<void(std::string_view)>& say) {
  cuda_->exchange_workspaces([](const c10::DataPtr& memory) { return memory.get_deleter() == &free; });
  cuda_->let_workspaces_go();
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> living;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, handle] : handles_) {
      auto storage = handle->storage ? handle->storage->lock() : c10::intrusive_ptr<c10::StorageImpl>();
      if (storage && handle->memory == ending.gpu()) living.push_back(std::move(storage));
    }
  }
  Bytes left, exported, captured;
  for (auto& storage : living) {
    const c10::DeviceGuard on_device(storage->device());
    const auto home = [&] {
      try {
        return move_home(ending, *storage, native(storage->nbytes(), storage.get())), true;
      } catch (const c10::Error&) {
        return false;
      }
    };
    if (GpuGraphs::instance().uses(*storage)) {
      captured += Bytes{storage->nbytes()};
    } else if (is_exported(*storage)) {
      exported += Bytes{storage->nbytes()};
    } else if (!home() && !home()) {  // a call of the driver may fail once
      left += Bytes{storage->nbytes()};
    }
  }
  if (left.value > 0)
    say("the guard ends with " + readable(left) +
        " of tensors for which GPU memory has no room without it; they cannot be used any more: end the tensors first, "
        "or call bring_home() and handle its error");
  if (captured.value > 0)
    say("the guard ends with " + readable(captured) +
        " of tensors that a CUDA graph uses; they stay, and so does all of the guard's GPU memory as long as they "
        "live: "
        "drop the graph before the guard ends");
  if (exported.value > 0)
    say("the guard ends with " + readable(exported) +
        " of tensors that another library has, too; they stay, and so does all of the guard's GPU memory as long as "
        "they live: drop what that library has before the guard ends");
  settle();
}

// A dropped tensor is recomputed, which needs a place. Any other is copied from wherever it lies: it may be larger than
// the budget.
void move_home(Session& session, c10::StorageImpl& storage, c10::DataPtr home) {
  {
    const ResidentScope resident = session.resident(GpuStorages::name_of(storage));
    GpuStorages::opened()->settle();
    copy_home(*session.gpu(), storage, home);
  }
  storage.set_data_ptr_noswap(std::move(home));
}

// The host waits: a stream that reads the tensor may be behind all that wrote it, and is not behind this copy.
void copy_home(GpuMemory& memory, c10::StorageImpl& storage, const c10::DataPtr& home) {
  const c10::DataPtr& to = GpuStorages::opened()->libtorchs(home);
  const auto copied = memory.copy_to(GpuStorages::name_of(storage), reinterpret_cast<DeviceAddress>(to.get()));
  TORCH_CHECK_WITH(OutOfMemoryError, copied, "CUDA out of memory: ", copied.error().message);
  const c10::impl::VirtualGuardImpl cuda(c10::kCUDA);
  cuda.synchronizeStream(cuda.getStream(storage.device()));
}

}  // namespace vedette::adapter
