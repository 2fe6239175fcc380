#include "simulated_gpu/shared_frames.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <span>

#include "simulated_gpu/options.h"

namespace vedette::simulated {

struct SharedFrames::Holder {
  pid_t process;  // 0: nobody
  std::size_t frames;
};

struct SharedFrames::Locked {  // ends with its process, whatever happens
  explicit Locked(int file) : of(file) { ::flock(of, LOCK_EX); }
  ~Locked() { ::flock(of, LOCK_UN); }
  int of;
};

namespace {

constexpr std::size_t most_processes = 64;

bool is_there(pid_t process) { return process != 0 && (::kill(process, 0) == 0 || errno == EPERM); }

}  // namespace

SharedFrames::SharedFrames(const std::string& path) {
  if (path.empty()) return;
  constexpr std::size_t bytes = most_processes * sizeof(Holder);
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* at = MAP_FAILED;
  if (file_ >= 0 && ::ftruncate(file_, bytes) == 0)
    at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (at == MAP_FAILED) misuse("the file of shared=" + path + " cannot be opened and mapped");
  holders_ = static_cast<Holder*>(at);
}

SharedFrames::~SharedFrames() {
  if (holders_ == nullptr) return;
  ::munmap(holders_, most_processes * sizeof(Holder));
  ::close(file_);
}

// With the lock. A forked child has an entry of its own.
SharedFrames::Holder* SharedFrames::mine() const {
  const std::span all(holders_, most_processes);
  const pid_t self = ::getpid();
  for (Holder& each : all)
    if (each.process == self) return &each;
  for (Holder& each : all) {
    if (is_there(each.process)) continue;
    each = {.process = self, .frames = 0};
    return &each;
  }
  misuse("more than 64 processes share a device");
}

bool SharedFrames::take(std::size_t count, std::size_t of) {
  if (holders_ == nullptr) return true;
  const Locked lock(file_);
  Holder* const self = mine();
  if (all_of_others() + self->frames + count > of) return false;
  self->frames += count;
  return true;
}

void SharedFrames::give_back(std::size_t count) {
  if (holders_ == nullptr) return;
  const Locked lock(file_);
  std::size_t& frames = mine()->frames;
  frames -= std::min(frames, count);  // a forked child gives back its parent's
}

std::size_t SharedFrames::of_others() const {
  if (holders_ == nullptr) return 0;
  const Locked lock(file_);
  return all_of_others();
}

std::size_t SharedFrames::all_of_others() const {
  std::size_t sum = 0;
  for (const Holder& each : std::span(holders_, most_processes))
    if (each.process != ::getpid() && is_there(each.process)) sum += each.frames;
  return sum;
}

}  // namespace vedette::simulated
