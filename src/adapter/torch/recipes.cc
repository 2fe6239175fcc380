// Operators on addresses: see recipes.h.
#include "adapter/torch/recipes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "adapter/torch/exported.h"
#include "adapter/torch/gpu_graphs.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/math_modes.h"
#include "adapter/torch/session_memory.h"
#include "adapter/torch/versions.h"
#include "base/mixed.h"

namespace vedette::adapter {
namespace {

constexpr std::size_t most_copied = std::size_t{64} << 10;  // of a tensor that cannot be dropped

// An operator of ours is the program's kernel alone: no autograd, and no mode of the program sees it.
constexpr c10::DispatchKeySet above_kernels =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset | c10::python_ks;

struct Nothing {};  // an undefined tensor

struct Where {  // operands lie
  Session& session;
  const GpuStorages* gpu = nullptr;  // nullptr: on the CPU
};

struct TensorOf {                // as an argument
  std::byte* address = nullptr;  // of its storage, as the session knows it
  std::size_t within = 0;        // bytes from there to the tensor's first element
  bool on_gpu = false;
  std::vector<std::int64_t> sizes, strides;
  c10::ScalarType type = c10::ScalarType::Float;
  bool wrapped_number = false;
  std::vector<std::uint64_t> copy;  // not empty: its bytes, instead of the address
  at::Tensor copy_on_gpu;           // defined: the same
  bool copied() const { return !copy.empty() || copy_on_gpu.defined(); }
};

using TensorArgument = std::variant<Nothing, TensorOf>;

struct Argument {
  std::vector<TensorArgument> tensors;
  enum class Kind : std::uint8_t { plain, tensor, tensor_list, optional_list, generator } kind = Kind::plain;
  c10::IValue plain;
  c10::TypePtr element = {};  // of optional_list
};

// Bytes from a tensor's first to one past its last.
std::size_t extent(const at::Tensor& tensor) {
  std::size_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) < 0) return ~std::size_t{0};
    last += static_cast<std::size_t>(tensor.size(d) - 1) * static_cast<std::size_t>(tensor.stride(d));
  }
  return (last + 1) * tensor.itemsize();
}

bool plain_tensor(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && tensor.has_storage() && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor._is_zerotensor() && !tensor.is_quantized() && !has_names(tensor) && !tensor.is_nested() &&
         !at::isTensorSubclassLike(tensor) &&
         (tensor.unsafeGetTensorImpl()->autograd_meta() == nullptr || !tensor._fw_grad(/*level=*/0).defined());
}

at::Tensor over(void* data, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType type, bool on_gpu) {
  const c10::Device device = on_gpu ? GpuStorages::device() : c10::Device(c10::kCPU);
  return at::for_blob(data, sizes)
      .strides(strides)
      .options(at::TensorOptions().dtype(type).device(device))
      .target_device(device)
      .make_tensor();
}

// By work of the stream on which the operator is queued next. Only of tensors too small to be the session's.
at::Tensor copied_on_gpu(void* data, std::size_t bytes) {
  const c10::impl::ExcludeDispatchKeyGuard below(above_kernels);
  const at::DisableRecordFunctionGuard unrecorded;
  const auto count = static_cast<std::int64_t>(bytes);
  return over(data, {count}, {1}, at::kByte, true).clone();
}

// nullopt: such a tensor is in no recipe.
std::optional<TensorArgument> describe(const at::Tensor& tensor, const Where& where, bool written) {
  if (!tensor.defined()) return TensorArgument(Nothing{});
  if (!plain_tensor(tensor) ||
      !(tensor.is_cpu() || (where.gpu != nullptr && tensor.is_cuda() && tensor.device() == GpuStorages::device())))
    return std::nullopt;
  TensorOf made;
  made.sizes = tensor.sizes().vec();
  made.strides = tensor.strides().vec();
  made.type = tensor.scalar_type();
  made.on_gpu = tensor.is_cuda();
  made.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (tensor.numel() == 0) return written ? std::nullopt : std::optional<TensorArgument>(std::move(made));
  const c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  if (is_exported(storage)) return std::nullopt;  // no op says when another library, or a replay, writes it
  if (made.on_gpu && GpuGraphs::instance().uses(storage)) return std::nullopt;
  made.within = static_cast<std::size_t>(tensor.storage_offset()) * tensor.itemsize();
  const void* const memory = session_memory(storage);
  made.address = static_cast<std::byte*>(const_cast<void*>(memory));
  if (memory != nullptr && where.session.may_be_dropped(memory)) return TensorArgument(std::move(made));
  const std::size_t bytes = extent(tensor);
  if (written || bytes > most_copied) return std::nullopt;
  void* const data = const_cast<void*>(tensor.const_data_ptr());
  if (made.on_gpu) {
    if (memory != nullptr || !where.gpu->leaves_to_libtorch(bytes)) return std::nullopt;
    made.copy_on_gpu = copied_on_gpu(data, bytes);
  } else {
    made.copy.resize((bytes + 7) / 8);
    std::memcpy(made.copy.data(), data, bytes);
  }
  return TensorArgument(std::move(made));
}

