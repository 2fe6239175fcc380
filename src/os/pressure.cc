#include "os/pressure.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "os/local_socket.h"
#include "os/probe.h"

namespace vedette {
namespace {

constexpr std::size_t longest_message = 512;
constexpr std::string_view stalled_some = "some 200000 2000000";  // microseconds, of a window of

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// nullopt: it is none.
std::optional<std::string> decoded(std::string_view base64) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : base64) {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (c == '=') break;
    const std::size_t digit = digits.find(c);
    if (digit == digits.npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xff));
  }
  return bytes;
}

// Of the process's cgroup in version 2, by the text of /proc/self/cgroup: "/a/b", and "" of the root.
std::optional<std::string> unified_path(const std::string& membership) {
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("0::")) return line.substr(3) == "/" ? "" : line.substr(3);
  return std::nullopt;
}

// Of an abstract name: it ends with its process.
struct Name {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

Name name_of(std::int64_t process) {
  Name name;
  name.address.sun_family = AF_UNIX;
  const std::string text = "vedette.size." + std::to_string(process);
  std::copy(text.begin(), text.end(), name.address.sun_path + 1);
  name.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

// "drm/0000:19:00.0/vram0 8589934592", or "... max", a region in each line.
std::optional<std::uint64_t> of_region(const std::string& text, const std::string& bus_id) {
  std::istringstream lines(text);
  for (std::string region, value; lines >> region >> value;)
    if (region.find(bus_id) != region.npos && value.find_first_not_of("0123456789") == value.npos && value.size() < 19)
      return std::stoull(value);
  return std::nullopt;
}

std::int64_t beneath(std::uint64_t limit, std::uint64_t used) {
  constexpr std::uint64_t most = LLONG_MAX;
  return static_cast<std::int64_t>(std::min(limit, most)) - static_cast<std::int64_t>(std::min(used, most));
}

}  // namespace

PressureSources::Options PressureSources::of_this_process() {
  Options options;
  if (const char* const watch = ::secure_getenv("MEMORY_PRESSURE_WATCH")) options.watch = watch;
  if (const char* const write = ::secure_getenv("MEMORY_PRESSURE_WRITE")) options.write = write;
  options.process = ::getpid();
  return options;
}

PressureSources::PressureSources(const Options& options)
    : options_(options), awake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (options.gpu.empty()) {
    if (options.watch) {
      if (*options.watch != "/dev/null") open_protocol(*options.watch);  // which switches it off, says the protocol
    } else {
      open_psi();
    }
  }
  if (options.process) open_requests(*options.process);
}

