// Operators by schema: see operator_table.h.
#include "adapter/torch/operator_table.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "adapter/torch/fused_steps.h"
#include "adapter/torch/gpu_lists.h"
#include "adapter/torch/stream_works.h"

namespace vedette::adapter {
namespace {

bool writes(const c10::AliasInfo* alias) {
  return alias != nullptr &&
         (alias->isWrite() || std::any_of(alias->containedTypes().begin(), alias->containedTypes().end(),
                                          [](const c10::AliasInfo& inner) { return inner.isWrite(); }));
}

bool is_composite(const c10::OperatorHandle& handle) {
  using c10::DispatchKey;
  return handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         !handle.hasKernelForDispatchKey(DispatchKey::CPU);
}

// A result that aliases an argument which is not written: a view, or a function that copies only where it must
// (contiguous, to, reshape) and calls others then.
bool is_view(const c10::FunctionSchema& schema) {
  const auto aliases = [](const c10::Argument& result) { return result.alias_info() != nullptr; };
  const auto written = [](const c10::Argument& argument) { return writes(argument.alias_info()); };
  return std::any_of(schema.returns().begin(), schema.returns().end(), aliases) &&
         std::none_of(schema.arguments().begin(), schema.arguments().end(), written);
}

bool leaves_bytes_undefined(std::string_view name) {  // allocates only
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
}

bool reads_no_bytes(std::string_view name) {  // takes a tensor for its shape
  return name.ends_with("_like") || name.starts_with("aten::new_");
}

template <std::size_t n>
bool is_one_of(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool fills(std::string_view name) {
  return is_one_of<5>(name, {"aten::zero_", "aten::fill_", "aten::copy_", "aten::normal_", "aten::uniform_"});
}

// Change a tensor's shape or its place in the graph, not its bytes, whatever their schemas say.
bool changes_metadata(std::string_view name) {
  return is_one_of<7>(name, {"aten::_unsafe_view", "aten::detach_", "aten::t_", "aten::transpose_", "aten::squeeze_",
                             "aten::unsqueeze_", "aten::as_strided_"});
}

// The schemas of normalisations keep quiet about the running statistics that they change.
bool changes_statistics(std::string_view operator_name, std::string_view argument) {
  return operator_name.find("_norm") != operator_name.npos && operator_name.find("backward") == operator_name.npos &&
         operator_name.find("no_training") == operator_name.npos && argument.starts_with("running_");
}

std::optional<Operator::Rows> looks_up_rows(std::string_view name) {
  using Rows = Operator::Rows;
  struct Known {
    std::string_view name;
    Rows rows;
  };
  static constexpr std::array known = {
      Known{"aten::embedding", {.table = 0, .numbers = 1}},
      Known{"aten::embedding_renorm_", {.table = 0, .numbers = 1}},
      Known{"aten::_embedding_bag", {.table = 0, .numbers = 1}},
      Known{"aten::_embedding_bag_forward_only", {.table = 0, .numbers = 1}},
      Known{"aten::index", {.table = 0, .numbers = 1}},
      Known{"aten::index_put_", {.table = 0, .numbers = 1}},
      Known{"aten::_index_put_impl_", {.table = 0, .numbers = 1}},
      Known{"aten::index_select", {.table = 0, .numbers = 2, .dimension = std::uint8_t{1}}},
      Known{"aten::index_add_", {.table = 0, .numbers = 2, .dimension = std::uint8_t{1}}},
      Known{"aten::index_copy_", {.table = 0, .numbers = 2, .dimension = std::uint8_t{1}}},
      Known{"aten::index_fill_", {.table = 0, .numbers = 2, .dimension = std::uint8_t{1}}},
      Known{"aten::index_reduce_", {.table = 0, .numbers = 2, .dimension = std::uint8_t{1}}},
      Known{"aten::gather", {.table = 0, .numbers = 2, .dimension = std::uint8_t{1}, .of_entries = true}},
      Known{"aten::scatter_", {.table = 0, .numbers = 2, .dimension = std::uint8_t{1}, .of_entries = true}},
      Known{"aten::scatter_add_", {.table = 0, .numbers = 2, .dimension = std::uint8_t{1}, .of_entries = true}},
      Known{"aten::scatter_reduce_", {.table = 0, .numbers = 2, .dimension = std::uint8_t{1}, .of_entries = true}},
      Known{"aten::add_", {.table = 0, .numbers = 1, .is_sparse = true}},
      Known{"aten::sparse_mask", {.table = 0, .numbers = 1, .is_sparse = true}},
  };
  const auto found = std::find_if(known.begin(), known.end(), [&](const Known& one) { return one.name == name; });
  return found == known.end() ? std::nullopt : std::optional(found->rows);
}

Operator::Result result_of(std::string_view name, const std::optional<Operator::Rows>& rows) {
  using Result = Operator::Result;
  if (name == "aten::convolution" || name == "aten::_convolution") return Result::convolution;
  if (is_one_of<10>(name, {"aten::mm", "aten::addmm", "aten::_addmm_activation", "aten::bmm", "aten::baddbmm",
                           "aten::matmul", "aten::linear", "aten::ger", "aten::addr", "aten::_cdist_forward"}))
    return Result::matrix_product;
  return rows && !rows->is_sparse ? Result::looked_up : Result::as_operands;
}

// Of a later argument, where there are two: gradients have both sizes, theirs first.
void tell_sizes(const c10::Argument& argument, std::uint8_t index, Operator& of) {
  using Result = Operator::Result;
  struct Known {
    std::string_view name;
    Result result;
  };
  static constexpr std::array known = {Known{"size", Result::listed},           Known{"input_sizes", Result::listed},
                                       Known{"input_size", Result::listed},     Known{"self_sizes", Result::listed},
                                       Known{"num_weights", Result::listed},    Known{"repeats", Result::repeated},
                                       Known{"output_size", Result::resampled}, Known{"pad", Result::padded}};
  if (argument.name() == "dtype") of.type = index;
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const Known& one) { return one.name == argument.name(); });
  if (found == known.end()) return;
  of.result = found->result;
  of.numbers = index;
}

void tell_results(const c10::FunctionSchema& schema, Operator& of) {
  const auto is_new = [](const c10::Argument& result) {
    return result.alias_info() == nullptr && result.type()->kind() == c10::TypeKind::TensorType;
  };
  const auto has_numbers = [](const c10::Argument& result) { return result.name() == "indices"; };
  of.several = std::count_if(schema.returns().begin(), schema.returns().end(), is_new) > 1;
  of.finds = of.several && (std::any_of(schema.returns().begin(), schema.returns().end(), has_numbers) ||
                            schema.name().find("max_pool") != std::string::npos);
}

// For tensors on the CPU libtorch calls the operator of one tensor for each.
bool goes_through_a_list(std::string_view name) { return name.starts_with("aten::_foreach_"); }

// Collectives write tensors that their schemas call read, and go on writing after they have returned.
bool begins_works(std::string_view name) { return is_of_c10d(name) || name.starts_with("_c10d_functional::"); }

Operator describe(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  const std::string_view name = schema.name();
  Operator result;
  result.transparent =
      changes_metadata(name) || leaves_bytes_undefined(name) || is_composite(handle) || is_view(schema);
  result.list_is_transparent = goes_through_a_list(name) || is_fused_step(name);
  result.communicates = begins_works(name);
  result.takes_lists = takes_lists(name);
  result.rows = looks_up_rows(name);
  result.result = result_of(name, result.rows);
  tell_results(schema, result);
  for (const c10::Argument& argument : schema.arguments()) {
    tell_sizes(argument, static_cast<std::uint8_t>(result.uses.size()), result);
    std::uint8_t use = reads_no_bytes(name) ? Operator::nothing : Operator::read;
    if (writes(argument.alias_info()))
      use = argument.is_out() || fills(name) ? Operator::overwrite : Operator::read | Operator::write;
    const bool draws = argument.name() == "dropout_state";  // cuDNN's random state, which goes on
    if (is_of_c10d(name) || changes_statistics(name, argument.name()) || draws) use = Operator::read | Operator::write;
    result.uses.push_back(use);
  }
  return result;
}

}  // namespace

const Operator& OperatorTable::of(const at::RecordFunction& function) {
  static const Operator none{.transparent = true};
  const auto known = known_.find(function.name());
  if (known != known_.end()) return known->second;
  const auto name = function.operator_name();
  if (!name) return none;  // its name's address will be another's: not kept
  const auto handle = c10::Dispatcher::singleton().findSchema(*name);
  return known_.emplace(function.name(), handle ? describe(*handle) : none).first->second;
}

}  // namespace vedette::adapter
