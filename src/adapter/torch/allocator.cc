// The allocator facade: see allocator.h.
#include "adapter/torch/allocator.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <thread>
#include <unordered_map>

#include "adapter/torch/gloo_works.h"
#include "adapter/torch/ordinary_memory.h"
#include "vedette/session.h"

namespace vedette::adapter {
namespace {

const c10::Device cpu{c10::DeviceType::CPU};

thread_local Birth birth_here;
thread_local int ordinary_here = 0;  // OrdinaryMemory that lives
thread_local std::vector<Noted>* noted_here = nullptr;
thread_local std::vector<Redirected>* redirected_here = nullptr;
thread_local std::unordered_map<std::size_t, std::uint32_t> born_here;  // by bytes: since redirect_births()

void leave_alone(void*) {}  // memory that was redirected belongs to the session

std::byte* redirected(std::size_t bytes) {
  const std::uint32_t nth = born_here[bytes]++;
  for (Redirected& birth : *redirected_here) {
    if (birth.bytes != bytes || birth.nth != nth) continue;
    birth.made = true;
    return birth.to;
  }
  return nullptr;
}

class Facade final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release_memory, cpu};
    const bool scratch = redirected_here != nullptr;
    if (std::byte* const to = scratch ? redirected(bytes) : nullptr) return {to, to, &leave_alone, cpu};
    const Entered entered(*this);
    if (entered.session == nullptr || entered.session->in_child() || carries_a_work() || ordinary_here > 0)
      return ordinary(bytes);
    const Birth birth = birth_here_now();
    Result<std::byte*> memory = entered.session->allocate({.bytes = {bytes},
                                                           .name = birth.name,
                                                           .kind = birth.kind,
                                                           .persistent = birth.persistent && !scratch,
                                                           .scratch = scratch});
    if (!memory) {
      if (c10::memoryProfilingEnabled()) c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, false, memory.error().message);
    }
    if (c10::memoryProfilingEnabled()) c10::profiledCPUMemoryReporter().New(*memory, bytes);
    if (noted_here != nullptr && !scratch) noted_here->push_back({.bytes = bytes, .at = *memory});
    return {*memory, *memory, &release_memory, cpu};
  }

  c10::DataPtr ordinary(std::size_t bytes) {
    c10::DataPtr memory = before_->allocate(bytes);
    void* const data = memory.get();
    memory.release_context();
    return {data, data, &release_memory, cpu};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release_memory; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    default_copy_data(target, source, count);
  }

  void install() {
    before_ = c10::GetCPUAllocator();
    // Memory must be releasable from its address alone. An allocator that cannot do so stays aside.
    if (before_->raw_deleter() == nullptr) before_ = c10::GetDefaultCPUAllocator();
    c10::SetCPUAllocator(this, allocator_priority);
    installed_ = c10::GetCPUAllocator() == this;
    TORCH_CHECK(installed_, "vedette: this program's CPU allocator has a priority above ", int{allocator_priority},
                ", so that a guard cannot take its place");
  }
  bool installed() const noexcept { return installed_; }
  c10::DeleterFnPtr deleter_before() const { return before_ == nullptr ? nullptr : before_->raw_deleter(); }

  void activate(Session* session) noexcept {
    // A fork leaves the count of threads that the child does not have.
    if (Session* const before = active_.load(); before != nullptr && before->in_child()) inside_.store(0);
    // seq_cst, as in Entered: either the allocating thread sees the new session, or we see that it is inside.
    active_.store(session);
    while (inside_.load() != 0) std::this_thread::yield();
  }

  void deactivate(const Session* session) noexcept {
    if (active_.load() == session) activate(nullptr);
  }

  Session* active() const noexcept { return active_.load(); }

  // relaxed: a hint. A thread that allocates while a step begins may be told either.
  Birth birth_here_now() const noexcept {
    return between_steps_.load(std::memory_order_relaxed) ? Birth{.persistent = true} : birth_here;
  }
  void set_between_steps(bool between) noexcept { between_steps_.store(between, std::memory_order_relaxed); }

  void release_ordinary(void* memory) const noexcept { before_->raw_deleter()(memory); }

 private:
  struct Entered {  // keeps the session alive while this thread allocates from it
    explicit Entered(Facade& f) noexcept : facade(f) {
      facade.inside_.fetch_add(1);
      session = facade.active_.load();
    }
    ~Entered() { facade.inside_.fetch_sub(1); }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    Facade& facade;
    Session* session;
  };

  c10::Allocator* before_ = nullptr;
  bool installed_ = false;
  std::atomic<Session*> active_{nullptr};
  std::atomic<std::uint32_t> inside_{0};
  std::atomic<bool> between_steps_{true};
};

Facade& facade() {
  static Facade* const immortal = new Facade;  // storages point to it until the process ends
  return *immortal;
}

}  // namespace

OrdinaryMemory::OrdinaryMemory() noexcept { ++ordinary_here; }
OrdinaryMemory::~OrdinaryMemory() { --ordinary_here; }

void install_allocator() {
  if (!facade().installed()) facade().install();
}

void activate_allocator(Session* session) noexcept { facade().activate(session); }

void deactivate_allocator(const Session* session) noexcept { facade().deactivate(session); }

Session* active_session() noexcept { return facade().active(); }

void set_between_steps(bool between) noexcept { facade().set_between_steps(between); }

void set_birth(Birth birth) noexcept { birth_here = birth; }

Birth birth_now() noexcept { return facade().birth_here_now(); }

void note_births(std::vector<Noted>* births) noexcept { noted_here = births; }

void redirect_births(std::vector<Redirected>* births) noexcept {
  redirected_here = births;
  born_here.clear();
}

bool is_of_an_allocator(const c10::DataPtr& memory) noexcept {
  const c10::DeleterFnPtr deleter = memory.get_deleter();
  return deleter != nullptr && memory.get_context() == memory.get() &&
         (deleter == &release_memory || deleter == facade().deleter_before() ||
          deleter == c10::GetDefaultCPUAllocator()->raw_deleter());
}

c10::DataPtr ordinary_memory(std::size_t bytes) { return facade().ordinary(bytes); }

void release_memory(void* memory) noexcept {
  if (memory == nullptr) return;
  if (!Session::owns(memory)) return facade().release_ordinary(memory);
  if (c10::memoryProfilingEnabled()) c10::profiledCPUMemoryReporter().Delete(memory);
  Session::release(static_cast<std::byte*>(memory));
}

}  // namespace vedette::adapter
