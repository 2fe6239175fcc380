// Entries of tensors into parts of their memory: see rows.h.
#include "adapter/torch/rows.h"

#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "adapter/torch/gpu_beside.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/session_memory.h"
#include "adapter/torch/watched.h"

namespace vedette::adapter {
namespace {

constexpr std::uint64_t fewest_chunks = 16;         // of a table: below, moving it whole costs little
constexpr std::uint64_t least_of_gpu = 4 << 20;     // there it moves whole, however small chunks are
constexpr std::uint64_t smallest_share = 4;         // at most a quarter of the bytes
constexpr std::uint64_t smallest_chunk = 16 << 10;  // a gap below this holds no whole untouched chunk
constexpr std::uint64_t most_looked_at = 1 << 16;   // numbers, or a quarter of a table's rows

using Sizes = c10::IntArrayRef;

// All positions in some dimensions of a tensor, the last dimension first.
class Positions {
 public:
  explicit Positions(Sizes sizes) : sizes_(sizes), at_(sizes.size(), 0) {}
  std::uint64_t count() const {
    std::uint64_t all = 1;
    for (const std::int64_t size : sizes_) all *= static_cast<std::uint64_t>(size);
    return all;
  }
  std::int64_t offset(Sizes strides, std::size_t without = ~std::size_t{0}) const {
    std::int64_t sum = 0;
    for (std::size_t d = 0; d < at_.size(); ++d) sum += d == without ? 0 : at_[d] * strides[d];
    return sum;
  }
  bool next() {  // false: it was the last
    for (std::size_t d = at_.size(); d-- > 0;) {
      if (++at_[d] < sizes_[d]) return true;
      at_[d] = 0;
    }
    return false;
  }

 private:
  const Sizes sizes_;
  c10::SmallVector<std::int64_t, 6> at_;
};

// A look-up of rows of pinned memory, a change of them, a copy to a row, and one to the host.
bool tried(const c10::Device& device) {
  constexpr std::int64_t rows = 8, width = 16;
  const at::Tensor host = at::arange(rows * width, at::kFloat).view({rows, width});
  const at::Tensor pinned = host.pin_memory();
  const at::Tensor there =
      at::from_blob(pinned.data_ptr(), {rows, width}, at::TensorOptions(at::kFloat).device(device));
  const at::Tensor numbers = at::arange(1, 4).to(device), row = host.to(device)[5];
  at::Tensor expected = host.clone();
  bool equal = at::equal(there.index_select(0, numbers).cpu(), host.slice(0, 1, 4));
  there.index_add_(0, numbers, there.index_select(0, numbers));
  there[6].copy_(row);
  expected.slice(0, 1, 4).mul_(2);
  expected[6].copy_(host[5]);
  equal = at::equal(there.cpu(), expected) && equal;
  return equal && at::equal(pinned, expected);
}

// Whether operators use pinned memory of the host as if it were the GPU's: libtorch knows no such tensors, so that some
// are tried, once in a process. The thread whose op begins, before it does.
bool uses_host_memory(const GpuStorages& gpu) {
  static std::optional<bool> answer;
  if (answer) return *answer;
  if (gpu.captured_here()) return false;
  try {
    const BesideTheBudget native;
    const at::DisableRecordFunctionGuard unheard;
    const at::NoGradGuard no_gradients;
    const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);
    const c10::DeviceGuard on_device(GpuStorages::device());
    answer = tried(GpuStorages::device());
  } catch (const std::exception&) {  // not here, or not now: tensors move whole
    answer = false;
  }
  return *answer;
}

// A large tensor's memory, as its session knows it.
struct Large {
  const std::byte* memory = nullptr;
  std::uint64_t bytes = 0;
};

// Nested tensors have no numbers for sizes and strides, and those that torch.compile traces may have none.
bool has_numbers(const c10::TensorImpl& impl) {
  return impl.layout() == c10::kStrided && impl.has_storage() && !impl.has_symbolic_sizes_strides() &&
         !impl.key_set().has_any(c10::DispatchKeySet({c10::DispatchKey::NestedTensor, c10::DispatchKey::Python}));
}

std::optional<Large> large(const at::Tensor& tensor, const Announcer& owner) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!has_numbers(impl) || impl.numel() == 0 || impl.dim() == 0) return {};
  c10::StorageImpl& storage = *impl.unsafe_storage().unsafeGetStorageImpl();
  std::uint64_t least = fewest_chunks * owner.chunk.value;
  if (owner.gpu != nullptr) least = std::min(least, least_of_gpu);
  if (storage.nbytes() < least || storage.device_type() != (owner.gpu != nullptr ? c10::kCUDA : c10::kCPU)) return {};
  if (owner.gpu != nullptr && !(owner.gpu->is_of_this_session(storage) && uses_host_memory(*owner.gpu))) return {};
  const void* const memory = owner.gpu != nullptr ? owner.gpu->seen(storage) : session_memory(storage);
  if (memory == nullptr) return {};
  return Large{.memory = static_cast<const std::byte*>(memory), .bytes = storage.nbytes()};
}

