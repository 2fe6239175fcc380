// Child processes: see children.h.
#include "children.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace vedette::examples {
namespace {

int free_port() {  // of this machine; another program may take it before rank 0 does
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool found = socket >= 0 && ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (socket >= 0) ::close(socket);
  if (!found) throw std::runtime_error("no port of this machine is free for the ranks");
  return ntohs(address.sin_port);
}

struct Child {
  pid_t process = -1;
  int file = -1;  // in memory, which both have open
};

Child start(std::vector<std::string> words, int rank, int ranks, int port) {
  Child child{.file = ::memfd_create("result", 0)};
  if (child.file < 0) throw std::runtime_error("no file in memory can be made (memfd_create)");
  words.insert(words.end(), {"--result", "/proc/self/fd/" + std::to_string(child.file)});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::fflush(stdout);
  child.process = ::fork();
  if (child.process != 0) return child;
  if (ranks > 1) {
    const std::string size = std::to_string(ranks), own = std::to_string(rank);
    ::setenv("RANK", own.c_str(), 1);
    ::setenv("LOCAL_RANK", own.c_str(), 1);
    ::setenv("WORLD_SIZE", size.c_str(), 1);
    ::setenv("LOCAL_WORLD_SIZE", size.c_str(), 1);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
    ::setenv("GLOO_SOCKET_IFNAME", "lo", 0);
  }
  ::execv("/proc/self/exe", arguments.data());
  ::_exit(127);
}

}  // namespace

std::vector<std::string> run_children(const std::vector<std::string>& words, int ranks, const std::string& what) {
  const int port = ranks > 1 ? free_port() : 0;
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) children.push_back(start(words, rank, ranks, port));
  bool failed = false;
  for (int ended = 0; ended < ranks; ++ended) {
    int status = 0;
    const pid_t process = ::wait(&status);
    failed = failed || process < 0 || status != 0;
    for (Child& child : children) {
      if (child.process == process) child.process = -1;
      if (failed && child.process > 0) ::kill(child.process, SIGTERM);
    }
  }
  std::vector<std::string> results;
  for (const Child& child : children) {
    std::ifstream stream("/proc/self/fd/" + std::to_string(child.file));
    std::stringstream text;
    text << stream.rdbuf();
    results.push_back(text.str());
    ::close(child.file);
  }
  if (failed) throw std::runtime_error("the " + what + " run failed, see above");
  return results;
}

}  // namespace vedette::examples
