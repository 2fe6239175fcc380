// A program on the simulated GPU whose tensors are words: every op runs on the device by way of a session, and on the
// host at once. So a test compares what the device has with what it should have, however tensors moved.
//
// Thread rule: one thread.
#pragma once
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "simulated_gpu/test_device.h"
#include "vedette/gpu.h"
#include "vedette/policy.h"
#include "vedette/session.h"

namespace vedette::testing {

inline std::uint32_t mixed(std::uint32_t a, std::uint32_t b) {
  return (a ^ (b + 0x9e3779b9u)) * 2654435761u + (a >> 15);
}

class WordsOnGpu final : public GpuProgram {
 public:
  struct Tensor {
    std::byte* name = nullptr;
    std::vector<std::uint32_t> words;  // what it should hold
  };

  explicit WordsOnGpu(SessionOptions options) {
    options.fast = "gpu:0";
    options.gpu = this;
    options.on_message = [this](std::string_view sentence) { messages.emplace_back(sentence); };
    auto opened = Session::open(std::move(options));
    EXPECT_TRUE(opened) << opened.error().message;
    session = std::move(*opened);
  }
  WordsOnGpu(const WordsOnGpu&) = delete;
  WordsOnGpu& operator=(const WordsOnGpu&) = delete;
  ~WordsOnGpu() override {
    for (auto& [name, address] : addresses_) Session::release(const_cast<std::byte*>(name));
  }

  void* current_stream() noexcept override { return here_ == nullptr ? stream.handle() : here_; }
  // From now on the calling thread works on `other`; nullptr: on the program's stream.
  void work_on(cuda::StreamHandle other) { here_ = other; }
  void moved(const void* name, DeviceAddress address) noexcept override {
    addresses_.at(static_cast<const std::byte*>(name)) = address;
  }

  Tensor make(std::size_t words, bool persistent = false) {
    auto memory = session->allocate({.bytes = {words * 4}, .persistent = persistent});
    EXPECT_TRUE(memory) << memory.error().message;
    addresses_[*memory] = session->gpu()->address(*memory);
    return {.name = *memory, .words = std::vector<std::uint32_t>(words)};
  }
  void drop(Tensor& tensor) {
    addresses_.erase(tensor.name);
    Session::release(tensor.name);
    tensor = {};
  }

  // to[i] = mixed(to[i], from[i]) for each of `from`, in turn; `fresh`: of to[i] = seed.
  void op(std::string_view what, Tensor& to, const std::vector<const Tensor*>& from,
          std::optional<std::uint32_t> fresh = {}) {
    std::vector<const void*> reads = names_of(from), writes{to.name};
    if (!fresh) reads.push_back(to.name);
    const auto scope = session->op(what, reads, writes);
    run(what, to, from, fresh);
  }
  // The same as make() and op(), with a tensor that is born in the op, as libtorch's results are.
  Tensor made_in_op(std::string_view what, std::size_t words, const std::vector<const Tensor*>& from,
                    std::uint32_t fresh) {
    const auto scope = session->op(what, names_of(from), {});
    Tensor to = make(words);
    run(what, to, from, fresh);
    return to;
  }

  // In an op that is open: the same without an op of its own.
  void in_op(std::string_view what, Tensor& to, const std::vector<const Tensor*>& from,
             std::optional<std::uint32_t> fresh = {}) {
    run(what, to, from, fresh);
  }
  // Words [first, first + to.words.size()) of `from` are mixed into `to`, or `to` into them.
  void read_row_in_op(const Tensor& from, std::size_t first, Tensor& to) {
    launch_row(at_device(to), at_device(from), 0, first, to.words.size());
    for (std::size_t i = 0; i < to.words.size(); ++i) to.words[i] = mixed(to.words[i], from.words[first + i]);
  }
  void write_row_in_op(Tensor& to, std::size_t first, const Tensor& from) {
    launch_row(at_device(to), at_device(from), first, 0, from.words.size());
    for (std::size_t i = 0; i < from.words.size(); ++i) to.words[first + i] = mixed(to.words[first + i], from.words[i]);
  }
  void look_in_op(const Tensor& tensor) {
    control().launch(static_cast<cuda::StreamHandle>(current_stream()), "look",
                     {{.at = at_device(tensor), .bytes = tensor.words.size() * 4}}, [] {});
  }

  void expect_right(const Tensor& tensor, const std::string& what) {
    std::vector<std::uint32_t> found(tensor.words.size());
    const void* const reads[] = {tensor.name};
    {
      const auto scope = session->op("look", reads, {});
      const void* const at = at_device(tensor);
      ASSERT_NE(at, nullptr);
      control().launch(stream.handle(), "look", {{.at = at, .bytes = found.size() * 4}},
                       [&found, at] { std::memcpy(found.data(), control().reach(at), found.size() * 4); });
    }
    stream.synchronize().value();
    EXPECT_EQ(found, tensor.words) << what;
  }

