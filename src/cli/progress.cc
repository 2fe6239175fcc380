#include "cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/printable.h"

namespace vedette::cli {

namespace {

constexpr auto patience = std::chrono::seconds(1);
constexpr auto pause = std::chrono::milliseconds(500);  // between two lines
constexpr const char* fresh_line = "\r\x1b[K";

}  // namespace

Progress::Progress(std::string verb, std::string doing) : verb_(std::move(verb)), doing_(std::move(doing)) {
  if (::isatty(STDERR_FILENO) != 0)
    writer_ = std::jthread([this](const std::stop_token& stop) noexcept { write_until(stop); });
}

Progress::~Progress() {
  if (!writer_.joinable()) return;
  writer_.request_stop();
  writer_.join();
  clear();
}

void Progress::say(std::string doing) {
  const std::lock_guard lock(mutex_);
  doing_ = std::move(doing);
}

void Progress::clear() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(shown_, false)) std::fputs(fresh_line, stderr);
}

void Progress::write_until(const std::stop_token& stop) noexcept {
  std::unique_lock lock(mutex_);
  for (auto wait = std::chrono::milliseconds(patience);
       !wake_.wait_for(lock, stop, wait, [&] { return stop.stop_requested(); }); wait = pause) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - began_).count();
    std::fprintf(stderr, "%svedette %s: %s, %lld s", fresh_line, verb_.c_str(), printable(doing_).c_str(),
                 static_cast<long long>(seconds));
    shown_ = true;
  }
}

}  // namespace vedette::cli
