// libnccl.so.2 that is none: a rank is a process with a simulated GPU, and bytes go through memory that ranks share
// (nccl_ranks.h). What is not here is made by stand_ins.py, and ends the process with its name.
//
// SIMULATED_GPU's words work for calls on the host (fail=ncclAllReduce@2:6, an ncclResult_t) and, with "/kernel" behind
// the name, on the stream: slow=ncclAllReduce/kernel@*:20000 is lateness, crash= a rank that dies in a collective.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "simulated_gpu/control.h"
#include "simulated_gpu/entry.h"
#include "simulated_gpu/nccl_numbers.h"
#include "simulated_gpu/nccl_ops.h"
#include "simulated_gpu/nccl_ranks.h"

struct ncclComm;  // the address of a Communicator

namespace vedette::simulated::nccl {
namespace {

using Comm = std::shared_ptr<Communicator>;

class Comms {  // of this process
 public:
  Comms() {
    at_exit_tell_races();  // waits for all kernels, after these that wait for a peer have ended: on a GPU they end, too
    std::atexit([] { all().abort(); });
  }
  static Comms& all() {
    static Comms* const immortal = new Comms;  // streams' threads may outlive static objects
    return *immortal;
  }
  int join(ncclComm** out, std::size_t ranks, const Id& id, std::size_t rank) {
    Comm made;
    if (const int error = Communicator::join(made, ranks, id, rank); error != success) return error;
    const std::lock_guard lock(guard_);
    *out = reinterpret_cast<ncclComm*>(made.get());
    comms_[*out] = std::move(made);
    return success;
  }
  Comm find(ncclComm* comm) {  // nullptr: there is none
    const std::lock_guard lock(guard_);
    const auto found = comms_.find(comm);
    return found == comms_.end() ? nullptr : found->second;
  }
  void forget(ncclComm* comm) {  // kernels that are queued hold it
    const std::lock_guard lock(guard_);
    comms_.erase(comm);
  }

 private:
  void abort() {
    const std::lock_guard lock(guard_);
    for (const auto& [_, comm] : comms_) comm->abort();
  }
  std::mutex guard_;
  std::map<ncclComm*, Comm> comms_;
};

Comm find(ncclComm* comm) { return Comms::all().find(comm); }
int unknown() { return failed(invalid_argument, "the communicator was destroyed or never made"); }

int split(const Comm& from, int color, int key, ncclComm** out) {
  Seat& own = from->seat(from->rank());
  own.color = color;
  own.key = key;
  if (!from->meet_on_hosts()) return remote_error;
  std::vector<std::pair<int, std::size_t>> members;
  for (std::size_t r = 0; r < from->ranks(); ++r) {
    if (from->seat(r).color == color) members.emplace_back(from->seat(r).key, r);
  }
  std::sort(members.begin(), members.end());
  const std::size_t first = members.front().second;
  if (color >= 0 && first == from->rank()) own.child = make_id();
  if (!from->meet_on_hosts()) return remote_error;
  const Id id = from->seat(first).child;
  if (!from->meet_on_hosts()) return remote_error;
  if (color < 0) {  // NCCL_SPLIT_NOCOLOR
    *out = nullptr;
    return success;
  }
  const auto me = std::find(members.begin(), members.end(), std::pair(key, from->rank())) - members.begin();
  return Comms::all().join(out, members.size(), id, static_cast<std::size_t>(me));
}

}  // namespace
}  // namespace vedette::simulated::nccl

using namespace vedette::simulated;
using nccl::Op;
using C = ncclComm*;
using S = vedette::cuda::StreamHandle;

#define NCCL SIMULATED_EXPORT int
#define ENTER(name) \
  if (const int asked = enter(name, false); asked != 0) return nccl::failed(asked, "as SIMULATED_GPU asks")
