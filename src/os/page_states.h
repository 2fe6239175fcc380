// One byte for each page that a tracker watches, found in two loads, also from signal handlers. A table of the address
// space's gigabytes has a block of states for each gigabyte of which a page was named.
//
// Thread rule: name() from one thread at a time; the rest from any, also while name() runs.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/mapping.h"
#include "os/address_ranges.h"
#include "vedette/result.h"

namespace vedette {

class PageStates {
 public:
  using State = std::uint8_t;
  static constexpr unsigned block_bits = 30, address_bits = user_address_bits;
  static inline const std::size_t pages_per_block = (std::size_t{1} << block_bits) / page_size;

  static Result<PageStates> create() {
    auto table = Mapping::reserve({block_count * sizeof(State*)}, {page_size});
    if (!table) return table.error();
    return PageStates(std::move(table).value());
  }

  static Span<std::uintptr_t> pages_of(const AddressRange& range) noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
    return {begin / page_size, (begin + range.bytes) / page_size};
  }
  static std::byte* address_of(std::uintptr_t page) noexcept { return reinterpret_cast<std::byte*>(page * page_size); }

  // nullptr: no page of this gigabyte was ever named. acquire pairs with the release in name().
  State* find(std::uintptr_t page) const noexcept {
    if (page * page_size >> address_bits != 0) return nullptr;
    State* const states = block(page).load(std::memory_order_acquire);
    return states == nullptr ? nullptr : states + page % pages_per_block;
  }
  State load(std::uintptr_t page) const noexcept {
    State* const state = find(page);
    return state == nullptr ? State{0} : std::atomic_ref(*state).load(std::memory_order_relaxed);
  }
  // Of named pages; both return the former state.
  State exchange(std::uintptr_t page, State next) noexcept {
    return std::atomic_ref(*find(page)).exchange(next, std::memory_order_relaxed);
  }
  State add(std::uintptr_t page, State bits) noexcept {
    return std::atomic_ref(*find(page)).fetch_or(bits, std::memory_order_relaxed);
  }

  // These pages have states from now on, 0 at first. A block is one page that holds the number of its first page, then
  // its states.
  Result<void> name(const AddressRange& range) {
    const auto pages = pages_of(range);
    for (std::uintptr_t base = pages.begin - pages.begin % pages_per_block; base < pages.end; base += pages_per_block) {
      if (block(base).load(std::memory_order_relaxed) != nullptr) continue;
      auto mapping = Mapping::reserve({page_size + pages_per_block}, {page_size});
      if (!mapping) return mapping.error();
      std::memcpy(mapping->data(), &base, sizeof base);
      block(base).store(reinterpret_cast<State*>(mapping->data() + page_size), std::memory_order_release);
      blocks_.push_back(std::move(mapping).value());
    }
    return {};
  }

  // Calls `with(AddressRange)` for each run of pages whose state has one of `bits`.
  template <class With>
  void for_runs(State bits, With with) const {
    for (const Mapping& mapping : blocks_) {
      State* const states = reinterpret_cast<State*>(mapping.data() + page_size);
      const auto has = [&](std::size_t i) {
        return (std::atomic_ref(states[i]).load(std::memory_order_relaxed) & bits) != 0;
      };
      std::uintptr_t base = 0;
      std::memcpy(&base, mapping.data(), sizeof base);
      for (std::size_t i = 0; i < pages_per_block; ++i) {
        if (!has(i)) continue;
        std::size_t end = i;
        while (end < pages_per_block && has(end)) ++end;
        with(AddressRange{address_of(base + i), (end - i) * page_size});
        i = end;
      }
    }
  }

 private:
  static constexpr std::size_t block_count = std::size_t{1} << (address_bits - block_bits);

  explicit PageStates(Mapping table) : table_(std::move(table)) {}
  std::atomic_ref<State*> block(std::uintptr_t page) const noexcept {
    return std::atomic_ref<State*>(reinterpret_cast<State**>(table_.data())[page / pages_per_block]);
  }

  Mapping table_;  // block_count pointers to blocks of pages_per_block states
  std::vector<Mapping> blocks_;
};

}  // namespace vedette
