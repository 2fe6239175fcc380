// The engine's parts have this in common: the memory, the books, figures and words, and the one lock.
//
// A part calls only those below it (engine.h draws them). One below says what happened by what it returns.
//
// Thread rule: every function of a part is called with the lock, unless it says otherwise.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "engine/books.h"
#include "engine/failed_writes.h"
#include "engine/figures.h"
#include "engine/options.h"
#include "engine/quick_op.h"
#include "os/chunk_memory.h"
#include "os/program.h"

namespace vedette::engine {

// Sentences for the program, and what the engine's owner knows of chunks.
class Words {
 public:
  explicit Words(EngineOptions& options)
      : on_message_(std::move(options.on_message)),
        describe_(std::move(options.describe)),
        on_dropped_wanted_(std::move(options.on_dropped_wanted)),
        kept_by_closed_(options.kept_by_closed) {}

  bool heard() const noexcept { return on_message_ != nullptr; }
  void tell(std::string_view sentence) const {
    if (on_message_) on_message_(sentence);
  }
  std::string describe(ChunkIndex c) const { return describe_ ? describe_(c) : "chunk " + std::to_string(c.value); }
  void want_dropped(ChunkIndex c) const {
    if (on_dropped_wanted_) on_dropped_wanted_(c);
  }
  // Tensors of closed sessions keep at most half of a budget (session/open.cc).
  Bytes budget_for(Bytes wanted) const noexcept { return wanted + std::min(wanted, kept_by_closed_); }

 private:
  const std::function<void(std::string_view)> on_message_;
  const std::function<std::string(ChunkIndex)> describe_;
  const std::function<void(ChunkIndex)> on_dropped_wanted_;
  const Bytes kept_by_closed_;
};

struct Common {
  const Bytes chunk_bytes;
  Program& program;
  const bool by_hand;  // no threads: a call that waits takes the migrator's turns
  const Words words;
  std::unique_ptr<ChunkMemory> memory = nullptr;  // from Engine::start() to the engine's end

  mutable std::mutex mutex = {};         // guards all that follows
  std::condition_variable arrived = {};  // something became resident or free
  Books books;
  Figures figures;
  QuickOp quick = {};
  FailedWrites failed_writes = {};
  bool ends = false;  // the engine
};

class PartOfEngine {
 protected:
  explicit PartOfEngine(Common& engine)
      : chunk_bytes_(engine.chunk_bytes),
        program_(engine.program),
        by_hand_(engine.by_hand),
        words_(engine.words),
        memory_(engine.memory),
        mutex_(engine.mutex),
        arrived_(engine.arrived),
        books_(engine.books),
        figures_(engine.figures),
        quick_(engine.quick),
        failed_writes_(engine.failed_writes),
        ends_(engine.ends) {}

  const Bytes chunk_bytes_;
  Program& program_;
  const bool by_hand_;
  const Words& words_;
  const std::unique_ptr<ChunkMemory>& memory_;
  std::mutex& mutex_;
  std::condition_variable& arrived_;
  Books& books_;
  Figures& figures_;
  QuickOp& quick_;
  FailedWrites& failed_writes_;
  const bool& ends_;
};

}  // namespace vedette::engine
