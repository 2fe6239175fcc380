// Capture of streams and replay of what was captured. A stream that is captured queues nothing: its commands are kept,
// and so are those of each stream that waits for an event of the capture. A replay queues them all, with the accesses
// they make. Those of the first stream come on the stream that replays, those of each other one on a stream of the
// graph's own, in the order of the captured events. So the detector finds a race inside of a graph, in each replay.
//
// As in CUDA: a graph's replays run one after the other; what other streams do has to be joined before the capture
// ends; the host waits for nothing that is captured. While a stream is captured, calls that may wait for the device
// are refused, unless the thread's mode allows them, and spoil the capture.
//
// Thread rule: any thread. A capture is of one thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/api.h"
#include "simulated_gpu/entry.h"
#include "simulated_gpu/streams.h"

namespace vedette::simulated {

constexpr int capture_unsupported = 900, capture_invalidated = 901, capture_unjoined = 904, capture_isolation = 905,
              captured_event = 907, wrong_thread_or_state = 401;

class Capture : public std::enable_shared_from_this<Capture> {
 public:
  using Mode = cuda::CaptureMode;
  using Command = std::function<void(Stream&)>;  // queues itself on the stream that replays it

  static int begin(const std::shared_ptr<Stream>& stream, Mode mode);
  // All joined, and nothing was refused: `ended` has it.
  static int end(Stream& stream, std::shared_ptr<Capture>* ended);
  // Calls that may wait, of memory and of events, are refused in this thread now: the error, and its captures are
  // spoilt.
  static int refuse_waits();
  static Mode exchange_mode(Mode mode);  // of the calling thread

  std::uint64_t number() const noexcept { return number_; }
  std::size_t size() const noexcept { return items_.size(); }
  void spoil();  // it ends with an error
  void keep(Stream& on, Command command);
  // The event's record stands for this point of the capture. Returns its number.
  std::size_t record(Stream& on);
  int let_wait(const std::shared_ptr<Stream>& stream, std::size_t record);  // which joins the capture
  void replay(const std::shared_ptr<Stream>& on);

  Capture(std::uint64_t number, Mode mode) : number_(number), mode_(mode) {}
  ~Capture();

 private:
  using Known = std::vector<std::uint64_t>;  // by member: how much of its work comes before
  struct Member {
    std::shared_ptr<Stream> stream;
    Known known;
    std::uint64_t work = 0;
  };
  struct Item {
    enum class Kind : std::uint8_t { work, record, wait } kind = Kind::work;
    std::size_t member = 0, record = 0;
    Command command;
  };
  std::size_t member(Stream& stream) const;
  void join(const std::shared_ptr<Stream>& stream);
  void let_go();

  const std::uint64_t number_;
  const Mode mode_;
  std::mutex guard_;
  std::vector<Member> members_;  // the first one began it
  std::vector<Item> items_;
  std::vector<Known> records_;
  bool spoilt_ = false, ended_ = false;
  std::vector<cuda::StreamHandle> others_;  // that replay what others than the first did
  std::shared_ptr<Event> replayed_;         // the latest replay has ended
};

// A graph, and what is made of it to be replayed, own the capture.
using GraphHandle = std::shared_ptr<Capture>*;

}  // namespace vedette::simulated

SIMULATED_EXPORT int cuThreadExchangeStreamCaptureMode(vedette::cuda::CaptureMode* mode);
SIMULATED_EXPORT int cuStreamBeginCapture_v2(vedette::cuda::StreamHandle stream, int mode);
SIMULATED_EXPORT int cuStreamEndCapture(vedette::cuda::StreamHandle stream, vedette::simulated::GraphHandle* graph);
SIMULATED_EXPORT int cuGraphInstantiateWithFlags(vedette::simulated::GraphHandle* made,
                                                 vedette::simulated::GraphHandle graph, unsigned long long flags);
SIMULATED_EXPORT int cuGraphLaunch(vedette::simulated::GraphHandle made, vedette::cuda::StreamHandle stream);
SIMULATED_EXPORT int cuGraphDestroy(vedette::simulated::GraphHandle graph);
SIMULATED_EXPORT int cuGraphExecDestroy(vedette::simulated::GraphHandle made);
