// Whether buffers fit below a capacity: a search that finds offsets or proves that there are none.
//
// It looks only at solutions in which every buffer rests on the ground or on another one (every solution settles into
// one of these). Placed buffers form a skyline; a *valley* is a run of sections of equal height between higher ones.
// A buffer at its bottom lies inside it and on all of its own sections at once. A node takes one section of one valley
// and chooses the buffer at the bottom there, or none. With none the bottom rises to the lowest edge on which a buffer
// over this section can rest. Independent parts never multiply: their order is no decision. States that failed are
// remembered by a hash of the unplaced buffers and their lowest places.
// Prior art: section totals as bounds and the settled form are in MiniMalloc (Moffitt, ASPLOS'23). The valleys are
// those of skyline heuristics for strip packing (Burke et al., 2004). Weights of failing sections are dom/wdeg
// (Boussemart et al., 2004).
//
// Alignments: a buffer rests on the lowest multiple of its own above the buffers below it. All of this holds with them,
// because at the bottom of a valley there still is nothing lower in any of a buffer's sections. Where all are equal,
// rounded sizes with an alignment of 1 are the same problem, and searched faster.
//
// Pure, deterministic: effort is counted in steps, not in time. One thread. Lives are single pieces.
#pragma once
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "pack/sections.h"

namespace vedette::pack {

enum class Found { offsets, proof_of_none, nothing_yet };

// The order of a node's tries: the larger by this comes first.
enum class Prefer : std::uint8_t { area, length, bytes };

class ExactSearch {
 public:
  struct Item {
    Sections life;                           // not empty, below `sections`
    std::uint64_t bytes = 0, alignment = 1;  // above 0
  };
  ExactSearch(std::uint32_t sections, const std::vector<Item>& items);

  // Restarts with growing limits until there is an answer or `effort` steps (about a nanosecond each) are gone.
  Found run(std::uint64_t capacity, std::uint64_t effort);

  const std::vector<std::uint64_t>& offsets() const { return solution_; }
  std::uint64_t steps() const { return steps_; }
  std::uint64_t nodes() const { return nodes_; }

 private:
  struct Change {  // to take back: lowest_[buffer], or floor_ and witness_ of a section
    std::uint32_t index;
    bool section;
    std::uint32_t witness;
    std::uint64_t value;
  };

  void begin(std::uint64_t capacity, Prefer prefer);
  Found search();
  Found try_each(std::uint32_t section);
  bool place(std::uint32_t buffer);
  void take_back(std::uint32_t buffer);
  void undo(std::size_t mark);
  bool leave_empty(std::uint32_t section);
  void raise(std::uint32_t buffer, std::uint64_t to);
  void stir(std::uint32_t buffer);
  bool settle();
  bool rescan(std::uint32_t section);
  void count_options();
  std::uint32_t choose();
  std::uint64_t mix(std::uint32_t buffer) const;
  bool nothing_above(std::uint32_t buffer) const;

  struct Instance {  // no search changes it, but for the order in cover
    std::uint32_t sections, count;
    std::vector<Sections> life;
    std::vector<std::uint64_t> bytes, alignment, load;
    std::vector<std::vector<std::uint32_t>> meets, cover;  // by buffer; by section, in order of preference
    std::vector<std::uint32_t> twin;  // the buffer before it with the same life, size and alignment, or itself
  };

  Instance in_;
  std::uint64_t capacity_ = 0, limit_ = 0, steps_ = 0, nodes_ = 0, hash_ = 0;
  std::uint32_t unplaced_ = 0;
  std::vector<std::uint32_t> order_, where_;  // the first unplaced_ of order_ are unplaced; where_ is its inverse
  std::vector<int> options_;
  std::vector<char> in_valley_, stirred_;
  std::vector<std::uint32_t> to_settle_;  // sections, each once
  // by section: the lowest that an unplaced buffer can lie, the unplaced bytes
  std::vector<std::uint64_t> floor_, left_;
  std::vector<std::uint32_t> witness_;  // by section: an unplaced buffer that can lie as low as the floor
  std::vector<std::uint64_t> lowest_;   // by buffer: it cannot lie lower; its offset once it is placed
  std::vector<bool> placed_;
  std::vector<double> weight_;  // by section: how often it was where a branch failed
  std::vector<Change> trail_;
  std::unordered_set<std::uint64_t> failed_;
  std::vector<std::uint64_t> solution_;
};

}  // namespace vedette::pack
