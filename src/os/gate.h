// A thread that gets SIGSEGV in a chunk waits at its gate: a word per chunk, closed while the chunk must not be
// touched. The signal handler tells the sink (through a pipe and a thread, since a handler may do next to nothing) and
// sleeps until the gate opens.
//
//   closed (even) --open()--> open (odd) --close()--> closed      one counter a chunk: no wake-up is lost or mistaken
//
// Thread rule: open() and close() of one chunk by one thread at a time; of different chunks at once.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/fd.h"
#include "base/this_process.h"
#include "os/parking.h"
#include "os/signals.h"
#include "vedette/result.h"

namespace vedette {

class Gate {
 public:
  // Every gate starts closed.
  static Result<std::unique_ptr<Gate>> make(const Layout&, FaultSink on_fault);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open(ChunkIndex chunk) noexcept;
  void close(ChunkIndex chunk) noexcept;
  // threads at a closed gate send their faults to the sink again; threads at an open one go on
  void ask_again(ChunkIndex chunk) noexcept;

 private:
  Gate(const Layout& layout, FaultSink on_fault);
  // In a child with a copy of this memory no thread would ever open a gate, so its faults pass.
  static SegvAnswer on_segv(void* gate, std::byte* address, bool write) noexcept;
  SegvAnswer wait(const Fault& fault, const std::byte* address) noexcept;
  void run() noexcept;

  Layout layout_;
  const std::uint64_t made_in_ = this_process();
  FaultSink on_fault_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> words_;
  std::atomic<bool> gone_{false};
  Fd told_, tell_;  // the two ends of the pipe
  std::thread thread_;
  std::unique_ptr<SegvClaim> claim_;
};

}  // namespace vedette
