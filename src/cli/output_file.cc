#include "cli/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <utility>

#include "base/fd.h"
#include "vedette/result.h"

namespace vedette::cli {
namespace {

namespace fs = std::filesystem;

// Of a descriptor that the shell opened: it would lose a file that were replaced.
bool names_a_descriptor(const std::string& name) {
  std::error_code unknown;
  const std::string whole = fs::absolute(name, unknown).lexically_normal().string();
  return whole.starts_with("/dev/std") || whole.starts_with("/dev/fd/") || whole.starts_with("/proc/");
}

// The file behind symbolic links, also where it is still to be made.
std::string behind_links(const std::string& name) {
  constexpr int most_links = 40;  // as the kernel follows
  std::error_code unknown;
  fs::path path = name;
  for (int links = 0; links < most_links && fs::is_symlink(fs::symlink_status(path, unknown)); ++links)
    path = path.parent_path() / fs::read_symlink(path, unknown);
  return path.string();
}

std::string unfinished_name(const std::string& target) {
  static std::atomic<unsigned> number = 0;  // relaxed: only its value counts
  return target + ".unfinished-" + std::to_string(::getpid()) + "-" +
         std::to_string(number.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace

void refuse_input(const std::string& output, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code unknown;
    if (fs::is_regular_file(input, unknown) && fs::equivalent(output, input, unknown))
      throw Failure({Cause::malformed_input, output + " is read here, and writing it would destroy it" +
                                                 (output == input ? "" : " (it is " + input + ")") +
                                                 "; name another file"});
  }
}

OutputFile::OutputFile(std::string name, const std::vector<std::string>& inputs) : name_(std::move(name)) {
  refuse_input(name_, inputs);
  std::error_code unknown;
  if (fs::is_directory(name_, unknown)) fail("it is a directory");
  if (name_ == "/dev/stdout") {  // one place in the file with what is printed
    out_ = &std::cout;
    mind_terminal(STDOUT_FILENO);
    return;
  }
  const fs::file_status there = fs::status(name_, unknown);
  if (names_a_descriptor(name_) || (fs::exists(there) && !fs::is_regular_file(there))) {
    file_.open(name_, std::ios::binary | std::ios::app);
    if (!file_) fail(std::strerror(errno));
    if (!fs::is_character_file(there)) return;
    const Fd again(::open(name_.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
    mind_terminal(again.get());
    return;
  }
  target_ = behind_links(name_);
  if (fs::exists(there) && ::access(target_.c_str(), W_OK) != 0) fail(std::strerror(errno));
  unfinished_ = unfinished_name(target_);
  open();
  file_.close();  // an interrupted verb leaves nothing, unless it was writing
  ::unlink(unfinished_.c_str());
}

void OutputFile::mind_terminal(int descriptor) {
  if (::isatty(descriptor) != 0) out_ = &terminal_.emplace(*out_);
}

OutputFile::~OutputFile() {
  if (unfinished_.empty()) return;
  file_.close();
  ::unlink(unfinished_.c_str());
}

void OutputFile::open() {
  file_.open(unfinished_, std::ios::binary);
  if (!file_) fail(std::strerror(errno));
}

std::ostream& OutputFile::stream() {
  if (!unfinished_.empty() && !file_.is_open()) open();
  return *out_;
}

void OutputFile::finish() {
  if (!stream().flush()) fail(std::strerror(errno));
  if (unfinished_.empty()) return;
  file_.close();
  std::error_code failed;
  if (const fs::file_status there = fs::status(target_, failed); fs::exists(there))
    fs::permissions(unfinished_, there.permissions(), failed);
  fs::rename(unfinished_, target_, failed);
  if (failed) fail(failed.message());
  unfinished_.clear();
}

void OutputFile::fail(const std::string& why) const {
  throw Failure({Cause::system, name_ + " cannot be written: " + why + "; name another file"});
}

std::optional<OutputFile> optional_output(const std::string& name, const std::vector<std::string>& inputs) {
  if (name.empty()) return std::nullopt;
  return std::optional<OutputFile>(std::in_place, name, inputs);
}

void write_output(const std::string& name, const std::vector<std::string>& inputs, std::string_view text) {
  OutputFile out(name, inputs);
  out.stream() << text;
  out.finish();
}

}  // namespace vedette::cli
