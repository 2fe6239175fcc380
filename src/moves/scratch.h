// The part of memory in recomputation (session/recomputer.h). Bytes are dropped, recipes run with their results in
// pieces of scratch, and dropped chunks get the frames or the place of a piece. So neither storage nor views nor
// versions of a tensor notice.
//
// Thread rule: one thread at a time; no lock of the executor is held while a recipe runs.
#pragma once
#include <span>

#include "moves/executor.h"

namespace vedette::detail {

class Scratch {
 public:
  // Addresses of the arena, whole chunks, for tensors that lie, or lay, in the chunks `like`.
  struct Piece {
    ChunkRange like, chunks;
    Bytes bytes;                               // of these tensors, from the first one's begin to the last one's end
    std::byte *was = nullptr, *now = nullptr;  // where they begin there, and here
    bool held = false;                         // the executor's own note
  };

  // True: a recipe's work is queued on the calling thread's stream, behind all that was queued for the tensors that it
  // uses, and later uses run behind it. Then a piece is taken for the first recipe that uses it, and given back behind
  // the last. False: all is done when a recipe returns, and threads may wait for what is dropped.
  virtual bool queues_recipes() const noexcept = 0;

  // Between ops: no bytes from now on. False: they may not leave.
  virtual bool drop(ChunkRange chunks) noexcept = 0;
  virtual bool is_dropped(ChunkIndex chunk) const noexcept = 0;
  // False: there is no room, and nothing is taken.
  virtual bool take_piece(Piece& piece) = 0;
  virtual void give_back_piece(const Piece& piece) noexcept = 0;
  // `to`, which is dropped, gets the bytes that were made for it; the piece is then given back without them.
  virtual void adopt_piece(const Piece& from, ChunkRange to) noexcept = 0;

  // Before a part's recomputations: its planned fetches are on their way. begin_op() of the same part comes next.
  virtual void come(const Executor::Part& part) = 0;
  // In fast memory while the calling thread runs a recipe. False: no room; none is there then.
  virtual bool begin_recipe(std::span<const ChunkRange> sources, std::span<const ChunkRange> pieces) = 0;
  virtual void end_recipe(std::span<const ChunkRange> sources, std::span<const ChunkRange> pieces) noexcept = 0;

  enum class Aside : unsigned char { recomputation, trial };
  // Work that is no op's compute, of the calling thread's stream.
  virtual void begin_aside(Aside what) noexcept = 0;
  virtual void end_aside() noexcept = 0;

  // Of a piece for one tensor, which is not dropped: other bytes than a recipe gives, so that unwritten ones show; and
  // whether they are the tensor's. The host waits. False also where the device refused.
  virtual bool spoil(const Piece& piece) = 0;
  virtual bool same_bytes(const Piece& piece) = 0;

 protected:
  ~Scratch() = default;
};

}  // namespace vedette::detail
