// Adoption of storages, and their way home: see watched.h.
#include "adapter/torch/watched.h"

#include <ATen/MapAllocator.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/COW.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstring>
#include <list>
#include <utility>

#include "adapter/torch/allocator.h"
#include "adapter/torch/exported.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/machine_memory.h"
#include "adapter/torch/session_memory.h"
#include "adapter/torch/storages.h"
#include "base/readable.h"

namespace vedette::adapter {
namespace {

// bring_home() leaves this much of the machine's memory to everybody else.
constexpr Bytes left_to_others = {std::uint64_t{64} << 20};

c10::StorageImpl* storage_of(const at::Tensor& tensor) {  // nullptr: not memory that moves
  if (!tensor.defined() || tensor.layout() != c10::kStrided || !tensor.has_storage()) return nullptr;
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const bool has_memory = storage->data_ptr().get() != nullptr || session_memory(*storage) != nullptr;
  return storage->nbytes() == 0 || !has_memory ? nullptr : storage;
}

// A storage that was freed (FSDP's) has none.
bool has_memory_out_of_sight(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  return tensor.numel() > 0 && !tensor.is_meta() &&
         (tensor.layout() != c10::kStrided || !storage || storage.nbytes() > 0);
}

template <class State, class Each>
bool each_tensor(torch::optim::OptimizerParamState& state, const Each& each) {
  auto* const known = dynamic_cast<State*>(&state);
  if (known == nullptr) return false;
  if constexpr (requires { known->exp_avg(); }) {
    each(known->exp_avg(), "exp_avg");
    each(known->exp_avg_sq(), "exp_avg_sq");
    each(known->max_exp_avg_sq(), "max_exp_avg_sq");
  }
  if constexpr (requires { known->momentum_buffer(); }) each(known->momentum_buffer(), "momentum_buffer");
  if constexpr (requires { known->square_avg(); }) each(known->square_avg(), "square_avg");
  if constexpr (requires { known->grad_avg(); }) each(known->grad_avg(), "grad_avg");
  if constexpr (requires { known->sum(); }) each(known->sum(), "sum");
  if constexpr (requires { known->old_dirs(); }) {
    each(known->d(), "d");
    each(known->H_diag(), "H_diag");
    each(known->prev_flat_grad(), "prev_flat_grad");
    for (const at::Tensor& each_of_history : known->old_dirs()) each(each_of_history, "old_dirs");
    for (const at::Tensor& each_of_history : known->old_stps()) each(each_of_history, "old_stps");
  }
  return true;
}

// State that libtorch's optimizers make with zeros_like(parameter) when they first meet one, in this order
// (torch/csrc/api/src/optim, 2.11).
std::vector<const char*> states_of(const torch::optim::OptimizerOptions& options) {
  const auto adam = [](const auto& o) {
    return o.amsgrad() ? std::vector{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"} : std::vector{"exp_avg", "exp_avg_sq"};
  };
  if (const auto* o = dynamic_cast<const torch::optim::AdamOptions*>(&options)) return adam(*o);
  if (const auto* o = dynamic_cast<const torch::optim::AdamWOptions*>(&options)) return adam(*o);
  std::vector<const char*> names;
  if (const auto* o = dynamic_cast<const torch::optim::RMSpropOptions*>(&options)) {
    names.push_back("square_avg");
    if (o->momentum() > 0) names.push_back("momentum_buffer");
    if (o->centered()) names.push_back("grad_avg");
  }
  return names;
}

// False: an optimizer of another kind, whose state stays where it is.
template <class Each>
bool each_state_tensor(torch::optim::OptimizerParamState& state, const Each& each) {
  return each_tensor<torch::optim::AdamParamState>(state, each) ||
         each_tensor<torch::optim::AdamWParamState>(state, each) ||
         each_tensor<torch::optim::SGDParamState>(state, each) ||
         each_tensor<torch::optim::RMSpropParamState>(state, each) ||
         each_tensor<torch::optim::AdagradParamState>(state, each) ||
         each_tensor<torch::optim::LBFGSParamState>(state, each);
}

}  // namespace

// "layer1.0.conv1.weight" belongs to layer "layer1.0.conv1"; a parameter of the root module itself, to the root's name.
template <class Each>
void Watched::walk(torch::nn::Module& module, const std::string& name, const Each& each) {
  const std::string prefix = name.empty() ? "" : name + ".";
  const auto layer = [&](const std::string& tensor) {
    const auto dot = tensor.rfind('.');
    if (dot != tensor.npos) return layers_.intern(prefix + tensor.substr(0, dot));
    return layers_.intern(name.empty() ? module.name() : name);
  };
  for (const auto& parameter : module.named_parameters()) {
    each(parameter.value(), prefix + parameter.key(), TensorKind::weight, std::optional(layer(parameter.key())));
    if (parameter.value().grad().defined())
      each(parameter.value().grad(), prefix + parameter.key() + ".grad", TensorKind::gradient,
           std::optional<LayerIndex>());
  }
  for (const auto& buffer : module.named_buffers()) {
    each(buffer.value(), prefix + buffer.key(), TensorKind::weight, std::optional(layer(buffer.key())));
  }
}

template <class Each>
void Watched::walk(torch::optim::Optimizer& optimizer, const Each& each) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      const auto watched = entries_.find(storage_of(parameter));
      const std::string name = watched == entries_.end() ? "parameter" : watched->second.name;
      const bool known = each_state_tensor(*found->second, [&](const at::Tensor& tensor, const char* what) {
        each(tensor, name + "." + what, TensorKind::optimizer, std::optional<LayerIndex>());
      });
      if (!known)
        say_("The optimizer is of a kind whose state cannot be watched; what it allocates from now on is managed.");
    }
  }
}

