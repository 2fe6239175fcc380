// The ranks of a communicator: processes that share a memory file, which has no name. A communicator's id is "process
// descriptor cookie"; the other ranks open /proc/PROCESS/fd/DESCRIPTOR, so nothing is left however a rank ends.
//
// A rank that ends is seen through a pidfd: ncclCommGetAsyncError then says ncclRemoteError, and who waits for that
// rank waits on until the communicator is aborted or its own process ends, as on a GPU. Thread rule: any thread, but
// meet() of one kind is one thread's at a time.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace vedette::simulated::nccl {

enum Result { success = 0, system_error = 2, invalid_argument = 4, invalid_usage = 5, remote_error = 6 };
constexpr std::size_t most_ranks = 16, slot_bytes = 1 << 20, pipe_bytes = 1 << 18;

// Notes why, of the whole process, as NCCL does. Returns `result`.
int failed(int result, const std::string& why);
const char* last_error();

struct Id {  // ncclUniqueId
  char text[128];
};
Id make_id();

struct Seat {
  std::atomic<int> process;
  std::atomic<std::uint32_t> on_streams, on_hosts;  // how often this rank has met the others
  char what[128];                                   // the collective that it runs, to be compared
  int color, key;                                   // of a split
  Id child;
};
struct Pipe {  // from one rank to another
  std::atomic<std::uint32_t> filled, emptied;
  std::size_t total;
};
struct Shared;

class Communicator {
 public:
  // Joins the ranks of `id`; 0 or an ncclResult_t.
  static int join(std::shared_ptr<Communicator>& out, std::size_t ranks, const Id& id, std::size_t rank);
  ~Communicator();
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  std::size_t rank() const { return rank_; }
  std::size_t ranks() const { return ranks_; }
  int error() const { return error_; }
  bool is_aborted() const { return aborted_; }
  void abort();
  Seat& seat(std::size_t of);
  char* slot(std::size_t of);                         // of slot_bytes
  Pipe& pipe(std::size_t from, std::size_t to);       // whose bytes are in
  char* pipe_room(std::size_t from, std::size_t to);  // pipe_bytes
  void ring();                                        // after each change of what is shared
  // False: aborted, or `rounds` of 20 ms are over (0: they never are).
  bool await(const std::function<bool()>& done, int rounds = 0);
  bool meet_on_streams() { return meet(&Seat::on_streams, 0); }
  bool meet_on_hosts(int rounds = 0) { return meet(&Seat::on_hosts, rounds); }

  // Kernels run in the order of their turns, on whatever streams. The detector of races is not told of that order:
  // no program may rely on it.
  std::uint64_t take_turn();
  void run_in_turn(std::uint64_t turn, const std::function<void()>& kernel);

  // Own reductions: a factor on the device, or a number.
  int add_factor(const void* on_device, double number);
  std::pair<const void*, double> factor(int reduction);

 private:
  std::size_t bytes() const;
  bool meet(std::atomic<std::uint32_t> Seat::*times, int rounds);
  bool a_peer_ended() const;
  int take_seat(int maker, int descriptor);

  std::size_t rank_ = 0, ranks_ = 0;
  Shared* shared_ = nullptr;
  std::vector<int> peers_;  // pidfds
  std::atomic<bool> aborted_ = false;
  std::atomic<int> error_ = success;
  std::mutex guard_;
  std::condition_variable next_;
  std::uint64_t queued_ = 0, ended_ = 0;
  std::vector<std::pair<const void*, double>> factors_;
};

}  // namespace vedette::simulated::nccl