  std::shared_ptr<cuda::Device> device = open_device();
  cuda::Stream stream = cuda::Stream::create(device).value();
  std::unique_ptr<Session> session;
  std::vector<std::string> messages;
  bool recipes = false;       // ops can run again
  std::uint32_t differs = 0;  // added to what an op makes fresh when it runs again
  int spin = 0;               // rounds that a kernel computes beside its work, so that it takes time

 private:
  const void* at_device(const Tensor& tensor) const {
    return reinterpret_cast<const void*>(addresses_.at(tensor.name));
  }

  struct Launched {  // what an op queued
    struct Operand {
      const std::byte* name = nullptr;
      std::size_t words = 0;
    };
    std::string what;
    Operand to;
    std::vector<Operand> from;
    std::optional<std::uint32_t> fresh;
  };

  class Again final : public Recipe {
   public:
    Again(WordsOnGpu& gpu, Launched launched) : gpu_(gpu), launched_(std::move(launched)) {}
    bool run(std::span<const Place> places) noexcept override {
      bool made = false;
      gpu_.launch(
          launched_,
          [&](const std::byte* name) {
            for (const Place& place : places) {
              if (place.was != name) continue;
              made = made || name == launched_.to.name;
              return gpu_.session->gpu()->address(place.now);
            }
            return gpu_.session->gpu()->address(name);
          },
          gpu_.differs);
      return made;
    }
    bool uses(const std::byte* first, Bytes) const noexcept override {
      return first == launched_.to.name || std::any_of(launched_.from.begin(), launched_.from.end(),
                                                       [&](const auto& each) { return each.name == first; });
    }
    std::uint64_t signature() const noexcept override { return std::hash<std::string>()(launched_.what); }

   private:
    WordsOnGpu& gpu_;
    const Launched launched_;
  };

  static std::vector<const void*> names_of(const std::vector<const Tensor*>& tensors) {
    std::vector<const void*> names;
    for (const Tensor* each : tensors) names.push_back(each->name);
    return names;
  }

  void run(std::string_view what, Tensor& to, const std::vector<const Tensor*>& from,
           std::optional<std::uint32_t> fresh) {
    Launched launched{.what = std::string(what), .to = {to.name, to.words.size()}, .from = {}, .fresh = fresh};
    for (const Tensor* each : from) launched.from.push_back({each->name, each->words.size()});
    launch(launched, [this](const std::byte* name) { return addresses_.at(name); });
    if (recipes && session->wants_recipe()) session->keep_recipe(std::make_unique<Again>(*this, launched));
    session->gpu()->allow_moves(to.name);
    if (fresh) std::fill(to.words.begin(), to.words.end(), *fresh);
    for (const Tensor* each : from) {
      for (std::size_t i = 0; i < to.words.size(); ++i)
        to.words[i] = mixed(to.words[i], each->words[i % each->words.size()]);
    }
  }

  template <class AddressOf>
  void launch(const Launched& op, const AddressOf& address_of, std::uint32_t more = 0) {
    struct Source {
      const void* at;
      std::size_t words;
    };
    void* const into = reinterpret_cast<void*>(address_of(op.to.name));
    const std::size_t words = op.to.words;
    std::vector<simulated::Access> accesses{{.at = into, .bytes = words * 4, .write = true}};
    std::vector<Source> sources;
    for (const auto& each : op.from) {
      sources.push_back({reinterpret_cast<const void*>(address_of(each.name)), each.words});
      accesses.push_back({.at = sources.back().at, .bytes = each.words * 4});
    }
    control().launch(static_cast<cuda::StreamHandle>(current_stream()), op.what, accesses,
                     [=, fresh = op.fresh, rounds = spin] {
                       auto* const a = static_cast<std::uint32_t*>(control().reach(into));
                       if (fresh) std::fill(a, a + words, *fresh + more);
                       for (const Source& source : sources) {
                         const auto* const b = static_cast<const std::uint32_t*>(control().reach(source.at));
                         for (std::size_t i = 0; i < words; ++i) a[i] = mixed(a[i], b[i % source.words]);
                       }
                       volatile std::uint32_t sink = 1;
                       for (int r = 0; r < rounds; ++r) sink = mixed(sink, 7);
                     });
  }

  void launch_row(const void* to, const void* from, std::size_t to_word, std::size_t from_word, std::size_t words) {
    const auto* const into = static_cast<const std::uint32_t*>(to) + to_word;
    const auto* const source = static_cast<const std::uint32_t*>(from) + from_word;
    control().launch(static_cast<cuda::StreamHandle>(current_stream()), "row",
                     {{.at = into, .bytes = words * 4, .write = true}, {.at = source, .bytes = words * 4}}, [=] {
                       auto* const a = static_cast<std::uint32_t*>(control().reach(into));
                       const auto* const b = static_cast<const std::uint32_t*>(control().reach(source));
                       for (std::size_t i = 0; i < words; ++i) a[i] = mixed(a[i], b[i]);
                     });
  }

  static inline thread_local cuda::StreamHandle here_ = nullptr;
  std::map<const std::byte*, DeviceAddress> addresses_;
};

}  // namespace vedette::testing
