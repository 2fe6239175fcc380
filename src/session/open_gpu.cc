// The session of a GPU: see open_gpu.h.
#include "session/open_gpu.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/gpu_name.h"
#include "base/readable.h"
#include "cuda/managed_tracker.h"
#include "gpu/executor.h"
#include "session/below_gpu.h"
#include "session/stack.h"

namespace vedette::detail {
namespace {

constexpr Bytes name_unit = 4_KiB;  // tensors are named by addresses that are multiples of this
constexpr Bytes least_budget = 64_KiB;
Error unsupported(std::string message) { return {.cause = Cause::unsupported, .message = std::move(message)}; }

Result<int> ordinal_of(std::string_view fast) {
  if (const auto number = gpu_number(fast)) return *number;
  return unsupported(
      "fast memory '" + std::string(fast) +
      "' is unknown; use dram, numa:N with the number of a NUMA node, or gpu:N with the number of a GPU");
}

Result<Bytes> budget_of(const SessionOptions& options, const cuda::Device& device) {
  const auto memory = device.memory();
  if (!memory) return memory.error();
  const Bytes most{memory->free.value - memory->free.value / 20};
  const Bytes budget = options.fast_memory.value == 0 ? most : options.fast_memory;
  if (budget < least_budget)
    return unsupported("fast_memory of " + readable_exactly(budget) + " is too small for a GPU: give it " +
                       readable_exactly(least_budget) + " or more");
  if (budget > memory->free)
    return Error{.cause = Cause::out_of_memory,
                 .message = "fast_memory of " + readable_exactly(budget) + " is more than the " +
                            readable_exactly(memory->free) + " that are free on " + device.name() +
                            "; give it less, or end what uses the GPU"};
  return Bytes{budget.value / name_unit.value * name_unit.value};
}

Bytes all_of(const cuda::Device& device) {
  const auto memory = device.memory();
  return memory ? memory->total : Bytes{};
}

// Names for many times the budget: a step's temporaries have one each.
Bytes names_for(Bytes budget) {
  constexpr std::uint64_t times = 256, least = std::uint64_t{64} << 30, most = std::uint64_t{8} << 40;
  return {std::clamp(budget.value * times, least, most)};
}

Machine machine_of_gpu(std::string_view name, Bytes budget, Bytes unit, const BelowGpu& below) {
  Machine machine = machine_of(budget, unit, below.tiers, below.habits);
  machine.tiers[0].name = name;
  machine.fault_time = {};
  machine.whole_tensors = true;
  machine.habits = {};  // a copy starts when its place is free, both ways at once
  return machine;
}

// Records of managed memory's faults; nullptr: no page is to be seen.
Result<std::unique_ptr<cuda::FaultRecords>> open_faults(const SessionOptions& options, const cuda::Device& device) {
  if (options.tracker != managed_tracker || options.profile == ProfileTicks::operands)
    return std::unique_ptr<cuda::FaultRecords>();
  if (auto works = cuda::ManagedTracker::works_on(device); !works) return works.error();
  constexpr cuda::CounterKind kinds[] = {cuda::CounterKind::device_page_fault};
  return cuda::FaultRecords::open(kinds);
}

Tracking tracking_of(std::shared_ptr<const cuda::Device> device, const GpuMemory& memory, Bytes budget,
                     std::unique_ptr<cuda::FaultRecords> faults) {
  static constexpr TrackerKind kind{managed_tracker, FrameKind::fast, nullptr};
  const auto address_of = [&memory](const std::byte* name) -> cuda::Address { return memory.address(name); };
  const cuda::ManagedTracker::Memory range{
      .address = memory.memory().address, .bytes = budget, .address_of = address_of};
  return {.tracker = &kind,
          .of_gpu = std::make_unique<cuda::ManagedTracker>(std::move(device), std::move(faults), range)};
}

Result<void> tables_fit(const SessionOptions& options, Bytes budget) {
  if (options.table_memory.value % name_unit.value == 0 && options.table_memory + least_budget <= budget) return {};
  return unsupported("table_memory of " + readable_exactly(options.table_memory) + " in a fast_memory of " +
                     readable_exactly(budget) + ": give whole pages of 4 KiB, and leave " +
                     readable_exactly(least_budget) + " or more for other tensors");
}

constexpr std::string_view slow_profile =
    "profiling sees pages by CUPTI: the GPU's memory is managed, and in the profiled step all of it is brought to the "
    "host before each op or layer; that is for small runs";

}  // namespace

Result<std::unique_ptr<SessionCore>> open_gpu_core(SessionOptions options) {
  const auto ordinal = ordinal_of(options.fast);
  if (!ordinal) return ordinal.error();
  if (options.gpu == nullptr)
    return unsupported("fast memory on a GPU needs the program's part (SessionOptions::gpu); a Guard brings it");
  auto driver = cuda::Driver::load();
  if (!driver) return driver.error();
  auto device = cuda::Device::open(std::move(*driver), *ordinal);
  if (!device) return device.error();
  auto faults = open_faults(options, **device);
  if (!faults) return faults.error();
  const bool sees_pages = *faults != nullptr;
  const Bytes unit{sees_pages ? page_size : std::size_t{512}};  // a page has one tensor
  const auto budget = budget_of(options, **device);
  if (!budget) return budget.error();
  if (auto suits = tables_fit(options, *budget); !suits) return suits.error();
  const Bytes places = *budget - options.table_memory;
  auto below = open_below_gpu(options, places, *device);
  if (!below) return below.error();
  options.fast_memory = *budget;
  options.chunk = name_unit;
  // A recipe that is tried touches pages, which would count as the program's.
  options.recompute = options.recompute.value_or(sees_pages ? Recompute::off : Recompute::planned);
  if (!sees_pages) options.profile = ProfileTicks::operands;
  auto names = Mapping::reserve(names_for(*budget), name_unit);
  if (!names) return names.error();
  GpuProgram* const program = options.gpu;
  std::shared_ptr<DeviceReports> reports;
  if (options.observer != nullptr) reports = std::make_shared<DeviceReports>(*device, options.observer);
  if (reports != nullptr) options.observer = reports.get();
  const std::string fast = options.fast;
  const Bytes tables = options.table_memory;
  auto core = std::make_unique<SessionCore>(std::move(options), std::move(*names), Heap::Chunks::of_one_tensor);
  auto executor = GpuExecutor::make(*device,
                                    {.budget = places,
                                     .most = std::max(places, all_of(**device)),
                                     .host = below->host,
                                     .arena = core->arena().base(),
                                     .chunk = name_unit,
                                     .program = program,
                                     .reports = std::move(reports),
                                     .tables = tables,
                                     .unit = unit,
                                     .managed = sees_pages,
                                     .link = below->habits.front().speed,
                                     .say = [core = core.get()](std::string_view words) { core->post(words); }},
                                    std::move(below->disk));
  if (!executor) return executor.error();
  SessionCore::Opened memory;
  memory.executor = std::move(*executor);
  memory.machine = machine_of_gpu(fast, places, unit, *below);
  memory.frames = static_cast<std::uint32_t>(places.value / name_unit.value);
  if (sees_pages) {
    memory.tracking = tracking_of(*device, *memory.executor->gpu(), places, std::move(*faults));
    core->post(slow_profile);
  }
  core->start(std::move(memory));
  return core;
}

}  // namespace vedette::detail
