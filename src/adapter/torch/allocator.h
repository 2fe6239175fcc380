// The one allocator that libtorch sees for CPU memory once a guard has lived: while a session is active its allocations
// come from the session's arena, otherwise from the allocator that was there before. It is immortal, because storages
// keep a pointer to their allocator and may outlive every guard: this is the library's one global.
//
// In a child of fork() the session that was active is the parent's: allocations are ordinary ones, and releases of the
// parent's memory are ignored.
//
// Memory of both kinds has the same deleter and context == data, so that a storage never needs to know where it lives.
// Thread rule: any thread, except install() and activate(), which belong to the thread that makes and ends guards.
#pragma once
#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "vedette/model.h"

namespace vedette {

class Session;

namespace adapter {

struct Birth {  // the session's expectation of memory that is allocated now
  TensorKind kind = TensorKind::activation;
  bool persistent = false;
  std::string_view name = {};  // lives until the next set_birth()
};

// libtorch lets an allocator replace another one of the same or a lower priority. Ours is above the default (0) and
// leaves room for a program that insists on its own.
constexpr std::uint8_t allocator_priority = 100;

void install_allocator();  // once; later calls do nothing
// Allocations go to `session` from now on, or to ordinary memory (nullptr). Returns when no other thread is still
// allocating from the session before.
void activate_allocator(Session* session) noexcept;
void deactivate_allocator(const Session* session) noexcept;  // nothing, where it is not the active one
Session* active_session() noexcept;                          // nullptr: none; the thread that makes and ends guards
// Between steps memory is expected to last: models are built then. `set_birth` is about this thread, and holds during a
// step.
void set_between_steps(bool between) noexcept;
void set_birth(Birth birth) noexcept;
Birth birth_now() noexcept;  // of what this thread allocates
// This thread's allocations are noted from now on; nullptr: no more.
struct Noted {
  std::size_t bytes = 0;
  const std::byte* at = nullptr;
};
void note_births(std::vector<Noted>* births) noexcept;
// From now on this thread's allocations are scratch of the session, but for these; nullptr: no more.
struct Redirected {
  std::size_t bytes = 0;
  std::uint32_t nth = 0;  // allocation of so many bytes, from 0
  std::byte* to = nullptr;
  bool made = false;
};
void redirect_births(std::vector<Redirected>* births) noexcept;
// not from the arena, whatever is active; throws what the allocator throws
c10::DataPtr ordinary_memory(std::size_t bytes);
void release_memory(void* memory) noexcept;  // the deleter of both kinds
// libtorch's CPU allocator made it, this one or another: a storage of a reader (torch::load, torch.load) has no
// allocator.
bool is_of_an_allocator(const c10::DataPtr& memory) noexcept;

}  // namespace adapter
}  // namespace vedette
