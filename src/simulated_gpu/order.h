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
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace vedette::simulated {

using VectorClock = std::vector<std::uint64_t>;  // [stream] -> how many of its commands are known to have run

class Order {
 public:
  using StreamNumber = std::size_t;
  struct Bytes {
    std::uintptr_t begin = 0, end = 0;
  };

  void access(StreamNumber, Bytes, bool write, std::string_view what);
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
  struct Touch {
    std::uintptr_t end = 0;
    VectorClock reads;
    std::size_t writer = 0;
    std::uint64_t written = 0;  // 0: not yet
    std::string read_by, written_by;
  };
  using Touches = std::map<std::uintptr_t, Touch>;

  std::uint64_t tick(StreamNumber);
  VectorClock& clock(StreamNumber);
  Touches::iterator cut(std::uintptr_t at);
  void report(std::string);

  mutable std::mutex guard_;
  std::vector<VectorClock> clocks_;
  VectorClock host_;
  Touches touches_;
  std::vector<std::string> races_;
  std::uint64_t count_ = 0;
};

Order& order();

}  // namespace vedette::simulated
