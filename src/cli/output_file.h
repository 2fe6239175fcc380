// A file that a verb writes. It is none of the files that the verb reads, and what was there before stays until the new
// text is whole: that is written beside it and renamed at the end. A symbolic link stays one: the file behind it is
// replaced. Devices, pipes and the files of other descriptors (/dev, /proc) are written straight.
//
// Thread rule: one thread at a time.
#pragma once
#include <fstream>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/print.h"

namespace vedette::cli {

// Throws Failure where `output` is one of `inputs`, also by another name or a link. Inputs that are no files, such as
// the names of policies, are passed over.
void refuse_input(const std::string& output, const std::vector<std::string>& inputs);

class OutputFile {
 public:
  // Throws Failure: as refuse_input(), or it cannot be written. Errors are told here, before hours of work.
  OutputFile(std::string name, const std::vector<std::string>& inputs);
  ~OutputFile();  // without finish(): no trace of this, but for what went straight
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  std::ostream& stream();  // throws Failure
  void finish();           // at most once; throws Failure

 private:
  void open();
  void mind_terminal(int descriptor);
  [[noreturn]] void fail(const std::string& why) const;

  std::string name_, target_, unfinished_;  // unfinished_: empty where it is written straight
  std::ofstream file_;
  std::optional<TerminalStream> terminal_;  // over file_, or standard output, where that is a terminal
  std::ostream* out_ = &file_;
};

// None where `name` is empty.
std::optional<OutputFile> optional_output(const std::string& name, const std::vector<std::string>& inputs);
void write_output(const std::string& name, const std::vector<std::string>& inputs, std::string_view text);

}  // namespace vedette::cli
