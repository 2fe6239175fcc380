// Kernels that meet their peers: see nccl_ops.h.
#include "simulated_gpu/nccl_ops.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "simulated_gpu/control.h"
#include "simulated_gpu/entry.h"
#include "simulated_gpu/memory.h"
#include "simulated_gpu/nccl_numbers.h"

namespace vedette::simulated::nccl {
namespace {

// What a rank gives: multiplied first where the reduction says so (means of real numbers, too).
void give(const Op& op, void* to, const void* from, std::size_t n) {
  std::memcpy(to, from, n * type_bytes[op.type]);
  if (op.reduction == avg && op.type >= f16) multiply(op.type, to, n, 1.0 / static_cast<double>(op.comm->ranks()));
  if (op.reduction < first_own) return;
  const auto [at, number] = op.comm->factor(op.reduction);
  multiply(op.type, to, n, at == nullptr ? number : number_at(op.type, memory().reach(at)));
}

// What the ranks gave at `offset` of their slots, reduced in the order of ranks.
void take(const Op& op, char* to, std::size_t offset, std::size_t n) {
  Communicator& comm = *op.comm;
  std::memcpy(to, comm.slot(0) + offset, n * type_bytes[op.type]);
  for (std::size_t r = 1; r < comm.ranks(); ++r) combine(op.type, op.reduction, to, comm.slot(r) + offset, n);
  if (op.reduction == avg && op.type < f16) divide(op.type, to, n, static_cast<double>(comm.ranks()));
}

bool all_ranks_run(const Op& op) {
  Communicator& comm = *op.comm;
  char* const what = comm.seat(comm.rank()).what;
  std::snprintf(what, sizeof Seat::what, "%s of %zu elements of type %d, reduction %d, root %d", op.name, op.count,
                op.type, std::min<int>(op.reduction, first_own), op.peer);
  if (!comm.meet_on_streams()) return false;
  for (std::size_t r = 0; r < comm.ranks(); ++r) {
    if (std::strcmp(what, comm.seat(r).what) != 0)
      misuse("rank " + std::to_string(comm.rank()) + " calls " + what + ", rank " + std::to_string(r) + " calls " +
             comm.seat(r).what + "; all ranks of a communicator make the same calls in the same order");
  }
  return true;
}

// Through slots, one of each rank; with a part for each receiver where each gets another.
bool run_collective(const Op& op) {
  if (!all_ranks_run(op)) return false;
  Communicator& comm = *op.comm;
  const std::size_t own = comm.rank(), each = type_bytes[op.type], bytes = op.count * each;
  const std::size_t parts = op.kind == Op::reduce_scatter || op.kind == Op::all_to_all ? comm.ranks() : 1;
  const std::size_t most = slot_bytes / each / parts;
  const auto root = static_cast<std::size_t>(op.peer);
  const auto* const from = static_cast<const char*>(memory().reach(op.from));
  auto* const to = static_cast<char*>(memory().reach(op.to));
  for (std::size_t at = 0; at < op.count; at += most) {
    const std::size_t n = std::min(most, op.count - at), part = n * each, begin = at * each;
    for (std::size_t p = 0; p < parts && (op.kind != Op::broadcast || root == own); ++p)
      give(op, comm.slot(own) + p * part, from + p * bytes + begin, n);
    if (!comm.meet_on_streams()) return false;
    if (op.kind == Op::all_reduce || (op.kind == Op::reduce && root == own)) take(op, to + begin, 0, n);
    if (op.kind == Op::reduce_scatter) take(op, to + begin, own * part, n);
    if (op.kind == Op::broadcast) std::memcpy(to + begin, comm.slot(root), part);
    for (std::size_t r = 0; r < comm.ranks() && (op.kind == Op::all_gather || op.kind == Op::all_to_all); ++r)
      std::memcpy(to + r * bytes + begin, comm.slot(r) + (parts > 1 ? own * part : 0), part);
    if (!comm.meet_on_streams()) return false;
  }
  return true;
}

struct Exchange {  // a send or a receive, part by part
  const Op& op;
  std::size_t gone = 0;

