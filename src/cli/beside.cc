#include "cli/beside.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "base/mapping.h"
#include "os/chunk_memory.h"
#include "vedette/session.h"

namespace vedette::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

// Goes through memory on all processors, or on as many as the limit of threads allows, and counts.
class Computation {
 public:
  Computation() {
    const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
    constexpr std::size_t words_of_all = std::size_t{256} << 17;  // 256 MiB, and 16 at most for each
    const std::size_t words = std::min(words_of_all / processors, std::size_t{16} << 17) / block * block;
    try {
      for (unsigned i = 0; i < processors; ++i)
        threads_.emplace_back([this, words](const std::stop_token& stop) { compute(words, stop); });
    } catch (const std::system_error&) {
    }
  }

  // Blocks a second while `body` runs.
  template <class Body>
  double rate(const Body& body) {
    const auto began = Clock::now();
    const std::uint64_t before = done_.load(std::memory_order_relaxed);
    body();
    return static_cast<double>(done_.load(std::memory_order_relaxed) - before) / seconds_since(began);
  }

 private:
  static constexpr std::size_t block = 8192;  // words
  void compute(std::size_t words, const std::stop_token& stop) {
    std::vector<std::uint64_t> numbers(std::max(words, block), 1);
    for (std::size_t at = 0; !stop.stop_requested(); at = (at + block) % numbers.size()) {
      for (std::size_t i = at; i < at + block; ++i) numbers[i] = numbers[i] * 3 + 1;
      done_.fetch_add(1, std::memory_order_relaxed);  // nothing is handed over
    }
  }
  std::atomic<std::uint64_t> done_{0};
  std::vector<std::jthread> threads_;
};

constexpr std::chrono::milliseconds long_enough(200);

// As many bytes each way, eight in flight, for that long. 0 or an errno.
int transfer_both_ways(Store& store, std::byte* memory, std::uint32_t slots, std::uint32_t at_once) {
  const auto began = Clock::now();
  std::vector<StoreCompletion> done(at_once);
  std::uint32_t submitted = 0, in_flight = 0;
  const auto submit = [&](std::uint64_t token) {
    const StoreRequest request{
        .direction = submitted % 2 == 0 ? StoreRequest::Direction::read : StoreRequest::Direction::write,
        .slot = {submitted % slots},
        .memory = memory + token * store.slot_bytes().value,
        .token = token};
    ++submitted;
    ++in_flight;
    store.submit({&request, 1});
  };
  for (std::uint32_t token = 0; token < at_once; ++token) submit(token);
  int error = 0;
  while (in_flight > 0) {
    const std::size_t count = store.wait(done, {1'000'000'000});
    in_flight -= static_cast<std::uint32_t>(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (done[i].error != 0) error = done[i].error;
      if (error == 0 && Clock::now() - began < long_enough) submit(done[i].token);
    }
  }
  return error;
}

// They compute on the other processors until they are destroyed, or on as many as the limit of threads allows.
std::vector<std::jthread> busy_threads() {
  std::vector<std::jthread> threads;
  try {
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i)
      threads.emplace_back([](const std::stop_token& stop) {
        for (volatile std::uint64_t count = 0; !stop.stop_requested();) count = count + 1;
      });
  } catch (const std::system_error&) {
  }
  return threads;
}

}  // namespace

