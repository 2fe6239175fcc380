// Sentences on their way to SessionOptions::on_message. They arise where locks are held, in the session, in the engine
// and in the page profile; the program's callback runs where none is held, so that it may ask the session.
//
// Thread rule: any thread. post() takes no lock but its own. deliver() holds no lock while the callback runs; it is
// called at the end of every call of the session that may have posted.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace vedette::detail {

class Messages {
 public:
  using Callback = std::function<void(std::string_view)>;

  explicit Messages(Callback callback = {}) : callback_(std::move(callback)) {}

  void post(std::string_view sentence);  // dropped where there is no callback
  // Calls the callback once for each sentence posted so far, in order where one thread delivers. The callback may post
  // again, by a call of the session: that sentence is delivered too.
  void deliver();
  // Delivers the rest; sentences that are posted later are dropped. The callback may not outlive the session, while
  // tensors do. Another thread that delivers at the time may still be in the callback.
  void end();

 private:
  const Callback callback_;
  std::mutex mutex_;
  std::deque<std::string> posted_;
  bool ended_ = false;
  std::atomic<bool> some_ = false;  // relaxed: a hint; a sentence that deliver() misses waits for the next call
};

}  // namespace vedette::detail
