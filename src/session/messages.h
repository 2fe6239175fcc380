// Sentences on their way to SessionOptions::on_message, and lines to on_progress. They arise where locks are held, in
// the session, in the engine and in the page profile; the program's callback runs where none is held, so that it may
// ask the session.
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
#include <utility>

namespace vedette::detail {

class Messages {
 public:
  using Callback = std::function<void(std::string_view)>;

  explicit Messages(Callback on_message = {}, Callback on_progress = {})
      : on_message_(std::move(on_message)), on_progress_(std::move(on_progress)) {}

  // Both are dropped where there is no callback.
  void post(std::string_view sentence) { post(sentence, &on_message_); }
  void post_progress(std::string_view line) { post(line, &on_progress_); }
  // Calls the callback once for each sentence posted so far, in order where one thread delivers. The callback may post
  // again, by a call of the session: that sentence is delivered too.
  void deliver();
  // Delivers the rest; sentences that are posted later are dropped. The callback may not outlive the session, while
  // tensors do. Another thread that delivers at the time may still be in the callback.
  void end();

 private:
  void post(std::string_view sentence, const Callback* to);

  const Callback on_message_, on_progress_;
  std::mutex mutex_;
  std::deque<std::pair<std::string, const Callback*>> posted_;
  bool ended_ = false;
  std::atomic<bool> some_ = false;  // relaxed: a hint; a sentence that deliver() misses waits for the next call
};

}  // namespace vedette::detail
