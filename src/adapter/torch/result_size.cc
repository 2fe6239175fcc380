// Rules of shapes, by kinds of operators: see result_size.h.
#include "adapter/torch/result_size.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

namespace vedette::adapter {
namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;
using Tensors = c10::SmallVector<const at::Tensor*, 6>;  // the arguments that are dense ones, in order

bool is_dense(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().layout() == c10::kStrided;
}

std::uint64_t product(c10::IntArrayRef sizes) {
  std::uint64_t all = 1;
  for (const std::int64_t size : sizes) all *= static_cast<std::uint64_t>(std::max<std::int64_t>(size, 0));
  return all;
}

std::uint64_t bytes_of_list(const c10::IValue& list) {
  std::uint64_t bytes = 0;
  for (const c10::IValue& item : list.toListRef()) {
    if (!item.isNone() && !item.isTensor()) break;  // lists are of one type
    if (is_dense(item)) bytes += item.toTensor().nbytes();
  }
  return bytes;
}

// Numbers of rows and conditions do not decide the result's type where there are floating-point operands.
std::uint64_t bytes_of_an_entry(const Tensors& tensors) {
  std::uint64_t of_floats = 0, of_any = 1;
  for (const at::Tensor* const tensor : tensors) {
    const std::uint64_t bytes = tensor->itemsize();
    of_any = std::max(of_any, bytes);
    if (tensor->is_floating_point() || tensor->is_complex()) of_floats = std::max(of_floats, bytes);
  }
  return of_floats > 0 ? of_floats : of_any;
}

// The shape to which all of them expand; 0: there is none.
std::uint64_t broadcast(const Tensors& tensors) {
  c10::SmallVector<std::int64_t, 6> shape;  // the last dimension first
  for (const at::Tensor* const tensor : tensors) {
    const c10::IntArrayRef sizes = tensor->sizes();
    shape.resize(std::max(shape.size(), sizes.size()), 1);
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const std::int64_t size = sizes[sizes.size() - 1 - d];
      if (size != 1 && shape[d] != 1 && size != shape[d]) return 0;
      if (size != 1) shape[d] = size;
    }
  }
  return product(shape);
}

// Of the last two that have rows: [..., m, k] by [..., k, n], or by [..., n, k]. Else of two vectors.
std::uint64_t matrix_product(const Tensors& tensors) {
  Tensors factors;
  for (const at::Tensor* const tensor : tensors)
    if (tensor->dim() > 1) factors.push_back(tensor);
  if (factors.size() < 2)
    return tensors.size() < 2 ? 0 : product({tensors.end()[-1]->numel(), tensors.end()[-2]->numel()});
  const at::Tensor &a = *factors.end()[-2], &b = *factors.back();
  const std::int64_t of_b = b.numel() / std::max<std::int64_t>(b.size(-1) * b.size(-2), 1);
  return product({a.numel() / std::max<std::int64_t>(a.size(-1), 1), a.size(-1) == b.size(-2) ? b.size(-1) : b.size(-2),
                  a.dim() > 2 ? 1 : of_b});
}

// All entries of the table for each number in the dimension that is looked up.
std::uint64_t looked_up(const Operator::Rows& rows, Inputs inputs) {
  if (rows.numbers >= inputs.size() || !is_dense(inputs[rows.table])) return 0;
  const at::Tensor& table = inputs[rows.table].toTensor();
  std::int64_t dimension = 0;
  const c10::IValue* numbers = &inputs[rows.numbers];
  if (rows.dimension && inputs[*rows.dimension].isInt()) dimension = inputs[*rows.dimension].toInt();
  if (numbers->isList()) {
    const auto list = numbers->toListRef();
    const auto first = std::find_if(list.begin(), list.end(), is_dense);
    if (first == list.end()) return 0;
    dimension = first - list.begin();
    numbers = &*first;
  }
  if (rows.of_entries) return is_dense(*numbers) ? product(numbers->toTensor().sizes()) : 0;
  if (!is_dense(*numbers) || dimension >= table.dim() || -dimension > table.dim()) return 0;
  return product({numbers->toTensor().numel(), table.numel() / std::max<std::int64_t>(table.size(dimension), 1)});
}

