// What does a session of GPU memory cost the host: for an op that moves nothing, and for a move?
//
//   scripts/with_simulated_gpu build/release/bench/place_cost      # or without the script, on a GPU
//
// An op has three operands of 64 KiB. It is timed from its announcement to its end; its work is not launched. Before
// steps have settled it records three events, which are the driver's part; by a settled plan none. Another op makes a
// tensor of 64 KiB, as most do, and the one before ends its own. A move is a copy between two events; the ideal is that
// copy and its events without vedette. Medians of 20 runs, with quartiles.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/device.h"
#include "cuda/device_range.h"
#include "cuda/pinned_pool.h"
#include "machine.h"
#include "vedette/gpu.h"
#include "vedette/session.h"

namespace {

using namespace vedette;
using namespace vedette::literals;
using Clock = std::chrono::steady_clock;

constexpr int runs = 20, ops = 2000, steps_to_settle = 40;
constexpr Bytes tensor_bytes = 64_KiB;
constexpr std::size_t tensors = 64;

class Nobody final : public GpuProgram {  // a program on the default stream that needs no addresses
 public:
  void* current_stream() noexcept override { return nullptr; }
  void moved(const void*, DeviceAddress) noexcept override {}
};

struct Spread {
  double low = 0, median = 0, high = 0;  // us
};

Spread spread_of(std::vector<double> each) {
  std::sort(each.begin(), each.end());
  return {each[each.size() / 4], each[each.size() / 2], each[each.size() * 3 / 4]};
}

// us of one `act`, of which a run does `count`.
template <class Act>
double time_of(int count, const Act& act) {
  const auto began = Clock::now();
  for (int i = 0; i < count; ++i) act(i);
  return std::chrono::duration<double, std::micro>(Clock::now() - began).count() / count;
}

void print(const char* what, const Spread& spread) {
  std::printf("  %-58s %8.2f us  (%.2f to %.2f)\n", what, spread.median, spread.low, spread.high);
}

struct Rig {
  Nobody program;
  std::unique_ptr<Session> session;
  std::vector<std::byte*> names;

