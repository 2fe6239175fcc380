// Tensors that are dropped and recomputed where tensors move whole: on a GPU. A recipe's work is queued as an op's is,
// with its results in scratch, at the places that the plan has for the tensors. When all of it is queued a dropped
// tensor gets the place of its scratch. No thread waits for the device.
//
// Tensors that an op needs are made together, each producer once, where that takes at most half of fast memory; else
// one after the other, sources first, so that made ones can leave again. Dead tensors that are made as means die again
// behind the last op that uses them.
//
// No access without an announcement is served: an op, or hold(), makes its operands before. Locks: as Recomputer says;
// recipes run without the session's lock.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "moves/tensor_drops.h"
#include "session/recomputer.h"

namespace vedette::detail {

class TensorRecomputer final : public Recomputer {
 public:
  // The executor has tensor_drops().
  explicit TensorRecomputer(Parts parts) : Recomputer(parts), drops_(*parts.executor.tensor_drops()) {}

  bool has_dropped() const noexcept override { return !dropped_.empty(); }
  bool can_be_made(ChunkRange chunks) const override { return dropped_of(chunks).has_value(); }
  bool in_the_way(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) const override;
  [[nodiscard]] bool let_die(std::uint32_t tensor) override;
  void drop(ChunkRange chunks) override;
  void make(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) override;
  void make_before_death(std::uint32_t tensor) override;
  void make_all() override;

 private:
  using Tensors = std::vector<std::uint32_t>;  // of the step's log
  struct Dropped {
    std::uint32_t tensor = 0;
    Lineage::Way way;
    bool being_made = false;
  };
  struct Scratch {  // of a tensor that is made
    std::uint32_t tensor = 0;
    ChunkRange like, chunks;
    std::uint64_t offset = 0;  // in the arena; of chunks
    Bytes bytes;
    std::byte *was = nullptr, *now = nullptr;
    std::size_t last = 0;  // of Work::runs, that uses it
    bool wanted = false, taken = false;
  };
  struct Work {  // recipes to run, in order
    struct Run {
      Recipe* recipe = nullptr;
      std::vector<std::size_t> scratch;  // of Work::made
      std::vector<ChunkRange> sources;
    };
    std::vector<Scratch> made;
    std::vector<Run> runs;
  };
  enum class Results : bool { adopted, compared };

  // --- with the session's lock
  std::optional<Dropped> dropped_of(ChunkRange chunks) const;  // as it would be; nullopt: it cannot be recomputed
  bool needs(const Lineage::Way& way, std::uint32_t tensor, std::set<std::uint32_t>& seen) const;
  void add(Dropped dropped);
  void remove(std::uint32_t tensor);
  void count_sources(const Lineage::Way& way, int change);
  Tensors with_dropped_sources(Tensors wanted) const;
  Work prepare(const Lineage::Way& way, const Tensors& wanted) const;

  // --- with making_
  void make_those(const Tensors& wanted);
  bool make_together(const Tensors& wanted);  // false: it cannot be, and nothing was made
  void make_one(std::uint32_t tensor);
  bool run_and_adopt(const Lineage::Way& way, const Tensors& wanted);
  bool run(Work& work, Results results);
  bool run_one(Work& work, std::size_t number, Results results);
  bool take(Scratch& scratch);
  void give_back(Scratch& scratch);
  void report(const Work& work, Nanoseconds began);
  bool gives(const Lineage::Way& way, std::span<const Result> results) override;

  TensorDrops& drops_;
  // guarded by the session's lock
  std::map<std::uint32_t, Dropped> dropped_;                   // by tensor
  std::unordered_map<std::uint32_t, std::uint32_t> at_chunk_;  // the dropped tensor whose first chunk it is
  std::unordered_map<std::uint32_t, std::uint32_t> sources_;   // tensors that dropped ones are made from: by how many
};

}  // namespace vedette::detail
