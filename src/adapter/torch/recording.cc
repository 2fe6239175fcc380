#include "adapter/torch/recording.h"

#include <errno.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "adapter/torch/machine_memory.h"
#include "sim/bound.h"

namespace vedette::adapter {
namespace {

// Each rank of a job has a file of its own: run.vedette of rank 1 is run.rank-1.vedette.
std::string with_rank(const std::string& path) {
  const auto rank = rank_of_a_job();
  if (!rank) return path;
  const std::filesystem::path whole(path);
  std::filesystem::path named = whole;
  named.replace_filename(whole.stem().string() + ".rank-" + std::to_string(*rank) + whole.extension().string());
  return named.string();
}

}  // namespace

GuardRecording::GuardRecording(const GuardOptions& options, Say say, Say progress)
    : say_(std::move(say)), progress_(std::move(progress)), made_in_(::getpid()) {
  open(options);
  LivePage* const page = recorder_ == nullptr ? nullptr : recorder_->live();
  live_ = std::make_unique<LiveSession>(::program_invocation_short_name, options.policy, page, sim::coarse_bound);
}

void GuardRecording::open(const GuardOptions& options) {
  // none where the program has more rights than its caller (setuid): the caller would choose a file that it writes
  const char* const asked = ::secure_getenv("VEDETTE_RECORD");
  const std::string path = !options.record.empty() ? options.record : asked != nullptr ? asked : "";
  if (path.empty()) return;
  if (options.observer != nullptr) {
    if (!options.record.empty())
      throw Failure({Cause::unsupported,
                     "record and observer are both given; leave one out, or open a vedette::Recorder and call it from "
                     "the observer.",
                     0});
    say_("VEDETTE_RECORD is not used, because the program has an observer of its own.");
    return;
  }
  const char* const stacks = ::secure_getenv("VEDETTE_RECORD_STACKS");
  path_ = with_rank(path);
  recorder_ = Recorder::open({.path = path_,
                              .program = ::program_invocation_short_name,
                              .stacks = stacks != nullptr && std::string_view(stacks) == "1",
                              .libtorch = TORCH_VERSION})
                  .value();
}

GuardRecording::~GuardRecording() {
  if (::getpid() != made_in_) {
    (void)recorder_.release();  // its thread and the page are the parent's
    (void)live_.release();
    return;
  }
  live_.reset();
  if (recorder_ == nullptr) return;
  recorder_->flush();
  if (const auto failure = recorder_->failure()) {
    say_("The recording is not whole: " + failure->message);
  } else if (progress_) {
    progress_("recorded in " + path_ + "; `vedette report " + path_ + " -o report.html` makes a page of it");
  }
}

}  // namespace vedette::adapter
