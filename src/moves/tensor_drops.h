// The part of an executor of whole tensors in their recomputation (session/tensor_recomputer.h). Order is by streams: a
// recipe's work is queued on the calling thread's stream, behind all that was queued for the tensors that it uses.
// Later uses run behind it.
//
// Thread rule: any thread; no lock of the executor is held while a recipe runs.
#pragma once
#include <span>

#include "moves/executor.h"

namespace vedette::detail {

class TensorDrops {
 public:
  // Before a part's recomputations: its planned fetches are on their way. begin_op() of the same part comes next.
  virtual void come(const Executor::Part& part) = 0;

  // Between ops: the tensor has no bytes from now on. False: it may not leave.
  virtual bool drop_tensor(ChunkRange chunks) noexcept = 0;
  // One more tensor, of scratch for tensors that lie, or lay, in the chunks `like`: where the plan has it, else where
  // it lay.
  virtual Result<void> born_like(ChunkRange chunks, Bytes bytes, ChunkRange like) = 0;
  // `to`, which is dropped, gets the bytes and the place of `from`, which was born like it and keeps neither.
  virtual void adopt_tensor(ChunkRange from, ChunkRange to) noexcept = 0;

  // In fast memory while the calling thread queues a recipe's work with them. Error: no room; none is there then.
  virtual Result<void> begin_again(std::span<const ChunkRange> operands) = 0;
  virtual void end_again(std::span<const ChunkRange> operands) noexcept = 0;

  enum class Aside : unsigned char { recomputation, trial };
  // Work that is no op's compute, of the calling thread's stream.
  virtual void begin_aside(Aside what) noexcept = 0;
  virtual void end_aside() noexcept = 0;

  // Other bytes than a recipe gives, so that unwritten ones show. The host waits in both.
  virtual Result<void> spoil(ChunkRange chunks, Bytes bytes) = 0;
  virtual Result<bool> same_bytes(ChunkRange one, ChunkRange other, Bytes bytes) = 0;

 protected:
  ~TensorDrops() = default;
};

}  // namespace vedette::detail