// convolution(images, filters, bias, stride, padding, dilation, transposed, ...): transposed it makes larger images.
std::uint64_t convolution(Inputs inputs) {
  if (inputs.size() < 9 || !is_dense(inputs[0]) || !is_dense(inputs[1])) return 0;
  const at::Tensor &images = inputs[0].toTensor(), &filters = inputs[1].toTensor();
  if (images.dim() < 3 || filters.dim() != images.dim() || !inputs[3].isIntList() || !inputs[4].isIntList()) return 0;
  const bool transposed = inputs[6].isBool() && inputs[6].toBool();
  const auto strides = inputs[3].toIntVector(), padding = inputs[4].toIntVector();
  const auto of = [](const std::vector<std::int64_t>& list, std::int64_t d) {
    return list.empty() ? 1 : list[std::min<std::size_t>(static_cast<std::size_t>(d), list.size() - 1)];
  };
  const std::int64_t groups = inputs[8].isInt() ? inputs[8].toInt() : 1;
  std::uint64_t all = product({images.size(0), transposed ? filters.size(1) * groups : filters.size(0)});
  for (std::int64_t d = 2; d < images.dim(); ++d)
    all *= product(
        {transposed ? images.size(d) * of(strides, d - 2) + filters.size(d) : images.size(d) + 2 * of(padding, d - 2)});
  return all;
}

std::uint64_t by_numbers(const Operator& op, const Tensors& tensors, const c10::IValue& numbers) {
  const at::Tensor* const first = tensors.empty() ? nullptr : tensors.front();
  if (numbers.isInt())  // rows
    return first == nullptr || first->dim() == 0 ? 0 : product({numbers.toInt(), first->size(-1)});
  if (!numbers.isIntList()) return 0;
  const auto list = numbers.toIntVector();
  if (op.result == Operator::Result::listed || first == nullptr) return product(list);
  if (op.result == Operator::Result::repeated) return product(list) * product(first->sizes());
  if (op.result == Operator::Result::resampled)  // [images, channels, ...]
    return first->dim() < 3 ? 0 : product({first->size(0), first->size(1)}) * product(list);
  std::uint64_t all = 1;  // padded: before and behind, of the last dimension first
  for (std::int64_t d = 0; d < first->dim(); ++d) {
    const std::size_t at = 2 * static_cast<std::size_t>(d);
    all *= product({first->size(first->dim() - 1 - d) + (at + 1 < list.size() ? list[at] + list[at + 1] : 0)});
  }
  return all;
}

}  // namespace

std::uint64_t likely_result(const Operator& op, Inputs inputs) {
  using Result = Operator::Result;
  Tensors tensors;
  std::uint64_t bytes = 0, entries = 0, of_operands = 0, most_entries = 0;
  for (const c10::IValue& input : inputs) {
    if (input.isTensorList()) bytes = std::max(bytes, bytes_of_list(input));
    if (!is_dense(input)) continue;
    tensors.push_back(&input.toTensor());
    of_operands += tensors.back()->nbytes();
    most_entries = std::max(most_entries, static_cast<std::uint64_t>(tensors.back()->numel()));
  }
  std::uint64_t item = bytes_of_an_entry(tensors);
  if (op.type < inputs.size() && inputs[op.type].isInt())
    item = std::max<std::uint64_t>(item, c10::elementSize(static_cast<c10::ScalarType>(inputs[op.type].toInt())));
  if (op.result == Result::as_operands) entries = broadcast(tensors);
  if (op.result == Result::matrix_product) entries = matrix_product(tensors);
  if (op.result == Result::convolution) entries = convolution(inputs);
  if (op.result == Result::looked_up && op.rows) entries = looked_up(*op.rows, inputs);
  if (op.numbers < inputs.size()) entries = by_numbers(op, tensors, inputs[op.numbers]);
  bytes = std::max(bytes, entries * item);
  if (op.several) bytes = std::max(bytes, of_operands + most_entries);  // gradients, or a result and its mask
  return bytes + (op.finds ? most_entries * sizeof(std::int64_t) : 0);
}

}  // namespace vedette::adapter
