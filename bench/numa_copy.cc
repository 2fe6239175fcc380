// How fast do chunks change their memory, between fast frames and the memory of a NUMA node? Copy and remap as a
// session does it, beside the ideal, a plain copy of as many bytes by as many threads (one), and beside the kernel's
// move_pages. Rounds alternate; medians in GB/s, each way.
//
//   numa_copy [--node N] [--chunk-kib 2048]
//
// Without --node the slow memory is of whatever node there is, and move_pages, which needs two, is left out.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mapping.h"
#include "median.h"
#include "os/chunk_memory.h"
#include "os/devices.h"
#include "tier/store.h"

namespace vedette {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint32_t chunks = 64;
constexpr int rounds = 11;

struct Options {
  std::optional<NodeIndex> node;
  std::size_t chunk = std::size_t{2} << 20;
};

struct Rates {  // GB/s of each round
  std::vector<double> out, in;
};

template <class Work>
double rate_of(std::size_t bytes, Work&& work) {
  const auto begin = Clock::now();
  work();
  return static_cast<double>(bytes) / std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

template <class T>
T ready(Result<T> made, const char* what) {
  if (made) return std::move(*made);
  std::fprintf(stderr, "numa_copy: %s: %s\n", what, made.error().message.c_str());
  std::exit(1);
}

class Chunks {
 public:
  explicit Chunks(const Options& options)
      : chunk_(options.chunk),
        arena_(ready(Mapping::reserve({chunks * chunk_}, {std::size_t{2} << 20}), "addresses")),
        memory_(ready(open_move_memory({.arena = arena_.data(),
                                        .chunks = chunks,
                                        .frames = chunks,
                                        .chunk_bytes = {chunk_},
                                        .on_fault = [](const Fault&) {}}),
                      "UFFDIO_MOVE")),
        store_(ready(options.node ? open_numa_store({chunk_}, chunks, *options.node, chunks)
                                  : open_host_store({chunk_}, chunks, chunks),
                     "the store")) {
    if (const auto room = store_->reserve(chunks); !room) {
      std::fprintf(stderr, "numa_copy: %s\n", room.error().message.c_str());
      std::exit(1);
    }
    for (std::uint32_t c = 0; c < chunks; ++c) {
      memory_->show({c}, {c});
      std::memset(at(c), static_cast<int>(c), chunk_);
      std::memset(store_->memory_of({c}), 1, chunk_);
    }
  }
  std::byte* at(std::uint32_t chunk) { return arena_.data() + chunk * chunk_; }
  std::byte* slot(std::uint32_t chunk) { return store_->memory_of({chunk}); }
  std::size_t bytes() const { return chunks * chunk_; }

  // As an engine's migrator: hide, copy out of the parked frame; copy into it, show.
  void evict_all() {
    for (std::uint32_t c = 0; c < chunks; ++c) {
      if (!memory_->hide({c}, {c})) std::abort();
      copy(c, StoreRequest::Direction::write);
    }
  }
  void fetch_all() {
    for (std::uint32_t c = 0; c < chunks; ++c) {
      copy(c, StoreRequest::Direction::read);
      memory_->show({c}, {c});
    }
  }
  bool is_whole() {
    for (std::uint32_t c = 0; c < chunks; ++c)
      for (std::size_t i = 0; i < chunk_; i += 4096)
        if (at(c)[i] != static_cast<std::byte>(c)) return false;
    return true;
  }

 private:
  void copy(std::uint32_t chunk, StoreRequest::Direction direction) {
    const StoreRequest request{.direction = direction, .slot = {chunk}, .memory = memory_->parked({chunk}), .token = 0};
    store_->submit({&request, 1});
    StoreCompletion done;
    if (store_->wait({&done, 1}, {1'000'000'000}) != 1 || done.error != 0) std::abort();
  }

  const std::size_t chunk_;
  const Mapping arena_;
  const std::unique_ptr<ChunkMemory> memory_;
  const std::unique_ptr<Store> store_;
};

// Pages of a buffer of its own, to a node and back. 0: the kernel moved none.
class KernelsMove {
 public:
  explicit KernelsMove(std::size_t bytes)
      : memory_(ready(Mapping::reserve({bytes}, {std::size_t{2} << 20}), "addresses")) {
    std::memset(memory_.data(), 1, bytes);
    for (std::size_t i = 0; i < bytes; i += 4096) pages_.push_back(memory_.data() + i);
  }
  bool to(int node) {
    const std::vector<int> nodes(pages_.size(), node);
    std::vector<int> status(pages_.size(), -1);
    constexpr int move_mine = 2;  // MPOL_MF_MOVE
    if (::syscall(SYS_move_pages, 0, pages_.size(), pages_.data(), nodes.data(), status.data(), move_mine) < 0)
      return false;
    return std::ranges::all_of(status, [node](int where) { return where == node; });
  }

 private:
  const Mapping memory_;
  std::vector<void*> pages_;
};

void print(const char* what, const Rates& rates, const Rates& ideal) {
  const double out = median(rates.out), in = median(rates.in);
  std::printf("%-24s %8.1f %8.1f %9.2f %8.2f\n", what, out, in, out / median(ideal.out), in / median(ideal.in));
}

int measure(const Options& options) {
  Chunks moved(options), plain(options);
  std::optional<KernelsMove> kernels;
  const int far = options.node ? static_cast<int>(options.node->value) : -1, near = far == 0 ? 1 : 0;
  if (options.node) kernels.emplace(plain.bytes());
  if (kernels && !(kernels->to(far) && kernels->to(near))) kernels.reset();
  Rates ours, copied, by_kernel;
  for (int round = 0; round < rounds; ++round) {
    ours.out.push_back(rate_of(moved.bytes(), [&] { moved.evict_all(); }));
    ours.in.push_back(rate_of(moved.bytes(), [&] { moved.fetch_all(); }));
    const auto copy_all = [&](bool out) {
      for (std::uint32_t c = 0; c < chunks; ++c)
        std::memcpy(out ? plain.slot(c) : plain.at(c), out ? plain.at(c) : plain.slot(c), options.chunk);
    };
    copied.out.push_back(rate_of(plain.bytes(), [&] { copy_all(true); }));
    copied.in.push_back(rate_of(plain.bytes(), [&] { copy_all(false); }));
    if (!kernels) continue;
    by_kernel.out.push_back(rate_of(plain.bytes(), [&] { kernels->to(far); }));
    by_kernel.in.push_back(rate_of(plain.bytes(), [&] { kernels->to(near); }));
  }
  if (!moved.is_whole()) {
    std::fprintf(stderr, "numa_copy: bytes were lost\n");
    return 1;
  }
  std::printf("%u chunks of %zu KiB, %u processors, medians of %d alternating rounds\n", chunks, options.chunk >> 10,
              std::thread::hardware_concurrency(), rounds);
  std::printf("%-24s %8s %8s %9s %8s\n", "GB/s", "out", "in", "of ideal:", "in");
  print("plain copy (the ideal)", copied, copied);
  print("copy and remap", ours, copied);
  if (kernels) {
    print("move_pages", by_kernel, copied);
  } else {
    std::printf("move_pages               not here: %s\n",
                options.node ? "the kernel moved not all pages" : "it needs a second node, --node N");
  }
  return 0;
}

}  // namespace
}  // namespace vedette

int main(int argc, char** argv) {
  vedette::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::uint32_t number = 0;
    const std::string_view name = argv[i], text = argv[i + 1];
    const bool read = std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc();
    if (read && name == "--chunk-kib") options.chunk = std::size_t{number} << 10;
    if (read && name == "--node") {
      const auto node = vedette::node_named(text, vedette::find_numa_nodes());
      if (!node) return std::fprintf(stderr, "numa_copy: --node: %s\n", node.error().message.c_str()), 1;
      options.node = *node;
    }
  }
  return vedette::measure(options);
}