bool is_plain(const c10::IValue& value) {
  return value.isNone() || value.isInt() || value.isDouble() || value.isBool() || value.isString() ||
         value.isIntList() || value.isDoubleList() || value.isBoolList() || value.isDevice() || value.isComplexDouble();
}

std::uint64_t hash_of(std::uint64_t hash, const c10::IValue& value) {
  if (value.isInt()) return mixed(hash, static_cast<std::uint64_t>(value.toInt()));
  if (value.isBool()) return mixed(hash, value.toBool() ? 1 : 0);
  if (value.isIntList())
    for (const std::int64_t each : value.toIntList()) hash = mixed(hash, static_cast<std::uint64_t>(each));
  return mixed(hash, 77);
}

std::uint64_t hash_of(std::uint64_t hash, const TensorArgument& argument) {
  const auto* const tensor = std::get_if<TensorOf>(&argument);
  if (tensor == nullptr) return mixed(hash, 78);
  hash = mixed(hash, static_cast<std::uint64_t>(tensor->type));
  for (const auto* list : {&tensor->sizes, &tensor->strides})
    for (const std::int64_t each : *list) hash = mixed(hash, static_cast<std::uint64_t>(each));
  return hash;
}

}  // namespace

// --- one that can run ------------------------------------------------------------------------------------------------

class OperatorRecipe final : public Recipe {
 public:
  OperatorRecipe(c10::OperatorHandle op, const Where& where)
      : op_(std::move(op)),
        gpu_(where.gpu == nullptr ? nullptr : where.session.gpu()),
        modes_(gpu_ == nullptr ? c10::kCPU : c10::kCUDA) {
    for (const int value : modes_.values()) signature_ = mixed(signature_, static_cast<std::uint64_t>(value));
  }

  void add(Argument argument) {
    signature_ = mixed(signature_, static_cast<std::uint64_t>(argument.kind));
    if (argument.kind == Argument::Kind::plain) signature_ = hash_of(signature_, argument.plain);
    for (const TensorArgument& tensor : argument.tensors) signature_ = hash_of(signature_, tensor);
    arguments_.push_back(std::move(argument));
  }
  // `by_default`: the operator takes no generator.
  void draws_from(at::Generator generator, bool by_default) {
    generator_ = std::move(generator);
    by_default_ = by_default;
  }
  std::vector<Noted>& births() { return births_; }

  bool uses(const std::byte* first, Bytes bytes) const noexcept override {
    for (const Noted& birth : births_)
      if (birth.at == first) return true;
    for (const Argument& argument : arguments_)
      for (const TensorArgument& each : argument.tensors)
        if (const auto* const tensor = std::get_if<TensorOf>(&each);
            tensor != nullptr && !tensor->copied() && inside(tensor->address, first, bytes))
          return true;
    return false;
  }

  std::uint64_t signature() const noexcept override {
    return mixed(signature_, std::hash<std::string>{}(op_.schema().name() + "." + op_.schema().overload_name()));
  }

  bool run(std::span<const Place> places) noexcept override try {
    std::vector<Redirected> results;
    for (const Place& place : places)
      if (const auto birth = birth_at(place)) results.push_back(*birth);
    const MathModes::Scope as_then(modes_);
    const at::DisableRecordFunctionGuard unrecorded;
    const c10::impl::ExcludeDispatchKeyGuard below(above_kernels);
    const Redirecting redirecting(&results, gpu_ != nullptr);
    std::optional<DefaultGenerator> drawing;
    if (by_default_) drawing.emplace(*generator_);
    {
      torch::jit::Stack stack;
      for (const Argument& argument : arguments_) stack.push_back(value(argument, places));
      op_.callBoxed(stack);
    }
    return std::all_of(results.begin(), results.end(), [](const Redirected& each) { return each.made; });
  } catch (...) {
    return false;
  }

 private:
  struct Redirecting {
    Redirecting(std::vector<Redirected>* births, bool gpu)
        : redirect(gpu ? &GpuStorages::redirect_births : &redirect_births) {
      redirect(births);
    }
    ~Redirecting() { redirect(nullptr); }
    Redirecting(const Redirecting&) = delete;
    Redirecting& operator=(const Redirecting&) = delete;
    void (*const redirect)(std::vector<Redirected>*) noexcept;
  };

