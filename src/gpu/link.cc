// Timed copies: see link.h.
#include "gpu/link.h"

#include <algorithm>
#include <cstdint>

#include "cuda/device_range.h"
#include "cuda/pinned_pool.h"

namespace vedette::detail {
namespace {

constexpr Bytes most_measured = 64_MiB;
constexpr int copies = 3;      // of each direction in a row; the first one warms up
constexpr int most_tries = 6;  // the machine may be busy
constexpr int agreement = 20;  // two times agree where they differ by a twentieth at most

// Copies on one stream or both, begun and ended by events.
class LinkTimer {
 public:
  LinkTimer(const cuda::Device& device, cuda::Stream& in, cuda::Stream& out, cuda::Event& began, cuda::Event& ended)
      : device_(device), in_(in), out_(out), began_(began), ended_(ended) {}
  ~LinkTimer() {  // before the memory goes, also where a call was refused
    static_cast<void>(in_.synchronize());
    static_cast<void>(out_.synchronize());
  }
  LinkTimer(const LinkTimer&) = delete;
  LinkTimer& operator=(const LinkTimer&) = delete;

  struct Ends {
    cuda::Address device_in, device_out, host_in, host_out;
  };
  // The shorter of two in a row that agree; the shortest of all where none do.
  Result<Nanoseconds> settled(const Ends& ends, bool in, bool out, Bytes bytes) {
    std::int64_t last = 0, shortest = 0;
    for (int i = 0; i < most_tries; ++i) {
      const auto took = time(ends, in, out, bytes);
      if (!took) return took.error();
      const auto [less, more] = std::minmax(last, took->value);
      if (last > 0 && (more - less) * agreement <= more) return Nanoseconds{less};
      last = took->value;
      shortest = shortest == 0 ? last : std::min(shortest, last);
    }
    return Nanoseconds{shortest};
  }

 private:
  // Of one copy each way, among several of `bytes` in a row.
  Result<Nanoseconds> time(const Ends& ends, bool in, bool out, Bytes bytes) {
    const cuda::StreamHandle last = in ? in_.handle() : out_.handle();
    if (auto warm = copy(ends, in, out, bytes); !warm) return warm.error();
    if (auto began = began_.record(last); !began) return began.error();
    for (int i = 1; i < copies; ++i) {
      if (auto queued = copy(ends, in, out, bytes); !queued) return queued.error();
    }
    if (auto done = out_.synchronize(); in && out && !done) return done.error();
    if (auto ended = ended_.record(last); !ended) return ended.error();
    if (auto done = ended_.synchronize(); !done) return done.error();
    const auto took = ended_.since(began_);
    if (!took) return took.error();
    return Nanoseconds{std::max<std::int64_t>(took->value / (copies - 1), 1)};
  }

  Result<void> copy(const Ends& ends, bool in, bool out, Bytes bytes) {
    if (in) {
      if (auto queued = device_.copy(in_.handle(), ends.device_in, ends.host_in, bytes); !queued) return queued;
    }
    return out ? device_.copy(out_.handle(), ends.host_out, ends.device_out, bytes) : Result<void>();
  }
  const cuda::Device& device_;
  cuda::Stream &in_, &out_;
  cuda::Event &began_, &ended_;
};

}  // namespace

Result<LinkHabits> measure_link(const std::shared_ptr<const cuda::Device>& device, Bytes budget) {
  const Bytes measured{std::min(most_measured.value, budget.value / 2)};  // nothing takes more than the budget
  auto range = cuda::DeviceRange::make(device, {.bytes = {2 * measured.value}});
  if (!range) return range.error();
  auto in = cuda::Stream::create(device), out = cuda::Stream::create(device);
  auto began = cuda::Event::create(device, cuda::Event::Timing::on),
       ended = cuda::Event::create(device, cuda::Event::Timing::on);
  for (const auto* stream : {&in, &out}) {
    if (!*stream) return stream->error();
  }
  for (const auto* event : {&began, &ended}) {
    if (!*event) return event->error();
  }
  cuda::PinnedPool pool(device, {.piece = {2 * measured.value}});
  const auto host = pool.take({2 * measured.value});
  if (!host) return host.error();
  const auto host_address = reinterpret_cast<cuda::Address>(*host);
  const LinkTimer::Ends ends{.device_in = range->address(),
                             .device_out = range->address() + measured.value,
                             .host_in = host_address,
                             .host_out = host_address + measured.value};
  LinkTimer timer(*device, *in, *out, *began, *ended);
  constexpr Bytes small = 4_KiB;
  const auto read = timer.settled(ends, true, false, measured), write = timer.settled(ends, false, true, measured),
             mixed = timer.settled(ends, true, true, measured), one = timer.settled(ends, true, false, small);
  for (const auto* each : {&read, &write, &mixed, &one}) {
    if (!*each) return each->error();
  }
  const auto speed = [](Nanoseconds took, std::uint64_t bytes) {
    return static_cast<std::uint64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(took.value));
  };
  return LinkHabits{.speed = {.read = speed(*read, measured.value),
                              .write = speed(*write, measured.value),
                              .mixed = speed(*mixed, 2 * measured.value)},
                    .latency = *one};
}

}  // namespace vedette::detail
