// The daemon that shares one memory among programs: the books of share/office.h behind a socket.
//
// One thread. A client whose connection ends, by its death for one, is forgotten at once. One that does not read makes
// nothing wait: what it is told queues.
#pragma once
#include <atomic>
#include <deque>
#include <map>
#include <string>

#include "base/fd.h"
#include "share/office.h"
#include "vedette/result.h"

namespace vedette::cli {

class MemoryDaemon {
 public:
  // Errors: those of listen_at().
  static Result<MemoryDaemon> open(const std::string& path, const share::Policy& policy, Bytes capacity);
  // Serves until `over`, which it looks at once a second, or when something comes.
  void serve(const std::atomic<bool>& over);

 private:
  MemoryDaemon(Fd listening, const share::Policy& policy, Bytes capacity)
      : listening_(std::move(listening)), office_(policy, capacity) {}
  struct Client {
    Fd socket;
    std::uint32_t pid = 0;
    std::deque<share::Message> unsent;
  };

  void welcome();
  void read(share::ClientId id);
  void deliver(const std::vector<share::Letter>& letters);
  void flush();
  void forget(share::ClientId id);

  Fd listening_;
  bool accepts_ = true;  // else none until the next tick
  share::Office office_;
  share::ClientId last_ = 0;
  std::map<share::ClientId, Client> clients_;
};

}  // namespace vedette::cli
