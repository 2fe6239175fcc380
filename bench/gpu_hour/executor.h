// A placed executor in small: the device memory of a training step inside a budget, with nothing remapped and no host
// wait. Blocks (storages of tensors) have places in one device allocation; one that leaves gives up its place, one that
// comes back gets another, and its storage is told. Copies run on a stream for each direction; everything is ordered by
// events, and the only thread is the one that announces.
//
// The first steps run reactively and are recorded; later ones know what comes. Victims are then those whose next use is
// furthest for their bytes, blocks are fetched ahead of their use, and room is made ahead of births. Places are still
// searched at run time: packing them is the tier's work, not this measurement's.
//
// Always: a block is at most once on the device; its bytes are there, or in its home in pinned memory, or both (clean).
// Thread rule: any thread; one compute stream.
#pragma once
#include <c10/core/StorageImpl.h>

#include <map>
#include <mutex>
#include <unordered_map>

#include "gpu_hour/cuda.h"
#include "gpu_hour/places.h"
#include "gpu_hour/step_record.h"

namespace vedette::gpu {

class Executor;
constexpr std::uint32_t unnumbered = ~0u;

struct Home {  // on the host, pinned
  void* data = nullptr;
  std::vector<Mark> after;  // copies from and to it
};

struct Block {
  Executor* owner = nullptr;
  std::byte* at = nullptr;  // nullptr: away
  std::size_t bytes = 0;
  int pins = 0;
  bool dead = false, clean = false;
  bool ahead = false;                   // fetched ahead and not yet used
  Home home;                            // from the first time it leaves
  c10::StorageImpl* storage = nullptr;  // once an op was seen with it; before that it cannot leave
  Mark arrives;                         // the copy that no op has waited for yet
  std::int64_t born_in = -1;            // step; -1: outside of steps
  std::uint32_t number = 0, kept_as = unnumbered;
};

struct Operand {
  Block* block = nullptr;
  c10::StorageImpl* storage = nullptr;
  bool written = false;
};

struct ExecutorCounts {
  std::uint64_t out = 0, in = 0, clean = 0, ahead = 0;  // copies; leavers that needed none; fetches ahead of use
  std::uint64_t out_bytes = 0, in_bytes = 0;
  std::size_t live_bytes = 0, most_bytes = 0, pinned_bytes = 0;
  std::size_t most_workspace_bytes = 0;  // of one block that was neither operand nor result
  std::uint64_t other_steps = 0;         // steps that did not repeat the recorded one
};

class Executor {
 public:
  struct Options {
    std::size_t budget = 0;
    std::size_t least_bytes = 0;  // smaller blocks are left to libtorch
    std::size_t grain = 512;      // of places
    std::int64_t recorded_step = 2;
    Op ahead_ops = 300;         // how far fetches look
    double ahead_share = 0.25;  // of the budget: fetched ahead at most
    double room_share = 0.1;    // of the budget: made free ahead of births at most
    cudaStream_t stream{};      // that computes
  };

  explicit Executor(const Options& options);
  ~Executor();  // keeps its memory where a block lives
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const Options& options() const { return options_; }
  ExecutorCounts counts() const;

  void begin_step();
  void end_step();
  void begin_op();  // before its operands; makes what comes next come

  // Throws Refused when an op needs more than there is in one piece. Born inside an op, a block is pinned: unpin it.
  Block* allocate(std::size_t bytes, bool pinned);
  // All of an op's: resident and pinned afterwards. Where they do not fit at once, the process ends with status
  // no_room, since libtorch swallows what is thrown when an op is announced.
  static constexpr int no_room = 3;
  void operands(const std::vector<Operand>& operands);
  void seen(Block* block, c10::StorageImpl* storage);  // the result of an op
  void unpin(Block* block);
  static void free(void* block);  // a storage's deleter

 private:
  using Place = Places<Block, Mark>::Place;

  BlockName name_of(const Block& block) const;
  void number_kept(Block& block);
  Block* named(BlockName name) const;
  void release(Block* block);
  void drop(Block* block);
  void point(Block& block);
  void leave(Block& block);
  bool fetch(Block& block, Op spared);
  bool bring(const std::vector<Operand>& operands);
  std::optional<Place> room(Block& block, Op spared);
  std::optional<double> cost(const Block& block, Op spared) const;
  void make_room_ahead();
  void fetch_ahead();
  const Mark& now();  // what the compute stream has been given so far
  Home take_home(std::size_t bytes);

  const Options options_;
  mutable std::mutex mutex_;  // guards all below
  std::byte* memory_ = nullptr;
  Places<Block, Mark> places_;
  cudaStream_t in_{}, out_{};
  MarkPool marks_;
  Mark now_;
  ExecutorCounts counts_;
  std::multimap<std::size_t, Home> homes_;  // idle, by bytes

  StepRecord record_;
  std::int64_t step_ = -1;
  Op op_ = 0, fetched_to_ = 0;
  std::size_t ahead_bytes_ = 0;
  std::vector<Block*> born_, carried_, kept_;  // by number; nullptr: dead
  std::vector<Block*> away_;                   // of the op that is announced
};

}  // namespace vedette::gpu
