// The RAII guard around a training loop: opens the session, directs libtorch's allocations to it, listens to operators.
#include <c10/core/DeviceGuard.h>
#include <caffe2/core/common.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "adapter/torch/allocator.h"
#include "adapter/torch/behaviour.h"
#include "adapter/torch/behaviour_gpu.h"
#include "adapter/torch/fused_steps.h"
#include "adapter/torch/gloo_works.h"
#include "adapter/torch/gpu_addresses.h"
#include "adapter/torch/gpu_lists.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/layer_tracker.h"
#include "adapter/torch/machine_memory.h"
#include "adapter/torch/operators.h"
#include "adapter/torch/recording.h"
#include "adapter/torch/session_memory.h"
#include "adapter/torch/switched_off.h"
#include "adapter/torch/versions.h"
#include "adapter/torch/watched.h"
#include "base/gpu_name.h"
#include "base/readable.h"
#include "session/differing_option.h"
#include "vedette/torch.h"

namespace vedette {
namespace {

// Each sentence once, however often it is true.
class Speaker {
 public:
  void say(std::string_view sentence) {
    const std::lock_guard lock(mutex_);
    if (!said_.emplace(sentence).second) return;
    const std::string line = "vedette: " + std::string(sentence) + "\n";
    std::fputs(line.c_str(), stderr);
  }

 private:
  std::mutex mutex_;
  std::set<std::string, std::less<>> said_;
};

// libtorch gives its version at run time; another minor version than that of the build has other layouts under the same
// names. The version of the build may be one that was never tried: then behaviour decides. at::show_config() says it
// too, and asks for cuDNN's version where there is a GPU.
std::optional<Error> wrong_libtorch(adapter::GpuStorages* gpu) {
  const auto& options = caffe2::GetBuildOptions();
  const auto said = options.find("TORCH_VERSION");
  const std::string found = said == options.end() ? "of an unknown version" : said->second;
  const std::string built = std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + ".";
  if (found.rfind(built, 0) == 0) {
    auto differs = adapter::what_differs();
    if (!differs && gpu != nullptr) differs = adapter::what_differs_on(*gpu);
    if (!differs) return std::nullopt;
    return Error{Cause::unsupported,
                 "libtorch " + found + " is not as vedette knows it, or the program has changed it: " + *differs +
                     "; install a torch that was tried (2.11 to 2." + std::to_string(adapter::newest_tried) + ").",
                 0};
  }
  return Error{Cause::unsupported,
               "vedette was built for libtorch " TORCH_VERSION ", but this program runs with libtorch " + found +
                   ": install torch " + built +
                   "x, or build vedette with the other one (-DVEDETTE_TORCH_DIR=.../site-packages/torch).",
               0};
}

// By default to standard error.
void speak(GuardOptions& options) {
  const bool progress = options.verbose && adapter::rank_of_a_job().value_or(0) == 0;
  // shared, because the arena goes on speaking after the guard is gone
  const auto speaker = [speaker = std::make_shared<Speaker>()](std::string_view sentence) { speaker->say(sentence); };
  if (!progress) options.on_progress = nullptr;
  if (options.on_message) return;
  options.on_message = speaker;
  if (!options.on_progress && progress) options.on_progress = speaker;
}

std::atomic<pid_t> guard_lives_in{0};  // process

// One first guard at a time in a process, from before the session is opened until after it is closed.
class OnlyGuard {
 public:
  OnlyGuard() {
    if (guard_lives_in.exchange(::getpid()) == ::getpid()) {
      throw Failure({Cause::unavailable,
                     "another thread opens or ends a guard of this process now; open this one afterwards.", 0});
    }
  }
  ~OnlyGuard() {
    if (guard_lives_in.load() == made_in_) guard_lives_in.store(0);
  }
  OnlyGuard(const OnlyGuard&) = delete;
  OnlyGuard& operator=(const OnlyGuard&) = delete;