void PressureSources::open_protocol(const std::string& path) {
  const auto failed = [&](const std::string& what) {
    remarks_.push_back("MEMORY_PRESSURE_WATCH=" + path + ": " + what + "; pressure is not heard");
    pressure_.fd.reset();
  };
  const auto write = decoded(options_.write);
  if (!write) return failed("MEMORY_PRESSURE_WRITE is no base64");
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return failed(std::strerror(errno));
  if (S_ISSOCK(info.st_mode)) {
    pressure_.fd = Fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return failed("the socket's name is too long");
    std::copy(path.begin(), path.end(), address.sun_path);
    if (::connect(pressure_.fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      return failed(std::strerror(errno));
  } else {
    pressure_.fd = Fd{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (!pressure_.fd) return failed(std::strerror(errno));
  }
  pressure_.read = !S_ISREG(info.st_mode);
  pressure_.events = pressure_.read ? POLLIN : POLLPRI;
  if (!write->empty() &&
      ::write(pressure_.fd.get(), write->data(), write->size()) != static_cast<ssize_t>(write->size()))
    return failed(std::strerror(errno));
}

void PressureSources::open_psi() {
  std::vector<std::string> paths;
  if (const auto path = unified_path(text_of(options_.root + "/proc/self/cgroup")))
    paths.push_back(options_.root + "/sys/fs/cgroup" + *path + "/memory.pressure");
  paths.push_back(options_.root + "/proc/pressure/memory");
  int error = 0;
  for (const std::string& path : paths) {
    Fd fd{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK)};
    if (fd && ::write(fd.get(), stalled_some.data(), stalled_some.size() + 1) > 0) {
      pressure_.fd = std::move(fd);
      pressure_.events = POLLPRI;
      return;
    }
    error = errno;
  }
  remarks_.push_back(std::string("the kernel tells no memory pressure (PSI): ") + std::strerror(error) +
                     "; limits are followed all the same");
}

void PressureSources::open_requests(std::int64_t process) {
  requests_ = Fd{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const Name name = name_of(process);
  const bool heard = requests_ &&
                     ::bind(requests_.get(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) == 0 &&
                     ::listen(requests_.get(), 4) == 0;
  if (heard) {
    alone_.emplace(requests_.get());
    return;
  }
  remarks_.push_back(std::string("`vedette set` cannot reach this process: ") + std::strerror(errno));
  requests_.reset();
}

void PressureSources::wake() noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(::write(awake_.get(), &one, sizeof one));
}

PressureSources::Heard PressureSources::wait(std::chrono::milliseconds timeout) {
  std::array<pollfd, 3> from{{{.fd = awake_.get(), .events = POLLIN, .revents = 0},
                              {.fd = requests_.get(), .events = POLLIN, .revents = 0},
                              {.fd = pressure_.fd.get(), .events = pressure_.events, .revents = 0}}};
  Heard heard;
  if (::poll(from.data(), from.size(), static_cast<int>(timeout.count())) > 0) {
    std::uint64_t wakes = 0;
    if (from[0].revents != 0) static_cast<void>(::read(awake_.get(), &wakes, sizeof wakes));
    if (from[1].revents != 0)
      for (auto request = take_request(); request; request = take_request())
        heard.requests.push_back(*std::move(request));
    if (from[2].revents != 0) heard.pressure = take_pressure(from[2].revents);
  }
  heard.headroom = headroom();
  heard.borrowed = borrowed();
  if (heard.borrowed && heard.borrowed->value > 0) heard.pressure = is_full();
  return heard;
}

// False: the other end has gone.
bool PressureSources::take_pressure(short events) {
  bool told = (events & pressure_.events) != 0;
  std::array<char, longest_message> text;
  for (ssize_t got = 1; told && pressure_.read && got > 0;) {
    got = ::read(pressure_.fd.get(), text.data(), text.size());
    told = got != 0;
    if (static_cast<std::size_t>(std::max<ssize_t>(got, 0)) < text.size()) break;
  }
  if (!told) pressure_.fd.reset();
  return told;
}

std::optional<PressureSources::Request> PressureSources::take_request() {
  Request request{.from = Fd{::accept4(requests_.get(), nullptr, nullptr, SOCK_CLOEXEC)}};
  if (!request.from) return std::nullopt;
  const timeval patience{.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(request.from.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::array<char, 32> text{};
  const ssize_t bytes = ::recv(request.from.get(), text.data(), text.size() - 1, 0);
  if (bytes <= 0 || !is_ours(request.from.get())) return take_request();
  const std::string size(text.data(), static_cast<std::size_t>(bytes));
  if (size.find_first_not_of("0123456789") != size.npos || size.size() > 18) return take_request();
  request.bytes = {std::stoull(size)};
  return request;
}

void PressureSources::answer(const Request& request, std::string_view sentence) noexcept {
  const std::string_view cut = sentence.substr(0, longest_message);
  static_cast<void>(::send(request.from.get(), cut.data(), cut.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

std::optional<std::int64_t> PressureSources::headroom() const {
  const std::string membership = text_of(options_.root + "/proc/self/cgroup"), mount = options_.root + "/sys/fs/cgroup";
  std::optional<std::int64_t> least;
  const auto note = [&](std::int64_t beneath) { least = std::min(least.value_or(beneath), beneath); };
  if (options_.gpu.empty()) {
    for (const MemoryCgroup& level : memory_cgroups(membership, mount, CgroupLimit::soft))
      note(beneath(level.limit.value, level.used.value - std::min(level.used, level.files).value));
    return least;
  }
  std::optional<std::string> path = unified_path(membership);
  while (path) {
    const auto limit = of_region(text_of(mount + *path + "/dmem.max"), options_.gpu);
    const auto used = of_region(text_of(mount + *path + "/dmem.current"), options_.gpu);
    if (limit && used) note(beneath(*limit, *used));
    const std::size_t parent = path->rfind('/');
    path = parent == path->npos ? std::nullopt : std::optional(path->substr(0, parent));
  }
  return least;
}

std::optional<Bytes> PressureSources::borrowed() const {
  if (options_.gpu.empty()) return std::nullopt;
  const auto path = unified_path(text_of(options_.root + "/proc/self/cgroup"));
  if (!path) return std::nullopt;
  const std::string group = options_.root + "/sys/fs/cgroup" + *path;
  const auto least = of_region(text_of(group + "/dmem.min"), options_.gpu);
  const auto used = of_region(text_of(group + "/dmem.current"), options_.gpu);
  if (!least || !used || *least == 0) return std::nullopt;
  return Bytes{*used - std::min(*used, *least)};
}

// The sum of all cgroups below the root, which has the capacity.
bool PressureSources::is_full() const {
  constexpr std::uint64_t parts = 32;
  const std::string mount = options_.root + "/sys/fs/cgroup";
  const auto capacity = of_region(text_of(mount + "/dmem.capacity"), options_.gpu);
  if (!capacity) return false;
  std::uint64_t used = 0;
  std::error_code unreadable;
  std::filesystem::directory_iterator group(mount, unreadable);
  for (; !unreadable && group != std::filesystem::directory_iterator(); group.increment(unreadable))
    used += of_region(text_of(group->path() / "dmem.current"), options_.gpu).value_or(0);
  return used > *capacity - *capacity / parts;
}

Result<std::string> ask_for_size(std::int64_t process, Bytes bytes, std::chrono::milliseconds patience) {
  const Error deaf{.cause = Cause::unavailable,
                   .message = "process " + std::to_string(process) +
                              " does not follow memory pressure; open its guard with pressure = true, or start it "
                              "with VEDETTE_PRESSURE=1"};
  const Error silent{.cause = Cause::unavailable,
                     .message = "process " + std::to_string(process) +
                                " does not answer: it is stopped, or still makes room; ask again when it runs"};
  const Fd socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  const Name name = name_of(process);
  const std::chrono::microseconds us = patience;
  const timeval most{.tv_sec = us.count() / 1'000'000, .tv_usec = us.count() % 1'000'000};
  for (const int way : {SO_RCVTIMEO, SO_SNDTIMEO}) ::setsockopt(socket.get(), SOL_SOCKET, way, &most, sizeof most);
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name.address), name.bytes) != 0)
    return errno == EAGAIN ? silent : deaf;
  if (!is_ours(socket.get())) return deaf;
  const std::string text = std::to_string(bytes.value);
  if (::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) return deaf;
  std::array<char, longest_message> answer;
  const ssize_t got = ::recv(socket.get(), answer.data(), answer.size(), 0);
  if (got < 0 && errno == EAGAIN) return silent;
  if (got <= 0) return deaf;
  return std::string(answer.data(), static_cast<std::size_t>(got));
}

}  // namespace vedette
