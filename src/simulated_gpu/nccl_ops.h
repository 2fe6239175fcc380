// Collectives and exchanges of NCCL as kernels on a stream: a call, or a group of calls, is one kernel, launched with
// the accesses that it makes, so that the detector of races sees it. It waits for its peers on the stream's thread.
// Thread rule: any thread; groups are a thread's own.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "simulated_gpu/nccl_ranks.h"
#include "simulated_gpu/streams.h"

namespace vedette::simulated::nccl {

struct Op {
  enum Kind { all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, send, receive };
  const char* name;
  Kind kind;
  const void* from;
  void* to;
  std::size_t count;
  int type, reduction, peer;  // peer: the root, too
  std::shared_ptr<Communicator> comm;
  cuda::StreamHandle stream;
  std::vector<Access> accesses = {};
};

// Elements read at op.from and written at op.to. Launches the op, or keeps it for the end of this thread's group.
int issue(Op op, std::size_t read, std::size_t written);
void begin_group();
int end_group();

}  // namespace vedette::simulated::nccl