  // While it lives, the GPU's default generator has the state of another one.
  class DefaultGenerator {
   public:
    explicit DefaultGenerator(const at::Generator& as)
        : generator_(at::globalContext().defaultGenerator(as.device())), before_(exchange(as.get_state())) {}
    ~DefaultGenerator() { exchange(before_); }
    DefaultGenerator(const DefaultGenerator&) = delete;
    DefaultGenerator& operator=(const DefaultGenerator&) = delete;

   private:
    at::Tensor exchange(const at::Tensor& state) {
      const std::lock_guard<std::mutex> lock(generator_.mutex());
      at::Tensor before = generator_.get_state();
      generator_.set_state(state);
      return before;
    }
    at::Generator generator_;
    const at::Tensor before_;
  };

  static bool inside(const std::byte* address, const std::byte* first, Bytes bytes) {
    return address >= first && address < first + bytes.value;
  }

  // The last allocation there: those before were scratch that was freed again.
  std::optional<Redirected> birth_at(const Place& place) const {
    std::optional<Redirected> found;
    std::uint32_t nth = 0;
    for (const Noted& birth : births_) {
      if (birth.bytes != place.bytes.value) continue;
      if (birth.at == place.was) found = Redirected{.bytes = birth.bytes, .nth = nth, .to = place.now};
      ++nth;
    }
    return found;
  }

  void* data_of(const TensorOf& of, std::span<const Place> places) const {
    if (!of.copy.empty()) return const_cast<void*>(static_cast<const void*>(of.copy.data()));
    if (of.copy_on_gpu.defined()) return of.copy_on_gpu.data_ptr();
    if (of.address == nullptr) return nullptr;  // it has no elements
    const std::byte* at = of.address;
    for (const Place& place : places)
      if (inside(of.address, place.was, place.bytes)) at = place.now + (of.address - place.was);
    return of.on_gpu ? reinterpret_cast<void*>(gpu_->address(at) + of.within) : const_cast<std::byte*>(at) + of.within;
  }

  at::Tensor tensor(const TensorArgument& argument, std::span<const Place> places) const {
    const auto* const of = std::get_if<TensorOf>(&argument);
    if (of == nullptr) return {};
    at::Tensor made = over(data_of(*of, places), of->sizes, of->strides, of->type, of->on_gpu);
    if (of->wrapped_number) made.unsafeGetTensorImpl()->set_wrapped_number(true);
    return made;
  }

  c10::IValue value(const Argument& argument, std::span<const Place> places) const {
    switch (argument.kind) {
      case Argument::Kind::plain:
        return argument.plain;
      case Argument::Kind::generator:
        return generator_->clone();
      case Argument::Kind::tensor:
        return tensor(argument.tensors.front(), places);
      case Argument::Kind::tensor_list: {
        c10::List<at::Tensor> list;
        for (const TensorArgument& each : argument.tensors) list.push_back(tensor(each, places));
        return list;
      }
      case Argument::Kind::optional_list:
        break;
    }
    c10::impl::GenericList list(argument.element);
    for (const TensorArgument& each : argument.tensors) {
      const at::Tensor made = tensor(each, places);
      list.push_back(made.defined() ? c10::IValue(made) : c10::IValue());
    }
    return list;
  }

  const c10::OperatorHandle op_;
  GpuMemory* const gpu_;  // nullptr: on the CPU
  const MathModes modes_;
  std::vector<Argument> arguments_;
  std::vector<Noted> births_;
  std::optional<at::Generator> generator_;
  bool by_default_ = false;
  std::uint64_t signature_ = 1;
};

// --- which operators have one ----------------------------------------------------------------------------------------

struct Recipes::Known {
  std::optional<c10::OperatorHandle> op;  // nullopt: never
  std::optional<std::size_t> generator;   // the argument; an op that draws random numbers has one
  std::optional<std::size_t> training, dropout;
  std::vector<std::size_t> statistics;  // that it changes where it trains
  bool random = false;
};

namespace {

bool writes_a_list(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.type()->kind() == c10::TypeKind::ListType;
  });
}

}  // namespace

