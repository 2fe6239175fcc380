// The lowest offset at which a buffer meets no other, for any life, in any order of calls: a segment tree over sections
// whose nodes keep sets of addresses. Node v has full[v], the addresses of the buffers that cover all of v's sections
// (and not all of its parent's), and any[v], those of all that touch one of them. The addresses in use during [l, r)
// are any[] of the O(log n) nodes that make up [l, r), and full[] of their ancestors. The sets are swept together,
// upwards, until a hole is wide enough.
//
// Pure, deterministic; one thread. A look-up costs O(log n) sets and the intervals passed below the hole; sets are
// merged, so they stay short where little is wasted.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "pack/sections.h"

namespace vedette::pack {

// Where a buffer may begin: multiples of `alignment`, and at chunk borders as Problem::chunk says.
struct Shape {
  std::uint64_t bytes = 0, alignment = 1, chunk = 0;

  // The lowest allowed offset that is not below `at`.
  std::uint64_t settle(std::uint64_t at) const {
    const auto up = [](std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; };
    if (alignment > 1) at = up(at, alignment);
    // Beginning a chunk is a multiple of the alignment only where the chunk is; else the search goes on until both
    // hold.
    while (chunk != 0 && at % chunk + bytes > up(bytes, chunk)) {
      at = up(at, chunk);
      if (alignment > 1) at = up(at, alignment);
    }
    return at;
  }
};

class AddressTree {
 public:
  explicit AddressTree(std::uint32_t sections);

  // The lowest offset that no inserted buffer uses during `life`.
  std::uint64_t first_fit(std::span<const Sections> life, const Shape& shape);

  void insert(std::span<const Sections> life, std::uint64_t begin, std::uint64_t end);

  // The work so far: sets and ranges looked at. A step takes a few nanoseconds.
  std::uint64_t steps() const { return steps_; }

 private:
  struct Range {
    std::uint64_t begin, end;
  };
  struct Set {  // sorted, disjoint, not touching; in pool_[at, at + count)
    std::uint32_t at = 0, count = 0, room = 0;
  };
  struct Cursor {
    const Range* next;
    const Range* end;
  };

  void gather(Sections piece);
  void gather(const Set& set);
  bool add(Set& set, Range range);  // false: it was all there already
  Range* open_up(Set& set, std::uint32_t position, std::uint32_t remove);

  std::uint32_t leaves_ = 1;
  std::vector<Set> full_, any_;  // by node: 1 is the root, leaves_ + s is section s
  std::vector<Range> pool_;
  std::vector<Cursor> cursors_;
  std::uint64_t steps_ = 0;
};

}  // namespace vedette::pack
