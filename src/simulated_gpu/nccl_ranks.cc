// Processes that share a memory file: see nccl_ranks.h.
#include "simulated_gpu/nccl_ranks.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>

#include "simulated_gpu/nccl_numbers.h"
#include "simulated_gpu/options.h"

namespace vedette::simulated::nccl {
namespace {
constexpr int a_minute = 3000;  // rounds
char error_text[256];
}  // namespace

struct Shared {
  std::uint64_t cookie;
  std::atomic<std::uint32_t> bell;
  Seat seats[most_ranks];
  Pipe pipes[most_ranks][most_ranks];
};
constexpr std::size_t head_bytes = (sizeof(Shared) + 4095) / 4096 * 4096;

int failed(int result, const std::string& why) {
  std::snprintf(error_text, sizeof error_text, "%s", why.c_str());
  return result;
}
const char* last_error() { return error_text; }

Id make_id() {
  Id id{};
  const int fd = ::memfd_create("simulated_nccl", MFD_CLOEXEC);
  unsigned long long cookie = 0;
  if (::getrandom(&cookie, sizeof cookie, 0) != sizeof cookie || ::ftruncate(fd, head_bytes) != 0 ||
      ::pwrite(fd, &cookie, sizeof cookie, 0) != sizeof cookie)
    misuse("no memory file can be made; the simulated NCCL needs memfd_create");
  std::snprintf(id.text, sizeof id.text, "%d %d %llx", ::getpid(), fd, cookie);
  return id;
}

int Communicator::join(std::shared_ptr<Communicator>& out, std::size_t ranks, const Id& id, std::size_t rank) {
  int maker = 0, descriptor = 0;
  unsigned long long cookie = 0;
  if (ranks < 1 || ranks > most_ranks || std::sscanf(id.text, "%d %d %llx", &maker, &descriptor, &cookie) != 3)
    return failed(invalid_argument, "a communicator has 1 to 16 ranks, and an id of ncclGetUniqueId");
  const std::string path = "/proc/" + std::to_string(maker) + "/fd/" + std::to_string(descriptor);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  auto comm = std::make_shared<Communicator>();
  comm->rank_ = rank;
  comm->ranks_ = ranks;
  const bool grown = fd >= 0 && ::ftruncate(fd, static_cast<off_t>(comm->bytes())) == 0;
  void* const at = grown ? ::mmap(nullptr, comm->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (fd >= 0) ::close(fd);
  if (at != MAP_FAILED) comm->shared_ = static_cast<Shared*>(at);
  if (comm->shared_ == nullptr || comm->shared_->cookie != cookie)
    return failed(system_error, "the process that made the id has ended");
  if (const int error = comm->take_seat(maker, descriptor); error != success) return error;
  out = std::move(comm);
  return success;
}

int Communicator::take_seat(int maker, int descriptor) {
  if (seat(rank_).process.exchange(::getpid()) != 0) return failed(invalid_usage, "two processes are one rank");
  ring();
  for (std::size_t r = 0; r < ranks_; ++r) {
    const std::atomic<int>& peer = seat(r).process;
    if (!await([&] { return peer != 0; }, a_minute)) return failed(remote_error, "a rank did not come in a minute");
    if (r != rank_) peers_.push_back(static_cast<int>(::syscall(SYS_pidfd_open, peer.load(), 0)));
  }
  if (!meet_on_hosts(a_minute)) return failed(remote_error, "a rank ended while the communicator was made");
  if (maker == ::getpid()) ::close(descriptor);
  return success;
}

Communicator::~Communicator() {
  for (const int fd : peers_) ::close(fd);
  if (shared_ != nullptr) ::munmap(shared_, bytes());
}

std::size_t Communicator::bytes() const { return head_bytes + ranks_ * slot_bytes + ranks_ * ranks_ * pipe_bytes; }
Seat& Communicator::seat(std::size_t of) { return shared_->seats[of]; }
char* Communicator::slot(std::size_t of) { return reinterpret_cast<char*>(shared_) + head_bytes + of * slot_bytes; }
Pipe& Communicator::pipe(std::size_t from, std::size_t to) { return shared_->pipes[from][to]; }
char* Communicator::pipe_room(std::size_t from, std::size_t to) {
  return slot(ranks_) + (from * ranks_ + to) * pipe_bytes;
}

void Communicator::ring() {
  ++shared_->bell;
  ::syscall(SYS_futex, &shared_->bell, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

void Communicator::abort() {
  aborted_ = true;
  ring();
}

bool Communicator::a_peer_ended() const {
  return std::any_of(peers_.begin(), peers_.end(), [](int fd) {
    pollfd asked{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&asked, 1, 0) > 0;
  });
}

bool Communicator::await(const std::function<bool()>& done, int rounds) {
  constexpr timespec round{.tv_sec = 0, .tv_nsec = 20'000'000};
  for (int waited = 0;;) {
    const std::uint32_t bell = shared_->bell;
    if (done()) return true;
    if (aborted_) return false;
    if (a_peer_ended() && !done() && error_.exchange(remote_error) == success) failed(remote_error, "a rank has ended");
    const bool late =
        ::syscall(SYS_futex, &shared_->bell, FUTEX_WAIT, bell, &round, nullptr, 0) != 0 && errno == ETIMEDOUT;
    if (late && rounds > 0 && ++waited >= rounds) return false;
  }
}

bool Communicator::meet(std::atomic<std::uint32_t> Seat::*times, int rounds) {
  const std::uint32_t mine = ++(seat(rank_).*times);
  ring();
  const auto is_here = [&](const Seat& s) { return static_cast<std::int32_t>((s.*times).load() - mine) >= 0; };
  return await([&] { return std::all_of(shared_->seats, shared_->seats + ranks_, is_here); }, rounds);
}

std::uint64_t Communicator::take_turn() {
  const std::lock_guard lock(guard_);
  return queued_++;
}

void Communicator::run_in_turn(std::uint64_t turn, const std::function<void()>& kernel) {
  std::unique_lock lock(guard_);
  next_.wait(lock, [&] { return ended_ == turn; });
  lock.unlock();
  kernel();
  lock.lock();
  ++ended_;
  next_.notify_all();
}

int Communicator::add_factor(const void* on_device, double number) {
  const std::lock_guard lock(guard_);
  factors_.emplace_back(on_device, number);
  return first_own + static_cast<int>(factors_.size()) - 1;
}

std::pair<const void*, double> Communicator::factor(int reduction) {
  const std::lock_guard lock(guard_);
  return factors_.at(static_cast<std::size_t>(reduction - first_own));
}

}  // namespace vedette::simulated::nccl
