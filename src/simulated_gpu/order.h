// What happens before what: finds two accesses of the same bytes that nothing orders, one of which is a write.
//
// A vector clock a stream, and one for the host. Queueing a command is a tick of its stream. A stream learns another's
// clock by waiting for an event, the host by waiting for an event, a stream or the device; what the host knows, every
// command queued later knows. So a race is found whatever the timing was, when its second access is queued.
//
// What is not seen: accesses by host code, and order between host threads (one clock stands for all of them, so that
// two threads are taken to be ordered). A wait for a word of memory (cuStreamWaitValue32) is taken to order all that
// was queued before it. Both miss races; neither reports one that is none.
//
// Thread rule: any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vedette::simulated {

using VectorClock = std::vector<std::uint64_t>;  // [stream] -> how many of its commands are known to have run

class Order {
 public:
  using StreamNumber = std::size_t;
  struct Bytes {
    std::uintptr_t begin = 0, end = 0;
  };

  struct Side {
    std::string what;
    StreamNumber stream = 0;
    bool write = false;
    std::uint32_t stack = 0;  // of call_stacks.h
  };
  struct Race {
    Side first, second;  // in the order in which they were queued
    Bytes bytes;         // that both have
  };

  // Returns the accesses that it races with: each command once, with the first bytes that both have.
  std::vector<Race> access(StreamNumber, Bytes, bool write, std::string_view what, std::uint32_t stack = 0);
  std::shared_ptr<const VectorClock> record(StreamNumber);
  void stream_waits(StreamNumber, const VectorClock&);
  void stream_waits_for_all(StreamNumber);
  void host_waits(const VectorClock&);

  // The memory goes away, or becomes other memory: says which access may still run ("" when the host has waited for
  // all), and forgets what was done there.
  std::string take_away(Bytes);

  std::vector<std::string> races() const;
  void forget_races();

 private:
  using Command = std::uint32_t;  // of commands_
  struct Touch {
    std::uintptr_t end = 0;
    VectorClock reads;
    std::vector<Command> read_by;  // [stream]
    std::size_t writer = 0;
    std::uint64_t written = 0;  // 0: not yet
    Command written_by = 0;
    void read(StreamNumber, std::uint64_t now, Command);
  };
  using Touches = std::map<std::uintptr_t, Touch>;

  std::uint64_t tick(StreamNumber);
  VectorClock& clock(StreamNumber);
  Touches::iterator cut(std::uintptr_t at);
  Command command(std::string_view what, std::uint32_t stack);
  Side side(Command, StreamNumber, bool write) const;
  void report(const Race&);

  mutable std::mutex guard_;
  std::vector<VectorClock> clocks_;
  VectorClock host_;
  Touches touches_;
  std::vector<std::pair<std::string, std::uint32_t>> commands_;  // what, stack
  std::map<std::pair<std::string, std::uint32_t>, Command, std::less<>> numbers_;
  std::vector<std::string> races_;
  std::uint64_t count_ = 0;
};

Order& order();

}  // namespace vedette::simulated
