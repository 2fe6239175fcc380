// The names of gloo's types that c10d's ProcessGroupGloo.hpp mentions: libtorch's wheel has that header and the code
// behind it, but not gloo's own headers. CMakeLists.txt makes files of their names that include this one.
//
// Invariant: none of these types is ever made, laid out or called by us; Store is a base of a class that we do not use.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport
namespace rendezvous {
class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
};
}  // namespace rendezvous
}  // namespace gloo
