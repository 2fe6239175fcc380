// How much slower is a triad, c = a + 3 b, with all operands in memory that plays a slower one? Beside what the
// published rates of that memory say: an op that reads two bytes for each that it writes, all of them in slow memory.
//
//   throttled_triad [PRESET]        optane-2019 by default
//
// Throttled: an op waits as it begins, for as long as its bytes would have taken longer there. One thread; of a number
// of steps the least time, since what else the machine does only adds to it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "model/slow_memory.h"
#include "vedette/session.h"

namespace vedette {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t bytes = std::uint64_t{64} << 20;  // of each operand
constexpr std::size_t count = bytes / sizeof(double);
constexpr int warm_up = 8, rounds = 41;

class Triad {
 public:
  explicit Triad(const std::string& slow) {
    auto opened = Session::open({.fast_memory = {std::uint64_t{320} << 20}, .slow = slow});
    if (!opened) std::fprintf(stderr, "throttled_triad: %s\n", opened.error().message.c_str()), std::exit(1);
    session_ = std::move(*opened);
    const bool far = slow != "host";
    if (far && !session_->place("triad.*", "slow", Session::Placement::rule)) std::exit(1);
    for (int k = 0; k < 3; ++k) {
      at_[k] = reinterpret_cast<double*>(session_->allocate({.bytes = {bytes}, .persistent = true}).value());
      session_->label(at_[k], "triad." + std::to_string(k), TensorKind::weight);
      for (std::size_t i = 0; i < count; ++i) at_[k][i] = k;
    }
    spare_ = session_->allocate({.bytes = {bytes}, .persistent = true}).value();
  }
  ~Triad() {
    for (double* const each : at_) Session::release(reinterpret_cast<std::byte*>(each));
    Session::release(spare_);
  }
  double seconds() {
    const auto step = session_->step();
    {
      const void* const reads[] = {spare_};  // so that there is something to plan for
      const auto op = session_->op("read", reads, {});
    }
    const void *const reads[] = {at_[0], at_[1]}, *const writes[] = {at_[2]};
    const auto began = Clock::now();
    const auto op = session_->op("triad", reads, writes);
    for (std::size_t i = 0; i < count; ++i) at_[2][i] = at_[0][i] + 3 * at_[1][i];
    return std::chrono::duration<double>(Clock::now() - began).count();
  }
  std::uint64_t in_place() const { return session_->counters().bytes_in_place.value; }

 private:
  std::unique_ptr<Session> session_;
  double* at_[3] = {};
  std::byte* spare_ = nullptr;
};

std::vector<double> times(const std::string& slow, bool* in_place) {
  Triad triad(slow);
  for (int i = 0; i < warm_up; ++i) {
    triad.seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // what is to lie there leaves between two steps
  }
  std::vector<double> taken;
  for (int i = 0; i < rounds; ++i) taken.push_back(triad.seconds());
  *in_place = triad.in_place() > 0;
  return taken;
}

int measure(const std::string& preset) {
  const SlowMemory* const memory = slow_memory_named(preset);
  if (memory == nullptr) return std::fprintf(stderr, "throttled_triad: there is no '%s'\n", preset.c_str()), 1;
  bool near_in_place = false, far_in_place = false;
  const double near = std::ranges::min(times("host", &near_in_place)),
               far = std::ranges::min(times("host@" + preset, &far_in_place));
  const auto fast = static_cast<double>(memory->fast_bytes_per_s);
  const double published = (2 * fast / static_cast<double>(memory->read_bytes_per_s) +
                            fast / static_cast<double>(memory->write_bytes_per_s)) /
                           3;
  std::printf("throttled, %s: near %.2f ms, in place %.2f ms%s; slower by %.2f, %.2f by the rates (%+.0f %%)\n",
              preset.c_str(), near * 1e3, far * 1e3, far_in_place ? "" : " (nothing was in place)", far / near,
              published, (far / near / published - 1) * 100);
  return 0;
}

}  // namespace
}  // namespace vedette

int main(int argc, char** argv) { return vedette::measure(argc > 1 ? argv[1] : "optane-2019"); }
