// Bytes and addresses of a GPU's storages for code that asks for them outside of operators: Python's storages, DLPack,
// kernels of the program's own. Such code neither hears of moves nor announces what it uses.
//
// HeldStorages: in place for the time of a call. address_for_program(): an address as a number, which names the storage
// among others and may be used until the next op. keep_in_place(): for life, where another library has the address.
//
// Invariant: of two living storages no two answers of address_for_program() are equal as long as no op begins, and
// between two steps not after ops either. A checkpoint that looks for shared tensors by address relies on it.
// Thread rule: any thread.
#pragma once
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <list>
#include <span>

#include "vedette/session.h"

namespace vedette::adapter {

class HeldStorages {
 public:
  // Others than a living guard's are left alone. Throws Failure of Cause::out_of_memory, and holds nothing, where the
  // budget has no room for all of them beside what is held.
  explicit HeldStorages(std::span<c10::StorageImpl* const> storages);
  ~HeldStorages();
  HeldStorages(const HeldStorages&) = delete;
  HeldStorages& operator=(const HeldStorages&) = delete;

 private:
  struct Held {
    Held(Session& session, const void* name) : scope(session.resident(name)) {}
    ResidentScope scope;
  };
  std::list<Held> held_;  // scopes do not move
};

// Where the storage lies: it comes, and stays until the next op of the training begins. Storages that were asked for
// since the last op stay in up to a quarter of the budget. Beyond that a storage that is away is called by its name,
// which is no other storage's, and no address that can be used. Of a storage that is no living guard's: its pointer.
std::uint64_t address_for_program(c10::StorageImpl& storage);
// From now on the storage stays where it is as long as it lives. Throws as HeldStorages.
void keep_in_place(c10::StorageImpl& storage);

// An op begins: what was asked for may move.
void let_asked_storages_go() noexcept;
// A step begins or ends, or the guard ends.
void forget_asked_addresses(bool a_step_runs) noexcept;

}  // namespace vedette::adapter