#define NCCL_SUCCEEDS(name, ...) \
  NCCL name(__VA_ARGS__) {       \
    ENTER(#name);                \
    return nccl::success;        \
  }
NCCL_SUCCEEDS(ncclCommFinalize, C)
NCCL_SUCCEEDS(ncclRedOpDestroy, int, C)
NCCL_SUCCEEDS(ncclCommRegister, C, void*, std::size_t, void**)
NCCL_SUCCEEDS(ncclCommDeregister, C, void*)

NCCL ncclGetVersion(int* version) {
  ENTER("ncclGetVersion");
  *version = 22809;
  return nccl::success;
}
SIMULATED_EXPORT const char* ncclGetErrorString(int error) {
  return error == nccl::success        ? "no error"
         : error == nccl::remote_error ? "a rank has ended"
                                       : "an error of the simulated NCCL";
}
SIMULATED_EXPORT const char* ncclGetLastError(C) { return nccl::last_error(); }
NCCL ncclGetUniqueId(nccl::Id* id) {
  ENTER("ncclGetUniqueId");
  *id = nccl::make_id();
  return nccl::success;
}
NCCL ncclCommInitRankConfig(C* out, int ranks, nccl::Id id, int rank, void*) {
  ENTER("ncclCommInitRankConfig");
  return nccl::Comms::all().join(out, static_cast<std::size_t>(ranks), id, static_cast<std::size_t>(rank));
}
NCCL ncclCommSplit(C from, int color, int key, C* out, void*) {
  ENTER("ncclCommSplit");
  const nccl::Comm comm = nccl::find(from);
  return comm == nullptr ? nccl::unknown() : nccl::split(comm, color, key, out);
}
NCCL ncclCommCount(C comm, int* ranks) {
  ENTER("ncclCommCount");
  const nccl::Comm found = nccl::find(comm);
  if (found == nullptr) return nccl::unknown();
  *ranks = static_cast<int>(found->ranks());
  return nccl::success;
}
NCCL ncclCommUserRank(C comm, int* rank) {
  ENTER("ncclCommUserRank");
  const nccl::Comm found = nccl::find(comm);
  if (found == nullptr) return nccl::unknown();
  *rank = static_cast<int>(found->rank());
  return nccl::success;
}
NCCL ncclCommDestroy(C comm) {
  ENTER("ncclCommDestroy");
  nccl::Comms::all().forget(comm);
  return nccl::success;
}
NCCL ncclCommAbort(C comm) {
  ENTER("ncclCommAbort");
  if (const nccl::Comm found = nccl::find(comm)) found->abort();
  nccl::Comms::all().forget(comm);
  return nccl::success;
}
NCCL ncclCommGetAsyncError(C comm, int* error) {
  ENTER("ncclCommGetAsyncError");
  const nccl::Comm found = nccl::find(comm);
  *error = found == nullptr ? static_cast<int>(nccl::success) : found->error();
  return nccl::success;
}
NCCL ncclRedOpCreatePreMulSum(int* op, void* factor, int type, int residence, C comm) {
  ENTER("ncclRedOpCreatePreMulSum");
  const nccl::Comm found = nccl::find(comm);
  if (found == nullptr) return nccl::unknown();
  const bool on_device = residence == 0;
  *op = found->add_factor(on_device ? factor : nullptr, on_device ? 0 : nccl::number_at(type, factor));
  return nccl::success;
}
NCCL ncclGroupStart() {
  ENTER("ncclGroupStart");
  nccl::begin_group();
  return nccl::success;
}
NCCL ncclGroupEnd() {
  ENTER("ncclGroupEnd");
  return nccl::end_group();
}

NCCL ncclAllReduce(const void* from, void* to, std::size_t n, int type, int op, C c, S s) {
  return nccl::issue({"ncclAllReduce", Op::all_reduce, from, to, n, type, op, -1, nccl::find(c), s}, n, n);
}
NCCL ncclReduce(const void* from, void* to, std::size_t n, int type, int op, int root, C c, S s) {
  const nccl::Comm comm = nccl::find(c);
  const bool here = comm != nullptr && static_cast<std::size_t>(root) == comm->rank();
  return nccl::issue({"ncclReduce", Op::reduce, from, to, n, type, op, root, comm, s}, n, here ? n : 0);
}
static int broadcast(const char* name, const void* from, void* to, std::size_t n, int type, int root, C c, S s) {
  const nccl::Comm comm = nccl::find(c);
  const bool here = comm != nullptr && static_cast<std::size_t>(root) == comm->rank();
  return nccl::issue({name, Op::broadcast, from, to, n, type, nccl::sum, root, comm, s}, here ? n : 0, n);
}
NCCL ncclBroadcast(const void* from, void* to, std::size_t n, int type, int root, C c, S s) {
  return broadcast("ncclBroadcast", from, to, n, type, root, c, s);
}
NCCL ncclBcast(void* at, std::size_t n, int type, int root, C c, S s) {  // c10d's broadcast
  return broadcast("ncclBcast", at, at, n, type, root, c, s);
}
NCCL ncclAllGather(const void* from, void* to, std::size_t n, int type, C c, S s) {
  const nccl::Comm comm = nccl::find(c);
  const std::size_t all = comm == nullptr ? 0 : n * comm->ranks();
  return nccl::issue({"ncclAllGather", Op::all_gather, from, to, n, type, nccl::sum, -1, comm, s}, n, all);
}
NCCL ncclReduceScatter(const void* from, void* to, std::size_t n, int type, int op, C c, S s) {
  const nccl::Comm comm = nccl::find(c);
  const std::size_t all = comm == nullptr ? 0 : n * comm->ranks();
  return nccl::issue({"ncclReduceScatter", Op::reduce_scatter, from, to, n, type, op, -1, comm, s}, all, n);
}
NCCL ncclAlltoAll(const void* from, void* to, std::size_t n, int type, C c, S s) {
  const nccl::Comm comm = nccl::find(c);
  const std::size_t all = comm == nullptr ? 0 : n * comm->ranks();
  return nccl::issue({"ncclAlltoAll", Op::all_to_all, from, to, n, type, nccl::sum, -1, comm, s}, all, all);
}
NCCL ncclSend(const void* from, std::size_t n, int type, int peer, C c, S s) {
  return nccl::issue({"ncclSend", Op::send, from, nullptr, n, type, nccl::sum, peer, nccl::find(c), s}, n, 0);
}
NCCL ncclRecv(void* to, std::size_t n, int type, int peer, C c, S s) {
  return nccl::issue({"ncclRecv", Op::receive, nullptr, to, n, type, nccl::sum, peer, nccl::find(c), s}, 0, n);
}

// For programs in Python.
SIMULATED_EXPORT std::size_t simulated_races() { return simulated_gpu()->races().size(); }
