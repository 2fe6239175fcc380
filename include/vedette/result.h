// A value, or the error that prevented it. (std::expected arrives with C++23; GCC 12 and Clang 14 lack it in C++20.)
// The message of an Error is one sentence for the user: the operation that failed, and the remedy.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace vedette {

enum class Cause {
  unavailable,      // this machine or container does not offer it, or not now
  unsupported,      // vedette does not do it
  out_of_memory,    // no room in fast memory, in the arena's addresses, or for the arena's tables
  malformed_input,  // a file, an option or a plan is contradictory or cannot be read
  infeasible,       // no plan fits: the largest op needs more than the fastest tier has
  system,           // a system call or a transfer failed (Error::errno_value)
};

struct Error {
  Cause cause = Cause::system;
  std::string message;  // "userfaultfd: Operation not permitted; set vm.unprivileged_userfaultfd=1 or run as root"
  int errno_value = 0;  // 0 unless a system call failed
};

// Thrown by Result::value() and by the torch adapter, and nowhere else.
struct Failure : std::runtime_error {
  explicit Failure(Error e) : std::runtime_error(e.message), error(std::move(e)) {}
  Error error;
};

template <class T>
class [[nodiscard("a Result may hold an error")]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }
  T& operator*()& { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }
  T value()&& {
    if (!ok()) throw Failure(std::get<1>(std::move(state_)));
    return std::get<0>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard("a Result may hold an error")]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : failed_(true), error_(std::move(error)) {}

  bool ok() const noexcept { return !failed_; }
  explicit operator bool() const noexcept { return ok(); }
  const Error& error() const { return error_; }
  void value()&& {
    if (failed_) throw Failure(std::move(error_));
  }

 private:
  bool failed_ = false;
  Error error_;
};

}  // namespace vedette
