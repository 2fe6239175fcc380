// Chunks that are dropped and recomputed. Chunks that are dropped together, a group, are made together: the recipes run
// with their results in a scratch zone of whole chunks, whose frames the dropped chunks get. So no thread ever sees a
// half made tensor, and neither storage nor views nor versions of it notice.
//
// A thread that touches a dropped chunk without an announcement waits, and a thread of ours makes it.
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
#include <vector>

#include "session/recomputer.h"

namespace vedette::detail {

class ChunkRecomputer final : public Recomputer {
 public:
  explicit ChunkRecomputer(Parts parts) : Recomputer(parts) {}
  ~ChunkRecomputer() override { stop(); }

  bool has_dropped() const noexcept override { return !groups_.empty(); }
  bool can_be_made(ChunkRange chunks) const override;
  bool in_the_way(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) const override;
  [[nodiscard]] bool let_die(std::uint32_t tensor) override;
  void drop(ChunkRange chunks) override;
  void make(std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) override;
  void make_before_death(std::uint32_t tensor) override;
  void make_all() override;
  void note(ChunkIndex wanted) noexcept override;
  void stop() noexcept override;

 private:
  struct Group {
    ChunkRange chunks;
    std::vector<std::uint32_t> tensors;  // that live there
    Lineage::Way way;
    bool being_made = false;
  };
  using Groups = std::map<std::uint32_t, Group>;  // by first chunk; disjoint
  struct Zone {                                   // of the arena: scratch for tensors in the chunks `like`
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
  ChunkRange hull(std::span<const std::uint32_t> tensors) const;
  bool concerns(const Group& group, std::span<const ChunkRange> operands, std::span<const std::uint32_t> writes) const;
  bool fits_together(const Lineage::Way& way, std::span<const std::uint32_t> together) const;
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
  bool gives(const Lineage::Way& way, std::span<const Result> results) override;
  void give_frame(ChunkIndex chunk);
  void serve() noexcept;  // the thread

  Groups groups_;  // guarded by the session's lock

  std::mutex notes_;
  std::condition_variable noted_;
  std::deque<ChunkIndex> wanted_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace vedette::detail
