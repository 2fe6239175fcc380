// Messages between programs of one user on one machine: a socket in the file system that keeps message borders.
//
// Only programs of the same user, or of root, are on the other side: the kernel says whose they are. Thread rule: any
// thread, a socket at a time.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/fd.h"
#include "vedette/result.h"

namespace vedette {

// Of the daemon that shares the host's memory, or a GPU's: in XDG_RUNTIME_DIR, or else in /tmp/vedette-UID, which it
// makes with access for its user alone. Errors: that folder is another user's, or open to others.
Result<std::string> runtime_socket(std::optional<int> gpu = {});

// A socket that a dead program left there is replaced. Errors: a program listens there already, or the kernel's.
Result<Fd> listen_at(const std::string& path);
Result<Fd> connect_to(const std::string& path);
Result<Fd> accept_from(int listening);  // Errors: the kernel's, or another user's program

std::uint32_t peer_pid(int socket) noexcept;  // 0: unknown
bool is_ours(int socket) noexcept;            // the other side is a program of this user, or of root

enum class Sent : std::uint8_t { yes, full, gone };
// `full`: the other side does not read; without waiting.
Sent send_now(int socket, std::span<const std::byte> message) noexcept;
// True: a message of exactly this size has come. False: the other side has gone, or sent something else. Waits.
bool receive(int socket, std::span<std::byte> message) noexcept;

}  // namespace vedette
