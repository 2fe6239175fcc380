// The reads and writes of an operator's arguments, from its schema once and kept by the address of its name.
//
// Only operators with a kernel of their own are ops. Views move no bytes, and composites (linear, cross_entropy_loss,
// lstm) are a sequence of others: the operators that they call count, and give smaller working sets. Thread rule: one
// thread at a time; the training thread.
#pragma once
#include <ATen/record_function.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace vedette::adapter {

struct Operator {
  enum Use : std::uint8_t {
    nothing = 0,
    read = 1,
    write = 2,
    overwrite = 4,  // written, and read only where the tensor is a part of its storage
  };
  // Looks up rows: argument `table` is touched in the rows that argument `numbers` lists: an index tensor, a list that
  // begins with one, or, if it `is_sparse`, a sparse tensor. `dimension`: the argument that says of which dimension
  // they are; else of the first. `of_entries`: each number is of one entry, in whose other dimensions it stands itself.
  struct Rows {
    std::uint8_t table = 0, numbers = 0;
    bool is_sparse = false;
    std::optional<std::uint8_t> dimension = {};
    bool of_entries = false;
  };
  bool communicates = false;            // works of gloo's use the arguments after it has ended
  bool transparent = false;             // not an op: look at its calls
  bool takes_lists = false;             // on a GPU a long one goes in groups (gpu_lists.h)
  bool list_is_transparent = false;     // so where its first argument is a list of more than one tensor
  std::vector<std::uint8_t> uses = {};  // of argument i; arguments beyond the list are read
  std::optional<Rows> rows = {};
  bool writes() const {  // to an argument
    return std::any_of(uses.begin(), uses.end(), [](std::uint8_t use) { return (use & (write | overwrite)) != 0; });
  }
  // The rule for the shape of the op's result (result_size.h), by argument `numbers` where there is one.
  enum class Result : std::uint8_t {
    as_operands,  // expanded to each other
    matrix_product,
    convolution,
    looked_up,  // `rows`
    listed,     // `numbers` are the sizes, or one is the count of rows
    repeated,
    resampled,
    padded,
  };
  static constexpr std::uint8_t none = 255;
  Result result = Result::as_operands;
  std::uint8_t numbers = none, type = none;  // arguments; `type`: of the result's entries
  bool several = false;                      // results: gradients of its operands, for instance
  bool finds = false;                        // one of them has the numbers of entries: sort, max_pool2d_with_indices
};

// The arguments of an op that has begun. An interpreter, TorchScript's for one, calls an operator with its whole stack:
// the last values are the arguments, those before wait for other operators.
inline c10::ArrayRef<const c10::IValue> arguments_of(const at::RecordFunction& function) {
  const auto inputs = function.inputs();
  const std::size_t count = function.num_inputs();
  return inputs.size() > count ? inputs.slice(inputs.size() - count) : inputs;
}

class OperatorTable {
 public:
  // For functions that are no registered operators ("detach_", which libtorch records by hand): a transparent one.
  const Operator& of(const at::RecordFunction& function);

 private:
  std::unordered_map<const char*, Operator> known_;  // names of registered operators lie in their schemas, which stay
};

}  // namespace vedette::adapter