  explicit Rig(Bytes budget, const std::string& policy = "on-demand", std::optional<Recompute> recompute = {}) {
    session = Session::open(
                  {.fast_memory = budget, .fast = "gpu:0", .gpu = &program, .policy = policy, .recompute = recompute})
                  .value();
    for (std::size_t t = 0; t < tensors; ++t) {
      names.push_back(session->allocate({.bytes = tensor_bytes}).value());
      session->gpu()->allow_moves(names.back());
    }
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;
  ~Rig() {
    for (std::byte* const name : names) Session::release(name);
  }
  void op(std::size_t first) {
    const void* const reads[] = {names[first % tensors], names[(first + 1) % tensors]};
    const void* const writes[] = {names[(first + 2) % tensors]};
    const auto scope = session->op("op", reads, writes);
  }
};

void measure_ops(const std::shared_ptr<cuda::Device>& device) {
  Rig ample({2 * tensors * tensor_bytes.value});
  auto begin = cuda::Event::create(device, cuda::Event::Timing::on).value();
  auto end = cuda::Event::create(device, cuda::Event::Timing::on).value();
  auto point = cuda::Event::create(device).value();
  std::vector<double> in_step, outside, events;
  for (int run = 0; run < runs; ++run) {
    {
      const auto step = ample.session->step();
      in_step.push_back(time_of(ops, [&](int i) { ample.op(static_cast<std::size_t>(i)); }));
    }
    outside.push_back(time_of(ops, [&](int i) { ample.op(static_cast<std::size_t>(i)); }));
    events.push_back(time_of(ops, [&](int) {
      for (const cuda::Event* each : {&begin, &end, &point}) each->record(nullptr).value();
    }));
  }
  print("an op in a step that is timed, nothing moves", spread_of(in_step));
  print("an op between steps, nothing moves", spread_of(outside));
  print("ideal: the three events that an op records", spread_of(events));
}

// Steps that repeat, as training's do.
Spread time_of_settled(Rig& rig, const std::function<void(int)>& op) {
  std::vector<double> each;
  for (int run = 0; run < steps_to_settle + runs; ++run) {
    const auto step = rig.session->step();
    const double took = time_of(ops, op);
    if (run >= steps_to_settle) each.push_back(took);
  }
  return spread_of(std::move(each));
}

void measure_settled_ops(const char* what, Recompute recompute) {
  Rig ample({2 * tensors * tensor_bytes.value}, "vedette", recompute);
  print(what, time_of_settled(ample, [&](int i) { ample.op(static_cast<std::size_t>(i)); }));
}

// The program asks whether its ops are wanted, as a guard's listener is on or off.
void measure_ops_at_rest() {
  Rig ample({2 * tensors * tensor_bytes.value}, "vedette");
  const auto op = [&](int i) {
    if (ample.session->wants_ops()) ample.op(static_cast<std::size_t>(i));
  };
  const Spread spread = time_of_settled(ample, op);
  print(ample.session->wants_ops() ? "... the same: the session does not rest" : "an op of a session at rest", spread);
}

void measure_settled_births() {
  Rig births({2 * tensors * tensor_bytes.value}, "vedette");
  std::byte* last = nullptr;
  print("... that makes a tensor, and another one ends", time_of_settled(births, [&](int i) {
          std::byte* made = nullptr;
          {
            const void* const reads[] = {births.names[static_cast<std::size_t>(i) % tensors], last};
            const auto scope = births.session->op("op", {reads, last == nullptr ? 1u : 2u}, {});
            made = births.session->allocate({.bytes = tensor_bytes}).value();
          }
          births.session->gpu()->allow_moves(made);
          if (last != nullptr) Session::release(last);
          last = made;
          if (i + 1 == ops) Session::release(std::exchange(last, nullptr));
        }));
}

void measure_moves(const std::shared_ptr<cuda::Device>& device) {
  Rig half({tensors / 2 * tensor_bytes.value});
  auto stream = cuda::Stream::create(device).value();
  auto event = cuda::Event::create(device).value();
  auto range = cuda::DeviceRange::make(device, {.bytes = 2_MiB}).value();
  cuda::PinnedPool pool(device, {});
  std::byte* const slot = pool.take(tensor_bytes).value();
  std::vector<double> moves, copies;
  for (int run = 0; run < runs; ++run) {
    const Counters before = half.session->counters();
    const double an_op = time_of(ops, [&](int i) { half.op(static_cast<std::size_t>(3 * i)); });
    const Counters after = half.session->counters();
    const double bytes =
        static_cast<double>((after.bytes_in - before.bytes_in + after.bytes_out - before.bytes_out).value);
    moves.push_back(an_op * ops / (bytes / static_cast<double>(tensor_bytes.value)));
    copies.push_back(time_of(ops, [&](int) {
      event.record(nullptr).value();
      event.let_wait(stream.handle()).value();
      device->copy(stream.handle(), range.address(), reinterpret_cast<cuda::Address>(slot), tensor_bytes).value();
      event.record(stream.handle()).value();
    }));
    stream.synchronize().value();
  }
  print("a move of 64 KiB, with its share of an op", spread_of(moves));
  print("ideal: a copy that waits for an event, and its event", spread_of(copies));
}

}  // namespace

int main() {
  const auto device = cuda::Device::open(cuda::Driver::load().value(), 0).value();
  std::printf("%s; %s\n", bench::machine_line().c_str(), device->name().c_str());
  if (bench::load_per_core() > bench::busy_load) std::printf("the machine is busy: these times are worth little\n");
  measure_ops(device);
  measure_settled_ops("an op of a settled step, nothing moves", Recompute::planned);
  measure_settled_ops("... where nothing is recomputed", Recompute::off);
  measure_ops_at_rest();
  measure_settled_births();
  measure_moves(device);
}
