// The recording that a guard makes where its options or the environment ask for one. A program that
// cannot be built again is recorded by VEDETTE_RECORD=FILE. With VEDETTE_RECORD_STACKS=1 recordings have the stack of
// calls of each allocation. Each rank of a job makes a file of its own, FILE with .rank-R before its suffix.
//
// It also shows the guard's counters to `vedette top`, recorded or not.
//
// Thread rule: the training thread.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "adapter/torch/live_session.h"
#include "profiler/recorder.h"
#include "vedette/torch.h"

namespace vedette::adapter {

class GuardRecording {
 public:
  // Throws Failure where the file cannot be made, and where the program asks for a recording beside an observer of its
  // own. Where only the environment asks for it beside an observer, a message says that there is none.
  // `progress`, which may be none, hears at the end which command makes a page of it.
  using Say = std::function<void(std::string_view)>;
  GuardRecording(const GuardOptions& options, Say say, Say progress);
  // Writes the rest, and says why it could not. In a forked child it does nothing: the file is the parent's.
  ~GuardRecording();
  GuardRecording(const GuardRecording&) = delete;
  GuardRecording& operator=(const GuardRecording&) = delete;

  Observer* observer() const noexcept { return recorder_.get(); }  // nullptr: nothing is recorded
  LiveSession& live() const noexcept { return *live_; }

 private:
  void open(const GuardOptions& options);

  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<LiveSession> live_;
  Say say_, progress_;
  std::string path_;
  pid_t made_in_;
};

}  // namespace vedette::adapter
