// Index tensors into parts of tables: see rows.h.
#include "adapter/torch/rows.h"

#include <ATen/SparseTensorImpl.h>
#include <ATen/core/TensorBase.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace vedette::adapter {
namespace {

constexpr std::uint64_t fewest_chunks = 16;         // of a table: below, moving it whole costs little
constexpr std::int64_t smallest_share = 4;          // at most a quarter of the rows
constexpr std::uint64_t smallest_chunk = 16 << 10;  // a gap below this holds no whole untouched chunk

template <class Number>
void copy(const c10::TensorImpl& tensor, std::int64_t count, std::vector<std::int64_t>& rows) {
  const Number* const numbers = static_cast<const Number*>(tensor.data());
  rows.assign(numbers, numbers + count);
}

// The numbers of rows; empty where there are none, or more than `most`, or they do not lie one after the other.
std::vector<std::int64_t> rows_of(const c10::TensorImpl& numbers, bool is_sparse, std::int64_t most) {
  std::vector<std::int64_t> rows;
  if (is_sparse != (numbers.layout() == c10::kSparse)) return rows;
  const c10::TensorImpl* tensor = &numbers;
  std::int64_t count = numbers.numel();
  if (is_sparse) {  // the first line of its indices numbers rows
    const auto* const sparse = static_cast<const at::SparseTensorImpl*>(&numbers);
    tensor = sparse->indices().unsafeGetTensorImpl();
    count = sparse->nnz();
  }
  if (!tensor->is_cpu() || tensor->layout() != c10::kStrided || !tensor->has_storage() || count == 0 || count > most)
    return rows;
  if (!tensor->is_contiguous()) return rows;
  if (tensor->dtype() == caffe2::TypeMeta::Make<std::int64_t>()) copy<std::int64_t>(*tensor, count, rows);
  if (tensor->dtype() == caffe2::TypeMeta::Make<std::int32_t>()) copy<std::int32_t>(*tensor, count, rows);
  return rows;
}

const c10::TensorImpl* strided(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return nullptr;
  const c10::TensorImpl* const tensor = value.unsafeToTensorImpl();
  return tensor->is_cpu() && tensor->layout() == c10::kStrided && tensor->has_storage() ? tensor : nullptr;
}

}  // namespace

bool add_rows(const c10::IValue& table, const c10::IValue& numbers, bool is_sparse, bool written, Bytes chunk,
              std::vector<Part>& parts) {
  if (numbers.isList())  // table[first, second...]: the first one numbers rows
    return !numbers.toListRef().empty() && add_rows(table, numbers.toListRef()[0], is_sparse, written, chunk, parts);
  const c10::TensorImpl* const tensor = strided(table);
  if (tensor == nullptr || tensor->dim() == 0 || tensor->unsafe_storage().nbytes() < fewest_chunks * chunk.value)
    return false;
  if (!tensor->is_contiguous() || tensor->numel() == 0) return false;
  if (!numbers.isTensor() || !numbers.toTensor().defined()) return false;
  const std::int64_t count = tensor->sizes()[0];
  std::vector<std::int64_t> rows = rows_of(*numbers.unsafeToTensorImpl(), is_sparse, count / smallest_share);
  for (std::int64_t& row : rows) row += row < 0 ? count : 0;
  if (rows.empty()) return false;
  std::sort(rows.begin(), rows.end());
  const auto row_bytes = static_cast<std::uint64_t>(tensor->numel() / count) * tensor->itemsize();
  const auto* const first = static_cast<const std::byte*>(tensor->data());
  std::uint64_t begin = 0, end = 0;  // of the part that grows
  for (const std::int64_t row : rows) {
    if (row < 0 || row >= count) continue;  // the operator will say so
    const std::uint64_t at = static_cast<std::uint64_t>(row) * row_bytes;
    if (end > 0 && at >= end + smallest_chunk) {
      parts.push_back({.first = first + begin, .bytes = {end - begin}, .written = written});
      end = 0;
    }
    if (end == 0) begin = at;
    end = at + row_bytes;
  }
  if (end > 0) parts.push_back({.first = first + begin, .bytes = {end - begin}, .written = written});
  return end > 0;
}

}  // namespace vedette::adapter
