// How fast is the disk? Measured by fio (io_uring, O_DIRECT) on a file of the bench, with the settings that are
// fastest.
//
// These are huge pages under its buffers, through glibc's malloc, and buffers that it does not rewrite before each
// write. With 4 KiB pages a request has 512 segments, and the disk takes it in pieces. Thread rule: any, one job on a
// file at a time. Errors: vedette::Failure with a sentence.
#pragma once
#include <cstdint>
#include <string>

#include "base/fd.h"
#include "vedette/units.h"

namespace vedette::bench {

bool fio_is_installed();

// A preallocated file for O_DIRECT. It has a name, for fio, and loses it at the end.
class DiskFile {
 public:
  DiskFile(const std::string& directory, Bytes size);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Fd fd_;
};

struct FioJob {
  std::string file;
  Bytes size;  // of the file
  Bytes block = {std::uint64_t{2} << 20};
  std::uint32_t depth = 16;
  bool fixed_buffers = true;  // registered with the ring
  int read_percent = 100;     // of the requests; the others write; offsets at random
  double seconds = 1;
};

struct FioResult {
  double bytes_per_s = 0;  // both directions together
  double cpu_us = 0;       // of a request
  double idle_s = 0;       // fio starts and ends without touching the disk
};
FioResult run_fio(const FioJob& job);
// writes the file once, from its begin to its end: the first write of a block costs more
void fill_by_fio(const FioJob& job);

// The standard output of a command, "" if it cannot be started.
std::string output_of(const std::string& command);

}  // namespace vedette::bench