const Recipes::Known& Recipes::known(const at::RecordFunction& function, const Operator& op) {
  const auto found = known_.find(function.name());
  if (found != known_.end()) return found->second;
  Known made;
  const auto name = function.operator_name();
  const auto handle = name ? c10::Dispatcher::singleton().findSchema(*name) : std::nullopt;
  if (handle && !op.transparent) {
    const c10::FunctionSchema& schema = handle->schema();
    for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::Argument& argument = schema.arguments()[i];
      const std::string& called = argument.name();
      if (called == "generator") made.generator = i;
      if (called == "training" || called == "train") made.training = i;
      if (called == "dropout_p") made.dropout = i;
      if (argument.alias_info() == nullptr && called.rfind("running_", 0) == 0 && i < op.uses.size() &&
          (op.uses[i] & Operator::write) != 0)
        made.statistics.push_back(i);
    }
    made.random = handle->hasTag(at::Tag::nondeterministic_seeded);
    const bool never = schema.name().rfind("aten::", 0) != 0 || schema.name().rfind("aten::mkldnn_rnn_layer", 0) == 0 ||
                       writes_a_list(schema);
    if (!never) made.op = *handle;
  }
  return known_.emplace(function.name(), std::move(made)).first->second;
}

namespace {

std::optional<Argument> describe(const c10::IValue& value, const Where& where, bool written) {
  Argument argument;
  const auto add = [&](const at::Tensor& tensor) {
    auto made = describe(tensor, where, written);
    if (made) argument.tensors.push_back(std::move(*made));
    return made.has_value();
  };
  if (value.isTensor()) {
    argument.kind = Argument::Kind::tensor;
    if (!add(value.toTensor())) return std::nullopt;
  } else if (value.isTensorList()) {
    argument.kind = Argument::Kind::tensor_list;
    for (const at::Tensor& each : value.toTensorVector())
      if (!add(each)) return std::nullopt;
  } else if (is_plain(value)) {
    argument.plain = value.isPtrType() ? value.deepcopy() : value;
  } else if (value.isList()) {
    argument.kind = Argument::Kind::optional_list;
    argument.element = value.toList().elementType();
    for (const c10::IValue& each : value.toListRef())
      if (!(each.isTensor() || each.isNone()) || !add(each.isTensor() ? each.toTensor() : at::Tensor()))
        return std::nullopt;
  } else {
    return std::nullopt;
  }
  return argument;
}

at::Generator default_generator_now(bool gpu) {
  at::Generator generator =
      gpu ? at::globalContext().defaultGenerator(GpuStorages::device()) : at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.clone();
}

void note_births_of(std::vector<Noted>* births, bool gpu) {
  gpu ? GpuStorages::note_births(births) : note_births(births);
}

}  // namespace

Recipes::Recipes() = default;
Recipes::~Recipes() = default;
Recipes::Recipes(Recipes&&) noexcept = default;

std::unique_ptr<Recipe> Recipes::make(const at::RecordFunction& function, const Operator& op, Session& session,
                                      const GpuStorages* gpu) {
  const Known& of = known(function, op);
  const auto inputs = arguments_of(function);
  if (!of.op || inputs.size() != of.op->schema().arguments().size()) return nullptr;
  if (gpu != nullptr && !GpuStorages::on_its_device()) return nullptr;
  const bool drops_nothing = of.dropout && inputs[*of.dropout].isDouble() && inputs[*of.dropout].toDouble() == 0.0;
  const bool draws = of.random && (of.generator || !drops_nothing), by_default = draws && !of.generator;
  if (by_default && gpu == nullptr) return nullptr;
  const Where where{session, gpu};
  auto recipe = std::make_unique<OperatorRecipe>(*of.op, where);
  const bool trains = !of.training || (inputs[*of.training].isBool() && inputs[*of.training].toBool());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool statistics = std::find(of.statistics.begin(), of.statistics.end(), i) != of.statistics.end();
    const std::uint8_t use = i < op.uses.size() ? op.uses[i] : std::uint8_t{Operator::read};
    const bool written = (use & (Operator::write | Operator::overwrite)) != 0 && !statistics;
    std::optional<Argument> argument;
    if (i == of.generator) {
      if (!inputs[i].isNone()) return nullptr;  // one of the program's own
      argument =
          Argument{.tensors = {}, .kind = of.random ? Argument::Kind::generator : Argument::Kind::plain, .plain = {}};
    } else if (statistics && trains) {
      argument = Argument{};
    } else {
      argument = describe(inputs[i], where, written);
    }
    if (!argument) return nullptr;
    recipe->add(std::move(*argument));
  }
  if (draws) recipe->draws_from(default_generator_now(gpu != nullptr), by_default);
  note_births_of(&recipe->births(), gpu != nullptr);
  return recipe;
}

void Recipes::finish(std::unique_ptr<Recipe> recipe, Session& session, bool threw) {
  if (recipe == nullptr) return;
  note_births_of(nullptr, session.gpu() != nullptr);
  if (!threw) session.keep_recipe(std::move(recipe));
}

}  // namespace vedette::adapter
