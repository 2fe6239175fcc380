#include "cli/memory_daemon.h"

#include <poll.h>

#include <chrono>
#include <utility>
#include <vector>

#include "os/local_socket.h"

namespace vedette::cli {
namespace {

constexpr std::size_t most_clients = 1000, most_unsent = 10'000;

Nanoseconds now() { return {std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count()}; }

}  // namespace

Result<MemoryDaemon> MemoryDaemon::open(const std::string& path, const share::Policy& policy, Bytes capacity) {
  auto listening = listen_at(path);
  if (!listening) return listening.error();
  return MemoryDaemon(std::move(listening).value(), policy, capacity);
}

void MemoryDaemon::serve(const std::atomic<bool>& over) {
  constexpr int tick_ms = 1000;
  Nanoseconds ticked = now();
  std::vector<pollfd> ready;
  std::vector<share::ClientId> whose;
  while (!over.load(std::memory_order_relaxed)) {  // nothing else is passed with it
    ready.assign(1, {.fd = accepts_ ? listening_.get() : -1, .events = POLLIN, .revents = 0});
    whose.assign(1, 0);
    for (const auto& [id, client] : clients_) {
      ready.push_back({.fd = client.socket.get(), .events = POLLIN, .revents = 0});
      whose.push_back(id);
    }
    ::poll(ready.data(), ready.size(), tick_ms);
    for (std::size_t r = 1; r < ready.size(); ++r)
      if (ready[r].revents != 0) read(whose[r]);
    if (ready[0].revents != 0) welcome();
    if (now() - ticked >= Nanoseconds{std::int64_t{tick_ms} * 1'000'000}) {
      ticked = now();
      accepts_ = true;
      deliver(office_.tick(ticked));
    }
    flush();
  }
}

void MemoryDaemon::welcome() {
  auto socket = accept_from(listening_.get());
  accepts_ = socket.ok();  // without a descriptor to be had the client goes on waiting, and poll() would return at once
  if (!socket || clients_.size() >= most_clients) return;
  const std::uint32_t pid = peer_pid(socket->get());
  clients_.emplace(++last_, Client{.socket = std::move(socket).value(), .pid = pid});
}

void MemoryDaemon::read(share::ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  share::Message message;
  if (!receive(found->second.socket.get(), std::as_writable_bytes(std::span(&message, 1)))) return forget(id);
  deliver(office_.hear(id, found->second.pid, message, now()));
}

void MemoryDaemon::deliver(const std::vector<share::Letter>& letters) {
  for (const share::Letter& letter : letters)
    if (const auto to = clients_.find(letter.to); to != clients_.end()) to->second.unsent.push_back(letter.message);
}

void MemoryDaemon::flush() {
  std::vector<share::ClientId> gone;
  for (auto& [id, client] : clients_) {
    Sent sent = Sent::yes;
    while (!client.unsent.empty() && sent == Sent::yes) {
      sent = send_now(client.socket.get(), std::as_bytes(std::span(&client.unsent.front(), 1)));
      if (sent == Sent::yes) client.unsent.pop_front();
    }
    if (sent == Sent::gone || client.unsent.size() > most_unsent) gone.push_back(id);
  }
  for (const share::ClientId id : gone) forget(id);
}

void MemoryDaemon::forget(share::ClientId id) {
  clients_.erase(id);
  deliver(office_.left(id, now()));
}

}  // namespace vedette::cli