void Watched::remember(const at::Tensor& tensor, const std::string& name, std::optional<LayerIndex> layer) {
  each_part(tensor, [&](const at::Tensor& part) {
    if (storage_of(part) == nullptr) return;
    if (entries_.size() >= most_entries_) forget_the_dead();
    auto weak = part.storage().getWeakStorageImpl();
    entries_.insert_or_assign(storage_of(part),
                              Entry{std::move(weak), name, layer, WeakTensor(part.getIntrusivePtr()), owner_});
  });
}

void Watched::without_weak_references(std::span<c10::TensorImpl* const> tensors, const std::function<void()>& work) {
  struct LetGo {
    Entry& entry;
    c10::TensorImpl* tensor;
    ~LetGo() {
      entry.tensor = WeakTensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(tensor));
    }
  };
  std::list<LetGo> let_go;
  for (auto& [storage, entry] : entries_)
    for (c10::TensorImpl* const tensor : tensors) {
      if (entry.tensor._unsafe_get_target() != tensor) continue;
      entry.tensor.reset();
      let_go.emplace_back(entry, tensor);
    }
  work();
}

void Watched::forget_the_dead() {
  std::erase_if(entries_,
                [](const auto& each) { return each.second.storage.expired() && each.second.tensor.expired(); });
  std::erase_if(states_, [this](const auto& each) { return !entries_.contains(each.first); });
  most_entries_ = std::max(most_entries_, 2 * entries_.size());
}

std::string Watched::name_new_state(const at::Tensor& parameter) {
  const c10::StorageImpl* const storage = storage_of(parameter);
  const auto entry = entries_.find(storage);
  if (storage == nullptr || entry == entries_.end()) return {};
  const auto states = states_.find(storage);
  const bool known = states != states_.end() && states->second.made < states->second.names.size();
  return entry->second.name + "." + (known ? states->second.names[states->second.made++] : "state");
}

void Watched::name_gradients() noexcept {
  try {
    for (const auto& [storage, entry] : entries_) {
      const auto alive = entry.tensor.lock();
      if (!alive.defined()) continue;
      const at::Tensor tensor(alive);
      if (!tensor.is_leaf() || !tensor.requires_grad()) continue;
      if (const c10::StorageImpl* const gradient = storage_of(tensor.grad()))
        session_.label(session_memory(*gradient), entry.name + ".grad", TensorKind::gradient);
    }
  } catch (...) {  // out of memory: names are missing, no more
  }
}

