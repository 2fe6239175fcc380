#include "os/local_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace vedette {
namespace {

Error socket_failed(const std::string& what) {
  const int number = errno;
  return {Cause::system, what + ": " + std::generic_category().message(number), number};
}

Result<sockaddr_un> socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return Error{Cause::unsupported, "'" + path + "' is no path of a socket: at most 107 bytes"};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Fd new_socket() noexcept { return Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

ucred peer_of(int socket) noexcept {
  ucred peer{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t size = sizeof peer;
  ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer;
}

const sockaddr* any_address(const sockaddr_un& address) noexcept { return reinterpret_cast<const sockaddr*>(&address); }

}  // namespace

Result<std::string> runtime_socket(std::optional<int> gpu) {
  std::string folder;
  if (const char* const given = ::secure_getenv("XDG_RUNTIME_DIR"); given != nullptr && *given == '/') {
    folder = given;
  } else {
    folder = "/tmp/vedette-" + std::to_string(::geteuid());
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return socket_failed(folder);
  }
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return socket_failed(folder);
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    return Error{Cause::unsupported, folder +
                                         " is not a folder of this user alone; chmod 700 it, or set "
                                         "XDG_RUNTIME_DIR to one that is"};
  return folder + (gpu ? "/vedette-gpu" + std::to_string(*gpu) + ".sock" : "/vedette.sock");
}

Result<Fd> connect_to(const std::string& path) {
  const auto address = socket_address(path);
  if (!address) return address.error();
  Fd socket = new_socket();
  if (!socket || ::connect(socket.get(), any_address(*address), sizeof *address) != 0) return socket_failed(path);
  if (!is_ours(socket.get())) return Error{Cause::unsupported, path + " belongs to another user's program"};
  return socket;
}

Result<Fd> listen_at(const std::string& path) {
  const auto address = socket_address(path);
  if (!address) return address.error();
  const Error listens{Cause::unavailable, "a program listens at " + path + " already; stop it first"};
  // Between the look for a listener and the bind no other process looks. The file stays: a lock is of its inode.
  const Fd alone(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!alone || ::flock(alone.get(), LOCK_EX) != 0) return socket_failed(path + ".lock");
  if (connect_to(path)) return listens;
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) ::unlink(path.c_str());
  Fd socket = new_socket();
  constexpr int waiting = 64;
  if (!socket || ::bind(socket.get(), any_address(*address), sizeof *address) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(socket.get(), waiting) != 0)
    return socket_failed(path);
  return socket;
}

Result<Fd> accept_from(int listening) {
  Fd socket(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return socket_failed("accept");
  if (!is_ours(socket.get())) return Error{Cause::unsupported, "another user's program may not share this memory"};
  return socket;
}

bool is_ours(int socket) noexcept {
  const uid_t uid = peer_of(socket).uid;
  return uid == ::geteuid() || uid == 0;
}

std::uint32_t peer_pid(int socket) noexcept { return static_cast<std::uint32_t>(peer_of(socket).pid); }

Sent send_now(int socket, std::span<const std::byte> message) noexcept {
  for (;;) {
    if (::send(socket, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Sent::yes;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? Sent::full : Sent::gone;
  }
}

bool receive(int socket, std::span<std::byte> message) noexcept {
  for (;;) {
    const ssize_t got = ::recv(socket, message.data(), message.size(), MSG_TRUNC);
    if (got < 0 && errno == EINTR) continue;
    return got == static_cast<ssize_t>(message.size());
  }
}

}  // namespace vedette
