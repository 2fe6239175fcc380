// Where every piece of every tensor is, how full the tiers are, and the transfers of the links.
//
//     nowhere -> lies -> queued -> moving -> lies -> nowhere        a piece that is queued lies where it came from,
//     whole
//
// A piece is a run of bytes of one tensor that moves as one. `copies` says which tiers hold its newest bytes; each of
// them keeps room for it. Slower tiers keep copies of fetched pieces until others need their room. Pure; used by the
// simulator alone.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "sim/lines.h"
#include "sim/pieces.h"
#include "vedette/model.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::sim {

class Traffic {
 public:
  Traffic(const Trace& trace, const Machine& machine, const Plan& plan);

  std::optional<Error> prepare();  // pieces, queues, everything persistent at home
  const std::vector<Piece>& pieces() const { return pieces_.all; }
  const Piece& piece(std::uint32_t index) const { return pieces_.all[index]; }
  Span<std::uint32_t> of_tensor(std::uint32_t tensor) const { return pieces_.of_tensor[tensor]; }
  Span<std::uint32_t> of_move(std::uint32_t move) const { return pieces_.of_move[move]; }

  std::int64_t now() const { return now_; }
  std::int64_t busy() const { return busy_; }  // ns that lines have been busy, summed over them
  // granules that came to the fastest tier by a link, or left it alive
  std::uint64_t remapped() const { return remapped_; }
  std::uint64_t used(std::uint32_t tier) const { return used_[tier]; }
  std::uint64_t free_room(std::uint32_t tier) const;
  std::uint64_t leaving() const { return leaving_; }  // bytes of the fastest tier whose way out is queued or running
  std::uint64_t awaited() const { return awaited_; }  // pieces that the waiting op lacks
  std::uint64_t awaited_room() const { return awaited_room_; }  // of those, the ones without room yet
  bool in_flight() const;
  void pin(std::uint32_t tensor) { ++pins_[tensor]; }
  void unpin(std::uint32_t tensor) { --pins_[tensor]; }
  bool pinned(std::uint32_t tensor) const { return pins_[tensor] != 0; }

  void queue(const Move& move, std::uint32_t number);  // of the plan's moves; none: of a reaction
  // towards the tier, when its turn comes
  void move(std::uint32_t piece, std::uint32_t target, std::uint32_t move, bool urgent);
  bool await(std::uint32_t piece);  // the op needs it near; true when nothing was on its way
  void drop(std::uint32_t piece);
  void place(std::uint32_t piece, std::uint32_t tier);  // born, or recomputed
  void release(std::uint32_t piece);                    // dead: its bytes are gone everywhere
  void touch(std::uint32_t piece, bool write, std::uint64_t serial);
  void bury(std::uint32_t piece);  // dead, as Plan::after_life says

  bool take(std::uint64_t bytes);  // of the fastest tier, for births and scratch; false: they are not free
  void give(std::uint64_t bytes) { used_[0] -= bytes; }
  // fetches without a waiting op leave the fastest tier this much
  void keep_clear(std::uint64_t bytes) { kept_clear_ = bytes; }
  void start_jobs();
  std::int64_t next_end() const { return sim::next_end(lines_, now_); }
  void advance_to(std::int64_t time);  // jobs end and start meanwhile

  // Figures of the last step; reset where it begins.
  void measure(Replayed* into, bool timeline);
  void note_unplanned() {
    if (result_ != nullptr) ++result_->unplanned;
  }
  std::uint64_t peak() const { return peak_; }
  std::vector<PlacedExtent>* extents = nullptr;  // kept up to date where given, one a piece

 private:
  void place_at_home();
  std::uint32_t line_of(std::uint32_t source, std::uint32_t target) const {
    return line_at_[source * machine_.tiers.size() + target];
  }
  std::uint64_t size_in(const Piece& piece, std::uint32_t tier) const {
    return tier == 0 ? piece.room : piece.bytes.end - piece.bytes.begin;
  }
  void occupy(const Piece& piece, std::uint32_t tier);
  void vacate(Piece& piece, std::uint32_t tier);
  bool make_room_in(std::uint32_t tier, std::uint64_t bytes);
  bool one_copy() const { return plan_.one_copy || plan_.after_life == AfterLife::kept; }
  void expect(const Piece& piece, bool comes);  // it leaves the slower tier that it lies in, or does so no more
  void cancel(std::uint32_t piece);
  void enqueue(std::uint32_t piece, std::uint32_t line, bool urgent);
  bool start(Line& line);
  bool redirect(Line& line);
  bool waits_for_reads() const;
  void finish(Line& line);
  void arrived_near(Piece& piece);
  std::uint64_t granules(const Piece& piece) const {
    return (piece.room + machine_.granule.value - 1) / machine_.granule.value;
  }
  void update(std::uint32_t piece);

  const Trace& trace_;
  const Machine& machine_;
  const Plan& plan_;
  const bool writes_wait_;  // Habits::writes_wait
  std::int64_t now_ = 0, busy_ = 0;
  std::uint64_t remapped_ = 0;
  Pieces pieces_;
  // [tier]: bytes there, and of them those that are queued or moving to the fastest
  std::vector<std::uint64_t> used_, leaves_to_near_;
  std::vector<Line> lines_;
  std::uint64_t shared_by_ = ~std::uint64_t{0};  // lines that transferred when shares were set last, a bit each
  std::vector<std::uint32_t> line_at_;
  std::vector<std::deque<std::uint32_t>> kept_;  // by tier: pieces whose copies it keeps, oldest first; some are void
  std::vector<std::uint32_t> pins_;              // by tensor
  std::uint64_t leaving_ = 0, awaited_ = 0, awaited_room_ = 0, kept_clear_ = 0, peak_ = 0;
  Replayed* result_ = nullptr;
  bool timeline_ = false;
  std::int64_t measured_from_ = 0;
};

}  // namespace vedette::sim