// A file that was mapped for this process alone (safetensors, torch.load with mmap): pages that are written become
// memory of this process. A storage is a whole file there, and its tensors are parts of it. So each gets a storage of
// its own; those that share a part still do.
void Watched::leave_mapped_file(const at::Tensor& tensor) {
  const c10::StorageImpl* const storage = storage_of(tensor);
  const at::MapAllocator* const file =
      storage == nullptr ? nullptr : at::MapAllocator::fromDataPtr(storage->data_ptr());
  if (file == nullptr || (file->flags() & at::ALLOCATOR_MAPPED_SHARED) != 0 || is_exported(*storage)) return;
  if (!tensor.is_non_overlapping_and_dense()) return;
  const std::pair<const void*, std::size_t> part{tensor.const_data_ptr(), tensor.nbytes()};
  c10::Storage& own = left_files_[part];
  if (!own) {
    own = c10::Storage(c10::Storage::use_byte_size_t{}, tensor.nbytes(), c10::GetAllocator(c10::kCPU), true);
    std::memcpy(own.mutable_data(), part.first, part.second);
  }
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const bool may_change = impl.allow_tensor_metadata_change();
  impl.set_allow_tensor_metadata_change(true);
  impl.set_storage_keep_dtype(own);
  impl.set_storage_offset(0);
  impl.set_allow_tensor_metadata_change(may_change);
}

void Watched::end_of_a_list() {
  left_files_.clear();
  left_out_.say(say_);
}

void Watched::move_in(const at::Tensor& tensor, const std::string& name, TensorKind kind) {
  each_part(tensor, [&](const at::Tensor& part) {
    if (storage_of(part) != nullptr) {
      move_in_part(part, name, kind);
    } else if (part.device().is_cuda() == (session_.gpu() != nullptr) && has_memory_out_of_sight(part)) {
      left_out_.add(LeftOut::Why::other_kind, name, {static_cast<std::uint64_t>(part.numel()) * part.itemsize()});
    }
  });
}

void Watched::move_in_part(const at::Tensor& tensor, const std::string& name, TensorKind kind) {
  if (session_.gpu() == nullptr) leave_mapped_file(tensor);
  c10::StorageImpl* const storage = storage_of(tensor);
  if (storage->device().is_cuda() != (session_.gpu() != nullptr)) return;
  if (storage->device().is_cuda() && storage->device() != GpuStorages::device()) return;  // another GPU's
  const void* const known = session_memory(*storage);
  if (known != nullptr && Session::owns(known)) return session_.label(known, name, kind);
  if (is_exported(*storage)) return left_out_.add(LeftOut::Why::exported, name, {storage->nbytes()});
  if (storage->allocator() == nullptr && !is_of_an_allocator(storage->data_ptr()))
    // from_blob, a mapped file, shared memory: other code knows the address
    return left_out_.add(LeftOut::Why::foreign, name, {storage->nbytes()});
  if (c10::impl::cow::is_cow_data_ptr(storage->data_ptr()))
    storage->mutable_data();  // a lazy clone gets bytes of its own first
  // Small storages stay with libtorch's own allocator, as when they are made under the guard.
  if (storage->device().is_cuda()) return static_cast<void>(GpuStorages::opened()->adopt(*storage, name, kind));
  Result<std::byte*> memory =
      session_.allocate({.bytes = {storage->nbytes()}, .name = name, .kind = kind, .persistent = true});
  if (!memory) throw Failure(memory.error());
  std::memcpy(*memory, storage->data_ptr().get(), storage->nbytes());
  storage->set_data_ptr_noswap({*memory, *memory, &release_memory, c10::Device(c10::DeviceType::CPU)});
}

void Watched::watch(torch::nn::Module& module, const std::string& name) {
  walk(module, name, [this](const at::Tensor& tensor, const std::string& tensor_name, TensorKind kind, auto layer) {
    move_in(tensor, tensor_name, kind);
    remember(tensor, tensor_name, layer);
  });
  end_of_a_list();
  modules_.push_back({&module, name, owner_});
}

void Watched::watch(torch::optim::Optimizer& optimizer) {
  walk(optimizer, [this](const at::Tensor& tensor, const std::string& name, TensorKind kind, auto layer) {
    move_in(tensor, name, kind);
    remember(tensor, name, layer);
  });
  for (const auto& group : optimizer.param_groups()) {
    if (!group.has_options()) continue;
    for (const at::Tensor& parameter : group.params())
      if (entries_.contains(storage_of(parameter)))
        states_[storage_of(parameter)] = States{states_of(group.options()), 0};
  }
  end_of_a_list();
  optimizers_.push_back({&optimizer, owner_});
}