// Bytes of a tensor's memory that an op touches, piece by piece.
class Touched {
 public:
  void add(std::uint64_t begin, std::uint64_t bytes) { pieces_.push_back({begin, begin + bytes}); }
  // False: they are none, or more than `most` bytes.
  bool become_parts(const Large& of, std::uint64_t most, bool written, std::vector<Part>& parts) {
    std::sort(pieces_.begin(), pieces_.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    std::vector<Span<std::uint64_t>> joined;
    for (const auto& piece : pieces_) {
      if (!joined.empty() && piece.begin < joined.back().end + smallest_chunk) {
        joined.back().end = std::max(joined.back().end, piece.end);
      } else {
        joined.push_back(piece);
      }
    }
    std::uint64_t all = 0;
    for (const auto& [begin, end] : joined) all += end - begin;
    if (all == 0 || all > most) return false;
    for (const auto& [begin, end] : joined)
      parts.push_back({.first = of.memory + begin, .bytes = {end - begin}, .written = written});
    return true;
  }

 private:
  std::vector<Span<std::uint64_t>> pieces_;
};

bool few_on_gpu(const Large& of, std::uint64_t bytes, bool written, std::vector<Part>& parts) {
  if (bytes == 0 || bytes > of.bytes / smallest_share) return false;
  parts.push_back({.first = of.memory, .bytes = {bytes}, .written = written});
  return true;
}

// --- numbers ---------------------------------------------------------------------------------------------------------

struct Numbers {
  const c10::TensorImpl* tensor = nullptr;
  c10::SmallVector<std::int64_t, 6> sizes;
};

std::optional<Numbers> numbers_of(const c10::IValue& value, bool is_sparse, c10::DeviceType device) {
  if (value.isList())  // table[first, second...]: the first one numbers rows
    return value.toListRef().empty() ? std::nullopt : numbers_of(value.toListRef()[0], is_sparse, device);
  if (!value.isTensor() || !value.toTensor().defined()) return {};
  const c10::TensorImpl* tensor = value.unsafeToTensorImpl();
  if (is_sparse != (tensor->layout() == c10::kSparse)) return {};
  Numbers numbers;
  if (is_sparse) {  // the first line of its indices numbers rows
    const auto* const sparse = static_cast<const at::SparseTensorImpl*>(tensor);
    tensor = sparse->indices().unsafeGetTensorImpl();
    numbers.sizes = {sparse->nnz()};
    if (!tensor->is_contiguous()) return {};
  }
  if (!has_numbers(*tensor) || tensor->device_type() != device) return {};
  if (tensor->dtype() != caffe2::TypeMeta::Make<std::int64_t>() &&
      tensor->dtype() != caffe2::TypeMeta::Make<std::int32_t>())
    return {};
  if (!is_sparse) numbers.sizes.append(tensor->sizes().begin(), tensor->sizes().end());
  numbers.tensor = tensor;
  return numbers;
}

std::int64_t number_at(const c10::TensorImpl& tensor, std::int64_t offset) {
  if (tensor.dtype() == caffe2::TypeMeta::Make<std::int32_t>())
    return static_cast<const std::int32_t*>(tensor.data())[offset];
  return static_cast<const std::int64_t*>(tensor.data())[offset];
}

// Positions of the table that are looked up: `outer` ones, each with all `numbers`, or each with its own; and a run of
// entries behind each.
struct LookUp {
  Sizes outer = {}, numbers = {};
  bool each_its_own = false;
  std::size_t dimension = 0;
  std::int64_t run = 0;
};

std::optional<LookUp> look_up(const at::Tensor& table, const Numbers& numbers, const Operator::Rows& rows,
                              const c10::IValue* dimension) {
  std::int64_t d = 0;
  if (dimension != nullptr && !dimension->isInt()) return {};
  if (dimension != nullptr) d = dimension->toInt();
  if (d < 0) d += table.dim();
  if (d < 0 || d >= table.dim()) return {};
  const auto at = static_cast<std::size_t>(d);
  if (!rows.of_entries)
    return LookUp{
        .outer = table.sizes().slice(0, at), .numbers = numbers.sizes, .dimension = at, .run = table.stride(d)};
  if (numbers.tensor->dim() != table.dim()) return {};
  // Numbers that are expanded behind the dimension look whole rows up.
  std::size_t own = numbers.sizes.size();
  while (own > at + 1 &&
         (numbers.tensor->stride(static_cast<std::int64_t>(own) - 1) == 0 || numbers.sizes[own - 1] == 1))
    --own;
  return LookUp{.outer = Sizes(numbers.sizes).slice(0, own),
                .each_its_own = true,
                .dimension = at,
                .run = table.stride(static_cast<std::int64_t>(own) - 1)};
}

void touch(const at::Tensor& table, const Numbers& numbers, const LookUp& what, Touched& touched) {
  const std::int64_t count = table.sizes()[what.dimension], step = table.strides()[what.dimension];
  const std::uint64_t item = table.itemsize();
  const Sizes strides = numbers.tensor->strides();
  const auto add = [&](std::int64_t at, std::int64_t number) {
    if (number < 0) number += count;
    if (number < 0 || number >= count) return;  // the operator will say so
    touched.add(static_cast<std::uint64_t>(table.storage_offset() + at + number * step) * item,
                static_cast<std::uint64_t>(what.run) * item);
  };
  Positions outer(what.outer);
  do {
    const std::int64_t at = outer.offset(table.strides(), what.dimension);
    if (what.each_its_own) {
      add(at, number_at(*numbers.tensor, outer.offset(strides)));
      continue;
    }
    Positions each(what.numbers);
    do
      add(at,
          number_at(*numbers.tensor, each.offset(strides.size() == what.numbers.size() ? strides : strides.slice(1))));
    while (each.next());
  } while (outer.next());
}

}  // namespace

