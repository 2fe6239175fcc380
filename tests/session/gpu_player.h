// Plays the steps of made-up programs (player.h) on the simulated GPU, by way of a session: see support/gpu_program.h.
#pragma once
#include <string>

#include "session/player.h"
#include "support/gpu_program.h"

namespace vedette::testing {

class GpuPlayer final : public Player {
 public:
  explicit GpuPlayer(WordsOnGpu& gpu) : gpu_(gpu) {}
  ~GpuPlayer() override {
    for (Made& each : tensors_)
      if (each.name != nullptr) gpu_.drop(each);
  }

  Tensor make(std::size_t bytes, bool lasting) override {
    tensors_.push_back(gpu_.make(bytes / 4, lasting));
    return tensors_.size() - 1;
  }
  void drop(Tensor tensor) override { gpu_.drop(tensors_[tensor]); }
  void is_weight(Tensor tensor) override { gpu_.session->label(tensors_[tensor].name, "weight", TensorKind::weight); }
  void step(const Body& body) override {
    const auto scope = gpu_.session->step();
    body();
  }
  void op(std::string_view name, const Tensors& reads, const Tensors& writes, const Body& body) override {
    const std::vector<const void*> read = names(reads), written = names(writes);
    const auto scope = gpu_.session->op(name, read, written);
    in_op_ = true;
    body();
    in_op_ = false;
  }
  void make_of(Tensor out, const Tensors& from) override { gpu_.in_op("make", tensors_[out], made(from), 1u); }
  void change(Tensor out, const Tensors& from) override { gpu_.in_op("change", tensors_[out], made(from)); }
  void look(Tensor tensor) override {
    const void* const reads[] = {tensors_[tensor].name};
    const auto scope = gpu_.session->op("look", reads, {});
    gpu_.look_in_op(tensors_[tensor]);
  }
  void fill(Tensor tensor, std::uint64_t mark) override {
    const auto word = static_cast<std::uint32_t>(mark);
    if (in_op_) return gpu_.in_op("fill", tensors_[tensor], {}, word);
    gpu_.op("fill", tensors_[tensor], {}, word);
  }
  // Of what the host has, which the device's bytes have to be.
  std::uint64_t sum(Tensor tensor) override {
    gpu_.expect_right(tensors_[tensor], "tensor " + std::to_string(tensor));
    std::uint64_t all = 0;
    for (const std::uint32_t word : tensors_[tensor].words) all = all * 31 + word;
    return all;
  }

 private:
  using Made = WordsOnGpu::Tensor;
  std::vector<const void*> names(const Tensors& tensors) const {
    std::vector<const void*> all;
    for (const Tensor tensor : tensors) all.push_back(tensors_[tensor].name);
    return all;
  }
  std::vector<const Made*> made(const Tensors& tensors) const {
    std::vector<const Made*> all;
    for (const Tensor tensor : tensors) all.push_back(&tensors_[tensor]);
    return all;
  }

  WordsOnGpu& gpu_;
  std::vector<Made> tensors_;
  bool in_op_ = false;
};

}  // namespace vedette::testing