void Watched::watch(const at::Tensor& tensor, const std::string& name, TensorKind kind) {
  move_in(tensor, name, kind);
  const bool has_layer = kind == TensorKind::weight;
  remember(tensor, name, has_layer ? std::optional(layers_.intern(name.substr(0, name.rfind('.')))) : std::nullopt);
}

void Watched::remember_what_came_later() {
  struct Gradient {
    at::Tensor tensor;
    std::string name;
    Owner owner;
  };
  std::vector<Gradient> gradients;
  for (const auto& [storage, entry] : entries_) {
    const auto alive = entry.tensor.lock();
    if (!alive.defined()) continue;
    const at::Tensor tensor(alive);
    if (tensor.is_leaf() && tensor.grad().defined())
      gradients.push_back({tensor.grad(), entry.name + ".grad", entry.owner});
  }
  for (const Gradient& each : gradients) {
    belongs_to(each.owner);
    remember(each.tensor, each.name, std::nullopt);
  }
  const auto note = [this](const at::Tensor& tensor, const std::string& name, TensorKind, auto layer) {
    remember(tensor, name, layer);
    if (tensor.defined() && tensor.is_leaf() && tensor.grad().defined())
      remember(tensor.grad(), name + ".grad", std::nullopt);
  };
  for (const WatchedModule& watched : modules_) {
    belongs_to(watched.owner);
    walk(*watched.module, watched.name, note);
  }
  for (const WatchedOptimizer& watched : optimizers_) {
    belongs_to(watched.owner);
    walk(*watched.optimizer, note);
  }
}

void Watched::forget(Owner owner) {
  std::erase_if(modules_, [owner](const WatchedModule& each) { return each.owner == owner; });
  std::erase_if(optimizers_, [owner](const WatchedOptimizer& each) { return each.owner == owner; });
}

// Storages in memory of the session, but for those that other libraries have, too.
std::vector<c10::intrusive_ptr<c10::StorageImpl>> Watched::away(Owner owner) {
  remember_what_came_later();
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> away;
  std::vector<const c10::StorageImpl*> addresses;
  for (const auto& [address, entry] : entries_) {
    auto storage = entry.storage.lock();
    const void* const memory = storage ? session_memory(*storage) : nullptr;
    if (entry.owner != owner || memory == nullptr || !Session::owns(memory)) continue;
    addresses.push_back(address);
    away.push_back(std::move(storage));
  }
  const std::vector<bool> exported = exported_among(addresses);
  std::size_t number = 0;
  std::erase_if(away, [&](const auto& storage) {
    if (!exported[number++]) return false;
    left_out_.add(LeftOut::Why::exported_from_arena, name_of(storage.get()), {storage->nbytes()});
    return true;
  });
  return away;
}

void Watched::bring_home(Owner owner) {
  // 1. list 2. is there room 3. take all of it 4. move
  const auto away = this->away(owner);
  Bytes wanted;
  for (const auto& storage : away) wanted += Bytes{storage->nbytes()};
  const auto refuse = [&](const std::string& why) {
    throw Failure({Cause::out_of_memory,
                   "The model does not fit into ordinary memory: it takes " + readable_exactly(wanted) + " and " + why +
                       ". It stays under the guard.",
                   0});
  };
  const bool on_gpu = session_.gpu() != nullptr;
  const Bytes available = machine_memory().available;
  if (!on_gpu && wanted + left_to_others > available) refuse(readable_exactly(available) + " are available");
  std::vector<c10::DataPtr> home;
  try {
    for (const auto& storage : away)
      home.push_back(on_gpu ? GpuStorages::opened()->native(storage->nbytes(), storage.get())
                            : ordinary_memory(storage->nbytes()));
  } catch (const c10::Error& error) {
    refuse(std::string("the allocation failed: ") + error.what_without_backtrace());
  }
  for (std::size_t i = 0; i < away.size(); ++i) {
    if (on_gpu) {
      move_home(session_, *away[i], std::move(home[i]));
      continue;
    }
    std::memcpy(home[i].get(), away[i]->data_ptr().get(), away[i]->nbytes());
    away[i]->set_data_ptr_noswap(std::move(home[i]));
  }
  left_out_.say(say_);
}

}  // namespace vedette::adapter
