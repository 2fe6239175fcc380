// What plays the steps of a made-up program: a session with real bytes (SessionPlayer), or a session's books over an
// engine by hand (replay.h). The program says which tensors and ops there are, and gets no byte into its hands.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "session/loop.h"

namespace vedette::testing {

class Player {
 public:
  using Tensor = std::size_t;
  using Tensors = std::vector<Tensor>;
  using Body = std::function<void()>;
  virtual ~Player() = default;

  virtual Tensor make(std::size_t bytes, bool lasting) = 0;  // without bytes that mean anything
  virtual void drop(Tensor tensor) = 0;
  virtual void is_weight(Tensor tensor) = 0;
  virtual void step(const Body& body) = 0;
  virtual void op(std::string_view name, const Tensors& reads, const Tensors& writes, const Body& body) = 0;
  // In an op whose operands or births they all are. `out` depends on `from`, and on what it held itself.
  virtual void make_of(Tensor out, const Tensors& from) = 0;  // not on what it held: it was just born
  virtual void change(Tensor out, const Tensors& from) = 0;
  virtual void look(Tensor tensor) = 0;                      // reads some of it
  virtual void fill(Tensor tensor, std::uint64_t mark) = 0;  // in an op or outside of any
  virtual std::uint64_t sum(Tensor tensor) = 0;

  Tensor filled(std::size_t bytes, std::uint64_t mark) {
    const Tensor tensor = make(bytes, true);
    fill(tensor, mark);
    return tensor;
  }
  // An op that makes a tensor of others.
  Tensor made(std::string_view name, std::size_t bytes, const Tensors& from) {
    Tensor out = 0;
    op(name, from, {}, [&] {
      out = make(bytes, false);
      make_of(out, from);
    });
    return out;
  }
  void changed(std::string_view name, const Tensors& writes, const Tensors& from = {}) {
    op(name, from, writes, [&] {
      for (const Tensor out : writes) change(out, from);
    });
  }
};

class SessionPlayer final : public Player {
 public:
  explicit SessionPlayer(Session& session) : session_(session) {}

  Tensor make(std::size_t bytes, bool lasting) override {
    Block block(session_, bytes, lasting);
    if (free_.empty()) {
      blocks_.push_back(std::move(block));
      return blocks_.size() - 1;
    }
    const Tensor tensor = free_.back();
    free_.pop_back();
    blocks_[tensor] = std::move(block);
    return tensor;
  }
  void drop(Tensor tensor) override {
    blocks_[tensor].drop();
    free_.push_back(tensor);
  }
  void is_weight(Tensor tensor) override { session_.label(blocks_[tensor].address(), "weight", TensorKind::weight); }
  void step(const Body& body) override {
    const auto scope = session_.step();
    body();
  }
  void op(std::string_view name, const Tensors& reads, const Tensors& writes, const Body& body) override {
    const std::vector<const void*> read = addresses(reads), written = addresses(writes);
    const auto scope = session_.op(name, read, written);
    body();
  }
  void make_of(Tensor out, const Tensors& from) override { mix(blocks_[out], from, 0); }
  void change(Tensor out, const Tensors& from) override { mix(blocks_[out], from, 5); }
  void look(Tensor tensor) override { seen_ = seen_ * 31 + blocks_[tensor][blocks_[tensor].count() / 2]; }
  void fill(Tensor tensor, std::uint64_t mark) override { blocks_[tensor].fill(mark); }
  std::uint64_t sum(Tensor tensor) override { return seen_ + blocks_[tensor].sum(); }

 private:
  std::vector<const void*> addresses(const Tensors& tensors) const {
    std::vector<const void*> all;
    for (const Tensor tensor : tensors) all.push_back(blocks_[tensor].address());
    return all;
  }
  void mix(Block& out, const Tensors& from, std::uint64_t of_itself) const {
    for (std::size_t i = 0; i < out.count(); ++i) {
      std::uint64_t word = (of_itself == 0 ? 0 : out[i] * of_itself) + seen_ + 1;
      for (const Tensor tensor : from) word = word * 3 + blocks_[tensor][i % blocks_[tensor].count()];
      out[i] = word;
    }
  }

  Session& session_;
  std::vector<Block> blocks_;
  Tensors free_;
  std::uint64_t seen_ = 1;
};

}  // namespace vedette::testing
