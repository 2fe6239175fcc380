// A bounded queue between one producer and one consumer. Neither ever waits: when the ring is full, push() says so and
// the producer counts the records that it drops. The memory is allocated and touched when the ring is made, never
// later.
//
// Thread rule: push() from one thread at a time (threads that a lock orders count as one), drain() from one other
// thread.
#pragma once
#include <atomic>
#include <bit>
#include <cstddef>
#include <vector>

namespace vedette {

template <class T>
class Ring {
 public:
  // Holds `capacity` records, rounded up to a power of two.
  explicit Ring(std::size_t capacity) : records_(std::bit_ceil(capacity)) {}

  bool push(const T& record) noexcept {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    // acquire: pairs with the release in drain(), so that a slot is read before it is written again.
    if (tail - head_.load(std::memory_order_acquire) == records_.size()) return false;
    records_[tail & (records_.size() - 1)] = record;
    tail_.store(tail + 1, std::memory_order_release);  // release: pairs with the acquire in drain()
    return true;
  }

  // Hands every record that is there to `use`, oldest first.
  template <class Use>
  void drain(Use&& use) {
    std::size_t head = head_.load(std::memory_order_relaxed);
    const std::size_t tail = tail_.load(std::memory_order_acquire);  // acquire: pairs with the release in push()
    for (; head != tail; ++head) {
      use(records_[head & (records_.size() - 1)]);
      head_.store(head + 1, std::memory_order_release);  // release: pairs with the acquire in push()
    }
  }

 private:
  std::vector<T> records_;
  alignas(64) std::atomic<std::size_t> tail_ = 0;  // apart, so that producer and consumer do not share a cache line
  alignas(64) std::atomic<std::size_t> head_ = 0;
};

}  // namespace vedette