  std::size_t bytes() const { return op.count * type_bytes[op.type]; }
  bool go_on() {  // whether a part went
    Communicator& comm = *op.comm;
    const bool sends = op.kind == Op::send;
    const auto peer = static_cast<std::size_t>(op.peer);
    const std::size_t from = sends ? comm.rank() : peer, to = sends ? peer : comm.rank();
    Pipe& pipe = comm.pipe(from, to);
    if (gone == bytes() || (pipe.filled == pipe.emptied) != sends) return false;
    if (sends) pipe.total = bytes();
    if (pipe.total != bytes())
      misuse("a rank receives " + std::to_string(bytes()) + " of " + std::to_string(pipe.total) + " bytes");
    const std::size_t part = std::min(pipe_bytes, bytes() - gone);
    char* const room = comm.pipe_room(from, to);
    if (sends) {
      std::memcpy(room, static_cast<const char*>(memory().reach(op.from)) + gone, part);
      ++pipe.filled;
    } else {
      std::memcpy(static_cast<char*>(memory().reach(op.to)) + gone, room, part);
      ++pipe.emptied;
    }
    gone += part;
    return true;
  }
};

void run(const std::vector<Op>& ops, unsigned number) {
  Communicator& comm = *ops.front().comm;
  follow_script(ops.front().name + std::string("/kernel"), number);
  if (comm.is_aborted()) return;
  std::vector<Exchange> exchanges;
  for (const Op& op : ops) {
    if (op.kind >= Op::send) {
      exchanges.push_back({op});
    } else if (!run_collective(op)) {
      return;
    }
  }
  const auto comes_first = [&](const Exchange& one) {  // of those that use its pipe, and go on
    return &one == &*std::find_if(exchanges.begin(), exchanges.end(), [&](const Exchange& e) {
      return e.op.kind == one.op.kind && e.op.peer == one.op.peer && e.gone < e.bytes();
    });
  };
  comm.await([&] {  // all of a group go on together
    bool any = false;
    for (Exchange& one : exchanges) any = (one.gone < one.bytes() && comes_first(one) && one.go_on()) || any;
    if (any) comm.ring();
    return std::all_of(exchanges.begin(), exchanges.end(), [](const Exchange& e) { return e.gone == e.bytes(); });
  });
}

unsigned number_of(const std::string& kernel) {
  static std::mutex guard;
  static std::map<std::string, unsigned> kernels;
  const std::lock_guard lock(guard);
  return ++kernels[kernel];
}

thread_local int depth = 0;
thread_local std::vector<Op> grouped;

int launch_all(std::vector<Op> ops) {  // one kernel for each communicator and stream
  while (!ops.empty()) {
    const auto other = std::stable_partition(ops.begin(), ops.end(), [first = ops.front()](const Op& op) {
      return op.comm == first.comm && op.stream == first.stream;
    });
    const std::vector<Op> these(ops.begin(), other);
    ops.erase(ops.begin(), other);
    std::vector<Access> accesses;
    for (const Op& op : these) accesses.insert(accesses.end(), op.accesses.begin(), op.accesses.end());
    static std::mutex launching;  // turns are taken in the order of launches
    const std::lock_guard lock(launching);
    Communicator& comm = *these.front().comm;
    simulated_gpu()->launch(these.front().stream, these.front().name, accesses,
                            [these, turn = comm.take_turn(), number = number_of(these.front().name)] {
                              these.front().comm->run_in_turn(turn, [&] { run(these, number); });
                            });
  }
  return success;
}

}  // namespace

int issue(Op op, std::size_t read, std::size_t written) {
  if (const int asked = enter(op.name, false); asked != 0) return failed(asked, "as SIMULATED_GPU asks");
  if (op.comm == nullptr) return failed(invalid_argument, "the communicator was destroyed or never made");
  if (op.type >= types) return failed(invalid_argument, "this type of element is not simulated");
  const std::size_t each = type_bytes[op.type];
  for (const Access& one : {Access{.at = op.from, .bytes = read * each, .write = false},
                            Access{.at = op.to, .bytes = written * each, .write = true}}) {
    if (one.bytes == 0) continue;
    if (!memory().holds(one.at)) misuse(std::string(op.name) + " is given an address that is not the device's");
    op.accesses.push_back(one);
  }
  if (op.reduction >= first_own) {
    if (const void* const at = op.comm->factor(op.reduction).first; at != nullptr)
      op.accesses.push_back({.at = at, .bytes = each, .write = false});
  }
  if (depth == 0) return launch_all({std::move(op)});
  grouped.push_back(std::move(op));
  return success;
}

void begin_group() { ++depth; }

int end_group() {
  if (depth == 0) return failed(invalid_usage, "ncclGroupEnd without ncclGroupStart");
  return --depth > 0 ? static_cast<int>(success) : launch_all(std::exchange(grouped, {}));
}

}  // namespace vedette::simulated::nccl