int add_rows(const Operator& op, c10::ArrayRef<const c10::IValue> inputs, const Announcer& owner,
             OpOperands& operands) {
  if (!op.rows || op.rows->numbers >= inputs.size() || !inputs[op.rows->table].isTensor()) return -1;
  const std::uint8_t at = op.rows->table;
  const at::Tensor& table = inputs[at].toTensor();
  if (!table.defined()) return -1;
  const auto of = large(table, owner);
  if (!of || !table.is_contiguous()) return -1;
  const auto is_mean = [](const c10::IValue& input) { return input.isString() && input.toStringRef() == "mean"; };
  if (std::any_of(inputs.begin(), inputs.end(), is_mean)) return -1;  // all of the table is divided
  const auto numbers = numbers_of(inputs[op.rows->numbers], op.rows->is_sparse, table.device().type());
  if (!numbers) return -1;
  const auto what = look_up(table, *numbers, *op.rows, op.rows->dimension ? &inputs[*op.rows->dimension] : nullptr);
  if (!what) return -1;
  const std::uint64_t count =
      Positions(what->outer).count() * (what->each_its_own ? 1 : Positions(what->numbers).count());
  const std::uint64_t bytes = count * static_cast<std::uint64_t>(what->run) * table.itemsize();
  const bool written = at < op.uses.size() && (op.uses[at] & (Operator::write | Operator::overwrite)) != 0;
  if (owner.gpu != nullptr) {
    if (!few_on_gpu(*of, bytes, written, operands.parts)) return -1;
  } else {
    // By how many are looked up, not by which: else the same op would be another one in another step.
    const auto most = static_cast<std::uint64_t>(table.sizes()[what->dimension]) / smallest_share;
    if (count > std::max(most_looked_at, most) || bytes > of->bytes / smallest_share) return -1;
    Touched touched;
    touch(table, *numbers, *what, touched);
    if (!touched.become_parts(*of, of->bytes, written, operands.parts)) return -1;
  }
  operands.parameter = owner.watched.layer_of(table.storage().unsafeGetStorageImpl());
  return at;
}

bool add_view(const at::Tensor& tensor, bool written, const Announcer& owner, OpOperands& operands) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!has_numbers(impl)) return false;
  const c10::StorageImpl* const storage = impl.unsafe_storage().unsafeGetStorageImpl();
  const std::uint64_t bytes = static_cast<std::uint64_t>(impl.numel()) * impl.itemsize();
  if (bytes > storage->nbytes() / smallest_share) return false;
  const auto of = large(tensor, owner);
  if (!of || !owner.watched.name_of(storage).empty()) return false;
  if (owner.gpu != nullptr) return few_on_gpu(*of, bytes, written, operands.parts);
  if (!Session::owns(of->memory)) return false;
  std::size_t outer = static_cast<std::size_t>(impl.dim());  // dimensions behind these are one run
  std::int64_t run = 1;
  while (outer > 0 && (impl.strides()[outer - 1] == run || impl.sizes()[outer - 1] == 1)) run *= impl.sizes()[--outer];
  Positions positions(impl.sizes().slice(0, outer));
  if (positions.count() > most_looked_at) return false;
  Touched touched;
  do
    touched.add(static_cast<std::uint64_t>(impl.storage_offset() + positions.offset(impl.strides())) * impl.itemsize(),
                static_cast<std::uint64_t>(run) * impl.itemsize());
  while (positions.next());
  return touched.become_parts(*of, of->bytes / smallest_share, written, operands.parts);
}

}  // namespace vedette::adapter
