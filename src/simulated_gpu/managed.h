// Where each page of managed memory is: on the host, on the device, or, where it is read mostly, on both.
//
// A page that another side touches first comes there by a fault, which is recorded: kernels fault in the shadow, host
// code at the device address (memory.h). Pages are followed while CUPTI's counters are on. Otherwise both sides reach
// all of them, and nothing is recorded.
//
// What always holds while pages are followed: a page of one side is readable and writable there alone, a page of both
// is readable on both. Thread rule: any thread; fault() in a signal handler. follow() and take() while nothing touches
// managed memory.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace vedette::simulated {

class ManagedPages {
 public:
  static constexpr std::size_t page_bytes = 4096;
  struct Fault {
    std::uintptr_t page;  // its device address
    std::int64_t ns;      // of a steady clock
    bool by_device, write, moved;
  };
  struct Taken {
    std::vector<Fault> faults;
    std::size_t lost = 0;  // for want of room
  };

  ManagedPages();
  void add(std::uintptr_t at, std::size_t bytes);  // device addresses; on the host
  void remove(std::uintptr_t at, std::size_t bytes);
  void follow(bool on);  // from now on; all pages are on the host
  void prefetch(std::uintptr_t at, std::size_t bytes, bool to_device);
  // Off: of a page that both sides have, the device keeps its copy. CUDA leaves open who does.
  void read_mostly(std::uintptr_t at, std::size_t bytes, bool on);
  Taken take();
  // False: the address is none of managed memory.
  bool fault(std::uintptr_t at, bool write) noexcept;

 private:
  enum Bits : std::uint8_t { managed = 1, on_host = 2, on_device = 4, mostly_read = 8, busy = 16 };
  using State = std::atomic<std::uint8_t>;  // acquire and release of `busy`: its protection is changed in between

  std::uint8_t take_page(std::size_t page) noexcept;
  template <class Change>  // std::uint8_t(std::uint8_t)
  void change(std::uintptr_t at, std::size_t bytes, const Change& change_of) noexcept;
  void protect(std::size_t page, std::size_t count, std::uint8_t state) const noexcept;
  void open_to_both(std::uintptr_t at, std::size_t bytes) const noexcept;
  void record(const Fault& fault) noexcept;
  static std::size_t room() noexcept;
  static std::uint8_t moved(std::uint8_t state, Bits to, bool write) noexcept;

  const std::uintptr_t begin_, shadow_;
  State* const states_;  // by page of the whole range
  std::atomic<bool> followed_{false};
  std::mutex guard_;
  std::map<std::uintptr_t, std::size_t> ranges_;
  const std::unique_ptr<Fault[]> faults_;
  std::atomic<std::size_t> recorded_{0};  // relaxed: who counts on writes its own record
};

ManagedPages& managed_pages();                  // made by the first call
ManagedPages* managed_pages_if_any() noexcept;  // for the handler of faults

}  // namespace vedette::simulated
