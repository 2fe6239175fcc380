// The origins of the running step's tensors: of each op that can run again its recipe, its reads and its writes. So it
// says in which way a tensor's bytes can be recomputed, from tensors that live.
//
// A tensor's version is the number of ops of this step that have written it. A way runs ops in the order of the step,
// so in-place chains (batch_norm, then relu_) are repeated as a whole, and means that are dead are made on the way.
//
// What always holds: a way reads living tensors in the version that they have now. These were written by an op of this
// step, or are weights: memory that no op wrote may be changed by the program without an announcement.
//
// Pure: no address, no engine. Tensors are numbers of the log. Lock rule: not thread safe; the session's lock guards
// it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "vedette/session.h"

namespace vedette::detail {

class Lineage {
 public:
  static constexpr std::size_t most_ops = 64;  // of one way

  enum class Use : std::uint8_t {
    read,
    changed,      // in place
    overwritten,  // its bytes do not matter, only its room
  };
  struct Way {
    std::vector<std::uint32_t> ops;      // to run again, ascending
    std::vector<std::uint32_t> made;     // the targets, and means that are dead or were changed since
    std::vector<std::uint32_t> sources;  // living tensors, read where they lie
  };

  void forget();  // a step begins or ends

  // --- what the step does --------------------------------------------------------------------------------------------
  // A tensor of before the step, of which nothing is known yet; `trusted`: ops alone write it.
  void exists(std::uint32_t tensor, bool trusted);
  void born(std::uint32_t tensor, std::optional<std::uint32_t> in_op);
  void died(std::uint32_t tensor);
  void lives(std::uint32_t tensor);  // after all
  void begin_op(std::uint32_t op, std::span<const std::uint32_t> reads, std::span<const std::uint32_t> writes);
  // `uses(tensor)`: the recipe does; operands that it does not use it neither needs nor gives.
  template <class Uses>
  void keep(std::uint32_t op, std::unique_ptr<Recipe> recipe, Uses uses);
  void drop_recipe(std::uint32_t op);
  // Something else than an op may write it from now on: no way makes its bytes.
  void held(std::uint32_t tensor) { history(tensor).writers.push_back(no_op); }

  // --- what can be recomputed ----------------------------------------------------------------------------------------
  // As if none of `wanted` were there. nullopt: some cannot be recomputed.
  std::optional<Way> way(std::span<const std::uint32_t> wanted) const;
  Recipe* recipe(std::uint32_t op) const { return ops_[op].recipe.get(); }
  std::span<const std::uint32_t> results(std::uint32_t op) const { return ops_[op].results; }
  bool touches(std::uint32_t op, std::uint32_t tensor) const;  // reads or writes it

 private:
  static constexpr std::uint32_t no_op = ~std::uint32_t{0};
  struct Value {
    std::uint32_t tensor = 0, version = 0;
    Use use = Use::read;
    bool operator==(const Value&) const = default;
  };
  struct History {
    std::vector<std::uint32_t> writers;  // ops, ascending
    bool alive = false, born_here = false, trusted = false;
  };
  struct Past {
    std::unique_ptr<Recipe> recipe;
    std::vector<Value> inputs;           // operands changed in place included
    std::vector<std::uint32_t> results;  // all it wrote, its births included
  };
  struct Search;
  History& history(std::uint32_t tensor);
  Past& past(std::uint32_t op);
  std::uint32_t version(std::uint32_t tensor) const;
  bool need(Search& search, Value value) const;

  std::vector<History> tensors_;
  std::vector<Past> ops_;
};

template <class Uses>
void Lineage::keep(std::uint32_t op, std::unique_ptr<Recipe> recipe, Uses uses) {
  Past& of = past(op);
  of.recipe = std::move(recipe);
  std::erase_if(of.inputs, [&](const Value& input) { return !uses(input.tensor); });
  std::erase_if(of.results, [&](std::uint32_t result) { return !uses(result); });
}

}  // namespace vedette::detail
