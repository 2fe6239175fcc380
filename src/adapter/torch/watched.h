// The storages a guard watches: parameters and buffers of modules, and the state of optimizers. Watching adopts a
// storage: its bytes move into the session's arena and the storage points to them, so that every view follows. And it
// gives operators that use a parameter the name of its layer; gradients and the state of optimizers get the names of
// their parameters.
//
// Storages are held weakly: a tensor that the program drops is gone. Modules and optimizers are borrowed: all that
// bring_home() walks must live. Thread rule: the training thread, between ops.
#pragma once
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "adapter/torch/layer_tracker.h"
#include "adapter/torch/left_out.h"
#include "vedette/session.h"

namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace vedette::adapter {

class Watched {
 public:
  using Say = std::function<void(std::string_view)>;
  Watched(Session& session, LayerTracker& layers, Say say) : session_(session), layers_(layers), say_(std::move(say)) {}

  using Owner = const void*;  // a guard
  // Tensors that are watched from now on are this one's.
  void belongs_to(Owner owner) noexcept { owner_ = owner; }
  // Its modules and optimizers may die.
  void forget(Owner owner);

  // Throws Failure when the arena has no room. Tensors that were adopted until then stay adopted.
  void watch(torch::nn::Module& module, const std::string& name);
  void watch(torch::optim::Optimizer& optimizer);
  // A tensor of a list: tensors of one list that share a part of a mapped file share it afterwards, too.
  void watch(const at::Tensor& tensor, const std::string& name, TensorKind kind);
  // Says what stayed where it is. Addresses may be another file's by the next list.
  void end_of_a_list();

  // Moves tensors that it watches, later ones of its modules and optimizers, and gradients, into ordinary memory. Those
  // that are exported stay, with a sentence. Throws Failure of Cause::out_of_memory, and changes nothing, when less
  // than that is available.
  void bring_home(Owner owner);

  // "conv1.weight.exp_avg", then "conv1.weight.exp_avg_sq": of tensors like this parameter that an optimizer makes in
  // its first step. Empty: of no watched parameter.
  std::string name_new_state(const at::Tensor& parameter);
  // Gradients that live now are labelled "conv1.weight.grad". Never throws.
  void name_gradients() noexcept;

  // `work` runs while nothing here has a weak reference to these tensors: torch.utils.swap_tensors refuses others.
  void without_weak_references(std::span<c10::TensorImpl* const> tensors, const std::function<void()>& work);

  bool none() const noexcept { return entries_.empty(); }  // nothing has been watched

  std::optional<LayerIndex> layer_of(const c10::StorageImpl* storage) const {
    const auto found = entries_.find(storage);
    return found == entries_.end() ? std::nullopt : found->second.layer;
  }

  std::string_view name_of(const c10::StorageImpl* storage) const {  // empty: it is not watched
    const auto found = entries_.find(storage);
    return found == entries_.end() ? std::string_view() : std::string_view(found->second.name);
  }

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::string name;
    std::optional<LayerIndex> layer;
    WeakTensor tensor;
    Owner owner;
  };
  struct States {  // of a parameter, in the order in which its optimizer makes them
    std::vector<const char*> names;
    std::size_t made = 0;
  };
  struct WatchedModule {
    torch::nn::Module* module;
    std::string name;
    Owner owner;
  };
  struct WatchedOptimizer {
    torch::optim::Optimizer* optimizer;
    Owner owner;
  };

  // All tensors of a kind, given to `each(tensor, name, kind, layer)`.
  template <class Each>
  void walk(torch::nn::Module& module, const std::string& name, const Each& each);
  template <class Each>
  void walk(torch::optim::Optimizer& optimizer, const Each& each);
  void remember(const at::Tensor& tensor, const std::string& name, std::optional<LayerIndex> layer);
  void remember_what_came_later();
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> away(Owner owner);
  void forget_the_dead();
  void leave_mapped_file(const at::Tensor& tensor);
  void move_in(const at::Tensor& tensor, const std::string& name, TensorKind kind);
  void move_in_part(const at::Tensor& tensor, const std::string& name, TensorKind kind);

  Session& session_;
  LayerTracker& layers_;
  Say say_;
  std::unordered_map<const c10::StorageImpl*, Entry> entries_;
  std::size_t most_entries_ = 1024;  // then those whose tensors are gone go, too
  // only of storages in entries_, which keeps their addresses from being used again
  std::unordered_map<const c10::StorageImpl*, States> states_;
  std::map<std::pair<const void*, std::size_t>, c10::Storage> left_files_;  // while a module is walked
  LeftOut left_out_;
  std::vector<WatchedModule> modules_;
  std::vector<WatchedOptimizer> optimizers_;
  Owner owner_ = nullptr;
};

}  // namespace vedette::adapter