 private:
  const pid_t made_in_ = ::getpid();
};

std::atomic<bool> fraction_was_divided{false};  // among the ranks of this machine

// The last one that became Bytes here: a guard of GPU memory takes it of the GPU's.
thread_local std::optional<std::pair<Fraction, Bytes>> last_fraction;

// "gpu" and "cuda" are the process's own. nullopt: the session names what is wrong.
std::optional<int> number_of_gpu(const std::string& fast) {
  if (fast == "gpu" || fast == "cuda") return adapter::GpuStorages::own_number();
  return gpu_number(gpu_name(fast));
}

}  // namespace

Fraction::operator Bytes() const {
  if (!(value > 0.0 && value <= 1.0))
    throw Failure(
        {Cause::malformed_input, "fast_memory: a fraction of the machine's memory lies above 0 and is at most 1.", 0});
  const std::uint32_t ranks = adapter::local_ranks();
  if (ranks > 1) fraction_was_divided.store(true);
  const Bytes bytes{static_cast<std::uint64_t>(value * static_cast<double>(adapter::machine_memory().total.value)) /
                    ranks};
  last_fraction.emplace(*this, bytes);
  return bytes;
}

struct Guard::State {
  std::optional<OnlyGuard> only;
  GuardOptions options;                 // of the first guard, as the program has them
  std::map<const Guard*, Bytes> parts;  // of the budget
  Result<FastMemory> change_part(const Guard& guard, Bytes bytes);
  std::optional<adapter::GuardRecording> recording;  // outlives the session
  std::unique_ptr<Session> session;
  adapter::LayerTracker layers;
  std::optional<adapter::Watched> watched;
  std::optional<adapter::Announcer> announcer;
  adapter::GpuStorages* gpu = nullptr;
  std::function<void(std::string_view)> say, progress;
  std::atomic<bool> step_runs = false;  // seq_cst: another thread's step is refused
  struct {                              // of the step that runs
    bool hears_ops = false;
    std::uint64_t ops = 0, faults = 0;  // before it
  } began;
  bool told_of_other_threads = false;
  std::uint32_t looked_for_parameters = 0;  // steps
  void tell_of_others();
  void look_for_parameters();
  void tell_of_parameters();
  bool is_off() const noexcept { return !announcer; }
  void take_tensors(Bytes chunk);
  bool begins_to_watch(const Guard& guard);  // false: it is off; throws in a child
};

namespace {

std::mutex living_mutex;
std::weak_ptr<void> living_state;

// Where the guard was given a fraction, it is of the GPU's memory: each rank has a GPU.
void take_fraction_of(adapter::GpuStorages* gpu, GuardOptions& options) {
  const auto given = std::exchange(last_fraction, std::nullopt);
  if (gpu == nullptr || !given || given->second != options.fast_memory) return;
  options.fast_memory = {static_cast<std::uint64_t>(given->first.value * static_cast<double>(gpu->memory_of_device()))};
  fraction_was_divided.store(false);
}

// Of GPU memory: allocations below this stay with libtorch's own allocator, outside of the budget.
std::size_t smallest_of(Bytes budget) {
  constexpr std::uint64_t parts = 4096, least = 512, most = 64 << 10;
  return std::clamp(budget.value / parts, least, most);
}

}  // namespace

// Of this process: a child of fork() opens its own.
std::shared_ptr<Guard::State> Guard::living() {
  const std::lock_guard lock(living_mutex);
  auto state = std::static_pointer_cast<State>(living_state.lock());
  return state != nullptr && guard_lives_in.load() == ::getpid() ? state : nullptr;
}

Result<FastMemory> Guard::State::change_part(const Guard& guard, Bytes bytes) {
  Bytes together = bytes;
  for (const auto& [each, part] : parts)
    if (each != &guard) together += part;
  auto changed = session->set_fast_memory(together);
  if (changed) parts[&guard] = bytes;
  return changed;
}

void Guard::join(GuardOptions options) {
  const auto refuse = [](std::string sentence) {
    throw Failure({.cause = Cause::unsupported, .message = std::move(sentence), .errno_value = 0});
  };
  if (state_->step_runs) refuse("a step of a guard of this process runs; open another guard between steps.");
  if (const char* const option = detail::differing_option(state_->options, options))
    refuse(std::string("a second guard shares the memory of the one that lives, where `") + option +
           "` has another value; leave it out, or end that guard first (in Python: vedette.current_guard().close()).");
  take_fraction_of(state_->gpu, options);
  fraction_was_divided.store(false);
  if (options.fast_memory.value == 0) return static_cast<void>(state_->parts[this] = {});
  if (auto more = state_->change_part(*this, options.fast_memory); !more) throw Failure(more.error());
  if (state_->progress)
    state_->progress("a guard beside another one: they share " + readable(session().budget()) +
                     " of fast memory, and all of it serves the step that runs");
}

Guard::Guard(GuardOptions options) : state_(std::make_shared<State>()) {
  if (!options.enabled || adapter::guards_are_switched_off()) {
    speak(options);
    if (options.enabled && options.on_progress) options.on_progress("VEDETTE_OFF is set: this guard does nothing");
    last_fraction.reset();
    fraction_was_divided.store(false);
    state_->session = Session::switched_off();
    return;
  }
  if (auto first = living()) {
    state_ = std::move(first);
    join(std::move(options));
    return;
  }
  state_->only.emplace();
  state_->options = options;
  // First: libtorch remembers whether there is CUDA from when it is first asked.
  const bool on_gpu = !is_host_memory(options.fast);
  if (const auto number = on_gpu ? number_of_gpu(options.fast) : std::nullopt) {
    options.fast = "gpu:" + std::to_string(*number);
    options.gpu = state_->gpu = &adapter::GpuStorages::open(*number);
    const c10::DeviceGuard on_device(adapter::GpuStorages::device());
    state_->gpu->prepare_workspaces(true);  // outside of the budget, which may be what is free
  }
  take_fraction_of(state_->gpu, options);
  if (auto wrong = wrong_libtorch(state_->gpu)) throw Failure(*std::move(wrong));
  resolve_vector_math();
  State& state = *state_;
  if (options.fast_memory.value == 0 && !on_gpu) options.fast_memory = fraction(0.5);
  speak(options);
  const auto& say = state.say = options.on_message;
  const auto& progress = state.progress = options.on_progress;
  if (const auto sentence = adapter::never_tried(TORCH_VERSION_MINOR, TORCH_VERSION); !sentence.empty()) say(sentence);
  if (options.ranks == 1) options.ranks = adapter::local_ranks();
  if (fraction_was_divided.exchange(false))
    say("fast_memory is a fraction of what each of the " + std::to_string(adapter::local_ranks()) +
        " ranks of this machine (LOCAL_WORLD_SIZE) has of its memory; a number of bytes is each rank's own");
  if (adapter::pressure_is_followed()) options.pressure = true;
  const Bytes chunk = options.chunk;
  state.recording.emplace(options, say, progress);
  if (state.recording->observer() != nullptr) {
    options.observer = state.recording->observer();
    if (options.profile == ProfileTicks::layers) options.profile = ProfileTicks::ops;  // so that its map counts
  }
  options.record.clear();
  state.session = Session::open(std::move(options)).value();
  state.take_tensors(chunk);
  state.parts[this] = state.session->budget();
  const std::lock_guard lock(living_mutex);
  living_state = state_;
}

// From now on libtorch's tensors are the session's, and operators announce theirs.
void Guard::State::take_tensors(Bytes chunk) {
  const bool on_gpu = gpu != nullptr;
  watched.emplace(*session, layers, say);
  announcer.emplace(adapter::Announcer{*session, *watched, layers, {}, {}, chunk, gpu});
  adapter::install_allocator();
  adapter::step_one_by_one();
  if (on_gpu) adapter::cut_long_lists();
  adapter::listen_to_operators(on_gpu ? adapter::Listening::to_operands_and_results : adapter::Listening::to_operands);
  adapter::announce_this_thread(*announcer);
  if (on_gpu) {
    gpu->activate(session.get(), smallest_of(session->budget()), say);
  } else {
    adapter::activate_allocator(session.get());
    adapter::begin_to_hold(*session, say);
  }
}

Guard::~Guard() {
  if (state_->is_off()) return;
  state_->watched->forget(this);
  if (state_->parts.size() > 1) {
    if (!session().in_child()) static_cast<void>(state_->change_part(*this, {}));
    state_->parts.erase(this);
    return;
  }
  {
    const std::lock_guard lock(living_mutex);
    living_state.reset();
  }
  adapter::stop_announcing(*state_->announcer);
  adapter::stop_holding(session());
  adapter::deactivate_allocator(state_->session.get());
  if (state_->gpu != nullptr) adapter::forget_asked_addresses(false);
  if (state_->gpu != nullptr) state_->gpu->activate(nullptr, 0);
  if (session().in_child()) return;  // a child may have a guard of its own by now
  adapter::listen_to_operators(adapter::Listening::off);
  if (state_->gpu != nullptr) state_->gpu->bring_all_home(session(), state_->say);
}

bool Guard::State::begins_to_watch(const Guard& guard) {
  if (is_off()) return false;
  watched->belongs_to(&guard);
  if (auto error = session->in_child() ? session->take_error() : std::nullopt) throw Failure(*std::move(error));
  if (gpu != nullptr) {
    adapter::hear_operators_of_gpu(*session);  // watched tensors may begin away
  } else {
    session->hear_ops();  // an optimizer makes its state in its first step
  }
  return true;
}

void Guard::watch(torch::nn::Module& module, std::string_view name) {
  if (state_->begins_to_watch(*this)) state_->watched->watch(module, std::string(name));
}
void Guard::watch(torch::optim::Optimizer& optimizer) {
  if (state_->begins_to_watch(*this)) state_->watched->watch(optimizer);
}
void Guard::watch(std::span<const Named> tensors) {
  if (!state_->begins_to_watch(*this)) return;
  for (const Named& each : tensors) state_->watched->watch(each.tensor, each.name, each.kind);
  state_->watched->end_of_a_list();
}
void Guard::bring_home() {
  if (state_->begins_to_watch(*this)) state_->watched->bring_home(this);
}

Guard::Step Guard::step() { return Step(*this); }
Guard::Layer Guard::layer(std::string_view name) { return Layer(*state_, name); }
ResidentScope Guard::resident(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return session().resident(nullptr);
  const c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  const void* const memory = adapter::session_memory(storage);
  if (memory != nullptr && Session::owns(memory) && Bytes{storage.nbytes()} > session().budget())
    throw Failure({Cause::out_of_memory,
                   "resident(): a tensor of " + readable(Bytes{storage.nbytes()}) +
                       " does not fit into the budget of " + readable(session().budget()) +
                       "; use a larger budget, or copy the tensor piece by piece.",
                   0});
  constexpr std::chrono::milliseconds patience{1000};  // ops of other threads end meanwhile
  return session().resident(memory, patience, Session::NoRoom::is_thrown);
}

FastMemory Guard::set_fast_memory(Bytes bytes) {
  auto got = state_->is_off() ? session().set_fast_memory(bytes) : state_->change_part(*this, bytes);
  if (!got) throw Failure(got.error());
  return *std::move(got);
}

Session& Guard::session() noexcept { return *state_->session; }
Counters Guard::counters() const noexcept { return state_->session->counters(); }

namespace {

Session& ready_for_step(Session& session) {
  if (auto error = session.take_error()) throw Failure(*std::move(error));
  if (session.gpu() != nullptr) adapter::forget_asked_addresses(true);
  return session;
}

}  // namespace

// A step whose operators another thread calls has none that is announced: all that moves moves by page faults.
void Guard::State::tell_of_others() {
  constexpr std::uint64_t many = 64;  // more than a thread takes that prepares a batch
  if (!began.hears_ops || told_of_other_threads) return;
  const Counters now = session->counters();
  if (now.ops > began.ops || now.faults < began.faults + many) return;
  told_of_other_threads = true;
  say("no operator ran on the thread that began the step, and other threads brought what they touched by " +
      std::to_string(now.faults - began.faults) +
      " page faults: nothing of such a step is planned; begin the step on the thread that trains");
}

// A model that was made before its guard and is not watched stays outside of the budget. In its first steps a guard
// that watches nothing looks for its parameters.
void Guard::State::look_for_parameters() {
  constexpr std::uint32_t steps = 2;
  if (!watched->none() || looked_for_parameters >= steps) return;
  ++looked_for_parameters;
  announcer->unwatched = std::make_unique<std::map<const c10::StorageImpl*, Bytes>>();
}

void Guard::State::tell_of_parameters() {
  const auto found = std::exchange(announcer->unwatched, nullptr);
  Bytes bytes;
  for (const auto& each : found != nullptr ? *found : std::map<const c10::StorageImpl*, Bytes>{}) bytes += each.second;
  if (bytes < 1_MiB) return;
  looked_for_parameters = ~0u;
  say(std::to_string(found->size()) + " parameters of " + readable(bytes) +
      " that operators use are not watched, so they stay outside of the budget; call guard.watch(model), and "
      "guard.watch(optimizer)");
}

Guard::Step::Turn::Turn(State& of) : state(of) {
  if (state.step_runs.exchange(true))
    throw Failure({.cause = Cause::unsupported,
                   .message = "a step of this guard runs; steps do not nest, and one thread at a time has one.",
                   .errno_value = 0});
}
Guard::Step::Turn::~Turn() {
  if (state.recording) state.recording->live().step_ended(*state.session);
  state.step_runs = false;
}

Guard::Step::Step(Guard& guard) : state_(*guard.state_), turn_(state_), scope_(ready_for_step(*state_.session).step()) {
  if (state_.is_off()) return;
  state_.recording->live().step_begins();
  state_.layers.begin_step();
  using adapter::Listening;
  const bool on_gpu = state_.gpu != nullptr;
  if (on_gpu && state_.gpu->others_compute()) state_.session->hear_ops();
  adapter::listen_to_operators(!state_.session->wants_ops() ? Listening::off
                               : on_gpu                     ? Listening::to_operands_and_results
                                                            : Listening::to_operands);
  if (state_.gpu == nullptr) {
    const Counters now = state_.session->counters();
    state_.began = {.hears_ops = state_.session->wants_ops(), .ops = now.ops, .faults = now.faults};
  }
  state_.look_for_parameters();
  state_.announcer->in_step = true;
  adapter::announce_this_thread(*state_.announcer);
  adapter::set_between_steps(false);
}
Guard::Step::~Step() {
  if (state_.is_off()) return;
  if (state_.session->phase() != "planned") state_.watched->name_gradients();  // this step may become a profile
  if (state_.gpu != nullptr) adapter::forget_asked_addresses(false);
  state_.tell_of_others();
  state_.tell_of_parameters();
  state_.announcer->in_step = false;
  adapter::set_between_steps(true);
}
Guard::Layer Guard::Step::layer(std::string_view name) { return Layer(state_, name); }

Guard::Layer::Layer(State& state, std::string_view name) : state_(state), scope_(state.session->layer(name)) {
  state_.layers.begin_named(name);
}
Guard::Layer::~Layer() { state_.layers.end_named(); }

}  // namespace vedette
