// The progress of a verb, on standard error, where a terminal shows it. It is one line that is written over, from the
// second second on, and only to a terminal. A thread writes it, since a verb may be in one long call.
//
// Thread rule: one thread at a time calls say() and clear().
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace vedette::cli {

class Progress {
 public:
  explicit Progress(std::string verb, std::string doing = {});
  ~Progress();  // takes the line away
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void say(std::string doing);  // "simulates vedette in 300.0 MiB"
  void clear();                 // before the verb itself writes a line

 private:
  void write_until(const std::stop_token& stop) noexcept;

  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::string verb_, doing_;  // guarded by mutex_, as is the next
  bool shown_ = false;
  std::jthread writer_;  // last: it uses all of these
};

}  // namespace vedette::cli
