// Descriptors that a child of fork() does not keep: memory and disk space behind them would outlive the parent.
#pragma once

namespace vedette {

// While it lives, children close `fd`. Destroyed before the descriptor is closed. Any thread.
class [[nodiscard]] ClosedInChildren {
 public:
  explicit ClosedInChildren(int fd) noexcept;
  ~ClosedInChildren();
  ClosedInChildren(const ClosedInChildren&) = delete;
  ClosedInChildren& operator=(const ClosedInChildren&) = delete;

 private:
  int place_ = -1;
};

// In the child, as its first act; async-signal-safe.
void close_what_children_do_not_keep() noexcept;

}  // namespace vedette
