// Drops tensors of a step that repeats, and recomputes them. What is dropped together, a group, is made together: the
// recipes run with their results in a scratch zone of whole chunks, whose frames the dropped chunks get. So no thread
// ever sees a half made tensor, and neither storage nor views nor versions of it notice.
//
// What always holds: every group can be recomputed from what lives. So before an op changes a source of a group, or a
// source dies, the group is made; sources that can be made themselves may die or be dropped. Whoever touches a dropped
// chunk without an announcement waits, and a thread of ours makes it.
//
// Locks: `making_` is held while a group is dropped or made, and taken before the session's. Recipes run without the
// session's lock. note() takes a lock of its own, and may be called with any held.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "session/arena.h"
#include "session/executor.h"
#include "session/lineage.h"
#include "session/step_logger.h"

namespace vedette::detail {

class Recomputer {
 public:
  struct Parts {  // of the session
    std::mutex& mutex;
    Arena& arena;
    StepLogger& logger;
    Executor& executor;
    std::uint32_t frames = 0;
    Observer* observer = nullptr;
  };
  explicit Recomputer(Parts parts) : session_(parts) {}
  ~Recomputer() { stop(); }

  // --- with the session's lock ---------------------------------------------------------------------------------------
  Lineage& lineage() noexcept { return lineage_; }
  bool can_be_made(ChunkRange chunks) const;  // every tensor that lives there
  // An op uses `operands` and changes the tensors `writes`: some group has to be made before.
  bool in_the_way(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) const;
  // It dies. False: it must not yet, some group has to be made before.
  [[nodiscard]] bool let_die(std::uint32_t tensor);

  // --- without any lock ----------------------------------------------------------------------------------------------
  void drop(ChunkRange chunks);  // between ops; nothing, where they cannot be recomputed
  void make(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes);
  void make_before_death(std::uint32_t tensor);
  void make_all();
  // Runs the recipe of an op that has just run, into scratch. True: its results have the same bytes. `trust`: what is
  // alike and was tried before is not tried.
  bool try_again(std::uint32_t op, bool trust);
  void remember(std::uint32_t op, bool runs_again);  // of the running step; the op thread's
  std::vector<char> remembered() { return std::move(runs_again_); }

  struct Figures {
    std::uint64_t bytes_recomputed = 0, ops_recomputed = 0, recompute_ns = 0;
  };
  Figures figures() const noexcept { return figures_; }  // with the session's lock

  void note(ChunkIndex wanted) noexcept;  // a thread waits for this dropped chunk; with any lock held
  void stop() noexcept;                   // when nothing is dropped any more

 private:
  struct Group {
    ChunkRange chunks;
    std::vector<std::uint32_t> tensors;  // that live there
    Lineage::Way way;
    bool being_made = false;
  };
  using Groups = std::map<std::uint32_t, Group>;  // by first chunk; disjoint
  struct Zone {                                   // of the arena: scratch for what lies in the chunks `like`
    ChunkRange like, chunks;
    std::uint64_t offset = 0;
    bool held = false;
  };
  struct Work {  // recipes to run, in order
    struct Run {
      Recipe* recipe = nullptr;
      std::vector<Recipe::Place> places;
      std::vector<ChunkRange> sources;
    };
    std::vector<Zone> zones;
    std::vector<Run> runs;
  };

  std::optional<std::vector<std::uint32_t>> tensors_in(ChunkRange chunks) const;  // nullopt: some are in no log
  std::optional<Group> group_of(ChunkRange chunks) const;
  ChunkRange chunks_of(std::uint32_t tensor) const;
  ChunkRange hull(std::span<const std::uint32_t> tensors) const;
  bool concerns(const Group& group, std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) const;
  bool fits(const Lineage::Way& way, std::span<const std::uint32_t> together) const;
  bool needs(const Group& group, ChunkRange chunks, std::set<std::uint32_t>& seen) const;
  template <class Condition>
  void make_where(Condition condition);  // with making_
  void make_group(std::uint32_t first);  // with making_
  std::optional<Zone> take_zone(ChunkRange like);
  void give_back(const Zone& zone);
  void give_back(const Work& work);
  bool run(const Work& work);
  // `together`: the zone of those tensors that are made in one; the others get zones of their own.
  std::optional<Work> prepare(const Lineage::Way& way, std::span<const std::uint32_t> together);
  std::byte* in_zone(const Zone& zone, std::uint32_t tensor) const;
  void adopt(const Zone& zone, ChunkRange chunks);
  bool gives(const Lineage::Way& way, std::span<const std::byte* const> results);
  void give_frame(ChunkIndex chunk);
  void serve() noexcept;  // the thread

  const Parts session_;
  std::vector<char> runs_again_;                   // [op], of the running step
  std::unordered_map<std::uint64_t, bool> tried_;  // by signature
  Lineage lineage_;
  Figures figures_;  // as groups_
  Groups groups_;    // guarded by the session's lock
  std::mutex making_;

  std::mutex notes_;
  std::condition_variable noted_;
  std::deque<ChunkIndex> wanted_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace vedette::detail
