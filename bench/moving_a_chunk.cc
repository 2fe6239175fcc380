// What does it cost to show, hide and shift a chunk, by each mechanism, while a second thread keeps the address space
// busy? The ideal is zero; memcpy of the chunk stands beside it. Rounds of the mechanisms alternate; medians over
// rounds, in microseconds.
#include <sys/utsname.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/mapping.h"
#include "median.h"
#include "os/chunk_memory.h"

namespace vedette {
namespace {

using Clock = std::chrono::steady_clock;
using Open = Result<std::unique_ptr<ChunkMemory>> (*)(ChunkMemoryOptions);

constexpr std::uint32_t chunks = 64, frames = 16;
constexpr int rounds = 21, moves = 64;

struct Subject {
  const char* name;
  Open open;
  Mapping arena = {};
  std::unique_ptr<ChunkMemory> memory = {};
  std::vector<double> show_us = {}, hide_us = {}, shift_us = {}, touch_us = {};
};

double since_us(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

void touch(std::byte* begin, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 4096) {
    auto* const word = reinterpret_cast<volatile std::uint64_t*>(begin + i);
    *word = *word + 1;
  }
}

// Every chunk is touched while it is shown, so that its pages are in the translation buffers, as in a training step.
void measure(Subject& subject, std::size_t chunk_bytes) {
  double show = 0, hide = 0, shift = 0, touched = 0;
  for (std::uint32_t i = 0; i < moves; ++i) {
    const ChunkIndex from{i % (chunks / 2)}, to{chunks / 2 + i % (chunks / 2)};
    const FrameIndex frame{i % frames};
    auto begin = Clock::now();
    subject.memory->show(frame, from);
    show += since_us(begin);
    begin = Clock::now();
    touch(subject.arena.data() + from.value * chunk_bytes, chunk_bytes);
    touched += since_us(begin);
    begin = Clock::now();
    if (!subject.memory->shift(from, to, frame)) std::abort();
    shift += since_us(begin);
    touch(subject.arena.data() + to.value * chunk_bytes, chunk_bytes);
    begin = Clock::now();
    if (!subject.memory->hide(to, frame)) std::abort();
    hide += since_us(begin);
  }
  subject.show_us.push_back(show / moves);
  subject.hide_us.push_back(hide / moves);
  subject.shift_us.push_back(shift / moves);
  subject.touch_us.push_back(touched / moves);
}

void compare(std::size_t chunk_bytes, bool busy) {
  std::vector<Subject> subjects;
  subjects.push_back({.name = "UFFDIO_MOVE", .open = open_move_memory});
  subjects.push_back({.name = "mremap, userfaultfd", .open = open_remap_memory});
  subjects.push_back({.name = "mremap, SIGSEGV", .open = open_signal_memory});
  subjects.push_back({.name = "memfd (trackable)", .open = open_file_memory});
  for (Subject& subject : subjects) {
    auto arena = Mapping::reserve({chunks * chunk_bytes}, {std::size_t{2} << 20});
    if (!arena) continue;
    subject.arena = std::move(*arena);
    auto opened = subject.open({.arena = subject.arena.data(),
                                .chunks = chunks,
                                .frames = frames,
                                .chunk_bytes = {chunk_bytes},
                                .on_fault = [](const Fault&) {}});
    if (opened) {
      subject.memory = std::move(*opened);
    } else {
      std::printf("%-22s not here: %s\n", subject.name, opened.error().message.c_str());
    }
  }
  std::atomic<bool> stop{false};
  std::thread other;
  if (busy) {
    other = std::thread([&] {
      std::vector<std::byte> mine(std::size_t{8} << 20);
      while (!stop.load(std::memory_order_relaxed)) touch(mine.data(), mine.size());
    });
  }
  std::vector<std::byte> source(chunk_bytes), target(chunk_bytes);
  std::vector<double> copy_us;
  for (int round = 0; round < rounds; ++round) {
    for (Subject& subject : subjects) {
      if (subject.memory) measure(subject, chunk_bytes);
    }
    const auto begin = Clock::now();
    for (int i = 0; i < 16; ++i) std::memcpy(target.data(), source.data(), chunk_bytes);
    copy_us.push_back(since_us(begin) / 16);
  }
  stop = true;
  if (other.joinable()) other.join();
  std::printf("\nchunk %zu KiB, %s\n%-22s %9s %9s %9s %14s\n", chunk_bytes >> 10,
              busy ? "a second thread busy" : "alone", "us", "show", "hide", "shift", "touch 4K steps");
  for (const Subject& subject : subjects) {
    if (!subject.memory) continue;
    std::printf("%-22s %9.1f %9.1f %9.1f %14.1f\n", subject.name, median(subject.show_us), median(subject.hide_us),
                median(subject.shift_us), median(subject.touch_us));
  }
  std::printf("%-22s %9.1f\n", "memcpy of a chunk", median(copy_us));
}

}  // namespace
}  // namespace vedette

int main() {
  utsname system{};
  ::uname(&system);
  std::printf("%s %s %s, %u processors, medians of %d rounds of %d moves\n", system.sysname, system.release,
              system.machine, std::thread::hardware_concurrency(), vedette::rounds, vedette::moves);
  for (const std::size_t chunk_bytes : {std::size_t{2} << 20, std::size_t{64} << 10}) {
    for (const bool busy : {false, true}) vedette::compare(chunk_bytes, busy);
  }
}