Result<std::uint32_t> measure_interference(Store& store) {
  const std::uint32_t at_once = std::min(store.depth(), 8u);
  // more than are in flight at once, so that no slot is in two transfers
  const auto slots =
      std::max(4 * at_once, static_cast<std::uint32_t>((96_MiB).value / store.slot_bytes().value) / 2 * 2 + 1);
  if (auto room = store.reserve(slots); !room) return room.error();
  auto memory = Mapping::reserve({store.slot_bytes().value * at_once}, 2_MiB);
  if (!memory) return memory.error();
  std::memset(memory->data(), 1, memory->bytes().value);
  Computation computation;
  std::this_thread::sleep_for(long_enough);  // until all run
  std::array<double, 3> losses{};
  for (double& loss : losses) {
    const double alone = computation.rate([] { std::this_thread::sleep_for(long_enough); });
    int error = 0;
    const double beside = computation.rate([&] { error = transfer_both_ways(store, memory->data(), slots, at_once); });
    if (error != 0) {
      return Error{.cause = Cause::system,
                   .message = std::string("transfers beside a computation: ") + std::strerror(error),
                   .errno_value = error};
    }
    loss = alone > 0 ? std::clamp(1 - beside / alone, 0.0, 1.0) : 0.0;  // no processor was left: nothing is known
  }
  std::sort(losses.begin(), losses.end());
  return static_cast<std::uint32_t>(losses[1] * 100 + 0.5);
}

std::optional<Nanoseconds> measure_fault(Bytes chunk) {
  constexpr std::uint64_t frames = 16, chunks = 48, rounds = 3;
  auto session = Session::open({.fast_memory = {frames * chunk.value},
                                .slow = "host",
                                .policy = "on-demand",
                                .chunk = chunk,
                                .profile = ProfileTicks::operands});
  if (!session) return std::nullopt;
  auto memory = (*session)->allocate({.bytes = {chunks * chunk.value}});
  if (!memory) return std::nullopt;
  std::vector<std::byte> source(chunk.value, std::byte{1}), target(chunk.value);
  for (std::uint64_t c = 0; c < chunks; ++c) std::memset(*memory + c * chunk.value, 1, chunk.value);
  const std::uint64_t faults_before = (*session)->counters().faults;
  const auto began = Clock::now();
  for (std::uint64_t i = 0; i < rounds * chunks; ++i) {
    volatile std::byte* const touched = *memory + i % chunks * chunk.value;
    *touched = std::byte{2};
  }
  const double touching = seconds_since(began);
  const auto faults = static_cast<double>((*session)->counters().faults - faults_before);
  Session::release(*memory);
  const auto copying_began = Clock::now();
  constexpr int copies = 32;
  for (int i = 0; i < copies; ++i)
    std::memcpy(i % 2 == 0 ? target.data() : source.data(), i % 2 == 0 ? source.data() : target.data(), chunk.value);
  const double copy = seconds_since(copying_began) / copies;
  if (faults == 0) return std::nullopt;
  // each fault fetches one chunk, and evicts another
  return Nanoseconds{static_cast<std::int64_t>(std::max(0.0, (touching / faults - 2 * copy) * 1e9))};
}

Nanoseconds measure_remap(Bytes chunk) {
  constexpr std::size_t rounds = 500;
  auto arena = Mapping::reserve({4 * chunk.value}, chunk);
  if (!arena) return {};
  const auto memory = open_best_memory(
      {.arena = arena->data(), .chunks = 4, .frames = 2, .chunk_bytes = chunk, .on_fault = [](const Fault&) {}});
  if (!memory) return {};
  std::memset((*memory)->parked({0}), 1, chunk.value);
  const std::vector<std::jthread> others = busy_threads();
  std::vector<std::int64_t> taken;
  for (std::size_t i = 0; i < rounds; ++i) {
    const auto began = std::chrono::steady_clock::now();
    (*memory)->show({0}, {0});
    const auto shown = std::chrono::steady_clock::now();
    arena->data()[0] = std::byte{2};
    const auto touched = std::chrono::steady_clock::now();
    if (!(*memory)->hide({0}, {0})) return {};
    const auto hidden = std::chrono::steady_clock::now();
    taken.push_back(std::chrono::nanoseconds((shown - began) + (hidden - touched)).count() / 2);
  }
  std::nth_element(taken.begin(), taken.begin() + rounds / 2, taken.end());
  return {taken[rounds / 2]};
}

}  // namespace vedette::cli
