// A library that is loaded at run time, and functions in it that answer 0 or the number of an error.
//
// A call that fails throws Refused with the error's name and the function's, which is what a row of the report says. A
// function that the library lacks is refused like a call that fails, and only when it is called. Thread rule: loaded
// once, then called from any thread that the library itself allows.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

namespace vedette::gpu {

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Library {
 public:
  struct Options {
    std::string what;                                                   // "driver", as in "no driver (libcuda.so.1)"
    std::vector<std::string> names;                                     // tried in turn
    void* (*other_lookup)(const Library&, const char* name) = nullptr;  // for what the file does not export
    std::string (*name_of_error)(const Library&, int error) = nullptr;  // default: "error 7"
  };
  explicit Library(Options options);  // throws Refused where none loads
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const std::string& path() const { return path_; }  // of the file that was loaded
  void* exported(const char* name) const;            // nullptr: it has none
  void* find(const char* name) const;                // exported, or else what other_lookup finds
  [[noreturn]] void refuse(int error, const char* function) const;

 private:
  Options options_;
  void* handle_ = nullptr;  // never closed: the driver starts threads
  std::string path_;
};

template <class... Arguments>
class Call {
 public:
  Call(const Library& library, const char* name)
      : library_(library), name_(name), address_(reinterpret_cast<int (*)(Arguments...)>(library.find(name))) {}

  const char* name() const { return name_; }
  int error(Arguments... arguments) const {
    if (address_ == nullptr) throw Refused(std::string("not in this library (") + name_ + ")");
    return address_(arguments...);
  }
  void operator()(Arguments... arguments) const {
    if (const int number = error(arguments...); number != 0) library_.refuse(number, name_);
  }

 private:
  const Library& library_;
  const char* name_;
  int (*address_)(Arguments...);
};

}  // namespace vedette::gpu
