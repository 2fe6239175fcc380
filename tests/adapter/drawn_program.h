// A training program that is drawn from a seed: what its steps compute, what lives across them, what changes between
// them, and what people do beside libtorch's operators (threads, system calls, raw pointers, exceptions). The same
// operators with and without a guard.
#pragma once
#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/functional/loss.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "adapter/trial.h"

namespace vedette::test {

class DrawnProgram {
 public:
  // On a GPU tensors are larger, since small ones do not move there.
  DrawnProgram(Trial& run, std::uint64_t seed, at::Device device = at::kCPU)
      : run_(run), random_(seed), device_(device) {
    torch::manual_seed(seed);
    width_ =
        32 * one_of(device.is_cpu() ? std::vector<std::int64_t>{2, 3, 4, 6} : std::vector<std::int64_t>{8, 10, 12});
    rows_ = 8 + below(80);
    drift_ = below(3) == 0 ? 1 + below(4) : 0;
    varies_ = below(3) == 0;
    noise_ = below(3) == 0 ? 0 : 6 + below(40);
    for (std::int64_t l = 2 + below(4); l > 0; --l) add_layer();
    buffers_ = {at::zeros({width_, width_}, device_), at::zeros({64 + below(400), width_}, device_)};
    new_optimizer();
    next_phase();
    sparse_ = below(2) == 0;
  }

  void run() {
    const std::int64_t steps = 6 + below(14);
    for (std::int64_t s = 0; s < steps; ++s) {
      if (below(9) == 0) next_phase();
      between_steps(s);
      if (below(16) == 0) {
        step();  // no step of the guard
      } else if (below(14) == 0) {
        fails();
      } else {
        run_.within([&] { step(); });
      }
      rows_ += drift_;
    }
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      run_.keep("layer " + std::to_string(l), layers_[l].weight.detach());
      run_.keep("bias " + std::to_string(l), layers_[l].bias.detach());
    }
    for (std::size_t b = 0; b < buffers_.size(); ++b) run_.keep("buffer " + std::to_string(b), buffers_[b]);
    if (cache_.defined()) run_.keep("cache", cache_);
    if (table_.defined()) run_.keep("table", table_.detach());
    run_.keep(*optimizer_);
  }

 private:
  struct Layer {
    at::Tensor weight, bias;
  };
  using Action = std::size_t;  // of act()
  static constexpr Action actions_in_all = 33;

  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
  }
  std::int64_t one_of(std::vector<std::int64_t> values) {
    return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(values.size())))];
  }
  Layer& layer() { return layers_[static_cast<std::size_t>(below(static_cast<std::int64_t>(layers_.size())))]; }

  void add_layer() {
    Layer& made = layers_.emplace_back();
    made.weight = (at::randn({width_, width_}, device_) * 0.08).set_requires_grad(true);
    made.bias = at::zeros({width_}, device_).set_requires_grad(true);
  }
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all;
    for (const Layer& each : layers_) all.insert(all.end(), {each.weight, each.bias});
    return all;
  }
  void new_optimizer() {
    switch (below(4)) {
      case 0:
        optimizer_ = std::make_unique<torch::optim::Adam>(parameters(), torch::optim::AdamOptions(1e-3));
        break;
      case 1:
        optimizer_ = std::make_unique<torch::optim::AdamW>(parameters(), torch::optim::AdamWOptions(1e-3));
        break;
      case 2:
        optimizer_ = std::make_unique<torch::optim::SGD>(parameters(), torch::optim::SGDOptions(1e-2).momentum(0.9));
        break;
      default:
        optimizer_ = std::make_unique<torch::optim::RMSprop>(parameters(), torch::optim::RMSpropOptions(1e-3));
    }
    watch();
  }
  void watch() {
    if (run_.guard == nullptr) return;
    std::vector<Guard::Named> named;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      named.push_back({.tensor = layers_[l].weight, .name = "layer" + std::to_string(l) + ".weight"});
      named.push_back({.tensor = layers_[l].bias, .name = "layer" + std::to_string(l) + ".bias"});
    }
    for (std::size_t b = 0; b < buffers_.size(); ++b)
      named.push_back({.tensor = buffers_[b], .name = "buffer" + std::to_string(b), .kind = TensorKind::constant});
    run_.guard->watch(named);
    run_.watch(*optimizer_);
  }
  void next_phase() {
    actions_.clear();
    for (std::int64_t i = 3 + below(14); i > 0; --i) actions_.push_back(any_action());
    trains_ = below(5) != 0;
    repeats_ = 1 + below(3);
  }
  void between_steps(std::int64_t step) {
    if (step > 0 && below(12) == 0) {
      add_layer();
      optimizer_->add_param_group(torch::optim::OptimizerParamGroup({layers_.back().weight, layers_.back().bias}));
      watch();
    }
    if (below(8) == 0) run_.keep(buffers_[1].sum());
    if (below(10) == 0) kept_.clear();
    if (below(10) == 0) cache_ = at::Tensor();
  }

  void step() {
    optimizer_->zero_grad();
    const std::int64_t rows = varies_ ? 1 + below(2 * rows_) : rows_;
    at::Tensor x = at::randn({rows, width_}, device_);
    for (std::int64_t again = 0; again < repeats_; ++again)
      for (const Action action : actions_) {
        if (noise_ != 0 && below(noise_) == 0) continue;
        x = act(action, x);
        if (noise_ != 0 && below(noise_) == 0) x = act(any_action(), x);
      }
    const at::Tensor loss = x.square().mean() + (layers_[0].weight.square().mean() + layers_[0].bias.sum()) * 0.01;
    if (trains_) {
      loss.backward();
      optimizer_->step();
      const at::NoGradGuard none;
      if (table_.defined() && table_.grad().defined()) {
        table_.add_(table_.grad(), -0.1);
        table_.mutable_grad() = at::Tensor();
      }
      if (below(3) == 0) at::_foreach_mul_(parameters(), 0.999);
    }
    run_.keep(loss);
  }
  void fails() {
    struct Wanted {};
    try {
      run_.within([&] {
        at::Tensor x = at::randn({rows_, width_}, device_);
        for (const Action action : actions_) x = act(action, x);
        throw Wanted{};
      });
    } catch (const Wanted&) {
    }
  }

  at::Tensor act(Action action, const at::Tensor& x) {
    using It = DrawnProgram;
    static constexpr std::array computed = {&It::linear,         &It::residual, &It::normalize,  &It::softmax,
                                            &It::halves_swapped, &It::dropout,  &It::transposed, &It::in_place,
                                            &It::selected,       &It::sorted,   &It::shifted,    &It::convolved,
                                            &It::other_types,    &It::in_heads, &It::checkpoint, &It::looked_up};
    static constexpr std::array beside = {&It::by_threads,        &It::resized,
                                          &It::looked_at,         &It::written_to_file,
                                          &It::read_from_file,    &It::saved,
                                          &It::many_small,        &It::kept_for_later,
                                          &It::appended,          &It::data_replaced,
                                          &It::other_thread,      &It::copied_raw,
                                          &It::loaded_ahead,      &It::forward_twice_at_once,
                                          &It::dropped_elsewhere, &It::too_large,
                                          &It::on_another_stream};
    static_assert(computed.size() + beside.size() == actions_in_all);
    if (action < computed.size()) return (this->*computed[action])(x);
    const at::NoGradGuard none;
    (this->*beside[action - computed.size()])(x);
    return x;
  }
  Action any_action() { return static_cast<Action>(below(actions_in_all)); }

  // --- what operators compute ----------------------------------------------------------------------------------------

  at::Tensor linear(const at::Tensor& x) {
    const Layer& at = layer();
    return (x.mm(at.weight) + at.bias).tanh();
  }
  at::Tensor residual(const at::Tensor& x) { return x + x.mm(layer().weight).relu() * 0.1; }
  at::Tensor normalize(const at::Tensor& x) { return at::layer_norm(x, {width_}); }
  at::Tensor softmax(const at::Tensor& x) { return x.softmax(1) * 4; }
  at::Tensor halves_swapped(const at::Tensor& x) {
    const auto parts = x.chunk(2, 1);
    return at::cat({parts[1], parts[0]}, 1);
  }
  at::Tensor dropout(const at::Tensor& x) { return at::dropout(x, 0.2, true); }
  at::Tensor transposed(const at::Tensor& x) { return x.t().contiguous().sigmoid().t(); }
  at::Tensor in_place(const at::Tensor& x) { return x.clone().mul_(0.5).add_(0.1).tanh_(); }
  at::Tensor selected(const at::Tensor& x) {
    return x.index_select(0, at::randint(x.size(0), {x.size(0)}, x.options().dtype(at::kLong)));
  }
  at::Tensor sorted(const at::Tensor& x) { return std::get<0>(x.sort(1)); }
  at::Tensor shifted(const at::Tensor& x) {
    at::Tensor y = x.clone();
    y.narrow(1, 0, width_ / 2).copy_(x.narrow(1, width_ / 2, width_ / 2));
    return y;
  }
  at::Tensor convolved(const at::Tensor& x) {
    const at::Tensor kernel = layer().weight.narrow(1, 0, 3).narrow(0, 0, 4).reshape({4, 1, 3});
    return at::conv1d(x.unsqueeze(1), kernel, {}, 1, 1).mean(1) + x;
  }
  at::Tensor other_types(const at::Tensor& x) {
    const at::Tensor y = x.to(at::kDouble).cumsum(1).tanh().to(at::kFloat);
    return y + x.to(at::kBFloat16).mm(layer().weight.to(at::kBFloat16)).to(at::kFloat).tanh();
  }
  at::Tensor in_heads(const at::Tensor& x) {
    const at::Tensor heads = x.view_as(x).reshape({x.size(0), 4, width_ / 4}).transpose(0, 1);
    const at::Tensor scores = heads.bmm(heads.transpose(1, 2)).softmax(2);
    return scores.bmm(heads).transpose(0, 1).reshape({x.size(0), width_}) + x;
  }
  at::Tensor checkpoint(const at::Tensor& x) {  // what is computed again by hand, without and with a graph
    const Layer& at = layer();
    const auto part = [&](const at::Tensor& y) { return y.mm(at.weight).tanh().mm(at.weight).tanh(); };
    at::Tensor there;
    {
      const at::NoGradGuard none;
      there = part(x);
    }
    return part(x) + there.detach() * 0.1;
  }

  at::Tensor looked_up(const at::Tensor& x) {  // a few rows of a table
    if (!table_.defined()) table_ = at::randn({600 + below(400), width_}, device_).mul_(0.1).set_requires_grad(true);
    const at::Tensor rows = at::randint(table_.size(0), {x.size(0)}, x.options().dtype(at::kLong));
    return x + at::embedding(table_, rows, -1, false, sparse_);
  }

  // --- what people do beside them ------------------------------------------------------------------------------------

  void by_threads(const at::Tensor&) {
    const at::Tensor y = at::empty({width_, width_});  // on a GPU, too: it is copied there
    float* const to = y.data_ptr<float>();
    at::parallel_for(0, y.numel(), 1024, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(i % 13) * 0.01f;
    });
    buffers_[0].add_(y.to(device_, true));
  }
  void resized(const at::Tensor& x) {
    scratch_ = scratch_.defined() ? scratch_ : at::empty({0}, device_);
    scratch_.resize_({x.size(0) + below(64), width_}).fill_(0.5);
    run_.keep(scratch_.sum());
  }
  void looked_at(const at::Tensor& x) {  // by a thread, without an operator
    const at::Tensor y = x.detach().cpu().contiguous();
    float sum = 0;
    std::thread([&, from = y.const_data_ptr<float>()] {
      for (std::int64_t i = 0; i < y.numel(); ++i) sum += from[i];
    }).join();
    run_.keep(at::tensor(sum));
  }
  void written_to_file(const at::Tensor&) { to_and_from_file(layer().weight.detach().cpu(), {}); }
  void read_from_file(const at::Tensor&) {
    const at::Tensor there = buffers_[0].cpu();
    to_and_from_file(layer().weight.detach().clone().cpu(), there);
    buffers_[0].copy_(there);
  }
  void saved(const at::Tensor&) {
    std::stringstream file;
    torch::save(layer().weight.detach(), file);
    at::Tensor loaded;
    torch::load(loaded, file);
    run_.keep(loaded.sum());
  }
  void many_small(const at::Tensor&) {
    std::vector<at::Tensor> small;
    for (int i = 0; i < 400; ++i) small.push_back(at::full({1 + i % 40}, float(i), device_));
    run_.keep(at::cat(small).sum());
    kept_.push_back(small[7]);
  }
  void kept_for_later(const at::Tensor& x) {
    kept_.push_back(x.detach().clone());
    if (kept_.size() > 6) kept_.pop_front();
    run_.keep(kept_.front().sum());
  }
  void appended(const at::Tensor& x) {
    cache_ = cache_.defined() ? at::cat({cache_, x.detach().narrow(0, 0, 1)}) : x.detach().narrow(0, 0, 1).clone();
    run_.keep(cache_.mm(buffers_[0]).sum());
  }
  void data_replaced(const at::Tensor&) {
    at::Tensor weight = layer().weight;
    weight.set_data(weight.detach().clone());
  }
  void copied_raw(const at::Tensor&) {  // two tensors at once, unannounced
    const at::Tensor from = layer().weight.detach().cpu(), there = buffers_[0].cpu();
    std::memcpy(there.data_ptr(), from.const_data_ptr(), from.nbytes());
    buffers_[0].copy_(there);
  }
  void loaded_ahead(const at::Tensor& x) {
    if (next_batch_.valid()) run_.keep(next_batch_.get().sum());
    next_batch_ = std::async(std::launch::async, [rows = 1 + below(200), width = width_, on = x.options()] {
      return at::arange(rows * width, on).reshape({rows, width}).remainder(17);
    });
  }
  void forward_twice_at_once(const at::Tensor& x) {
    const auto forward = [y = x.detach(), weight = layer().weight] {
      const at::NoGradGuard not_here;
      return y.mm(weight).tanh().mm(weight).sum();
    };
    auto other = std::async(std::launch::async, forward);
    const at::Tensor here = forward();
    run_.keep(other.get() + here);
  }
  void dropped_elsewhere(const at::Tensor&) {
    dropping_ = std::async(std::launch::async, [dropped = std::exchange(kept_, {})]() mutable { dropped.clear(); });
  }
  void too_large(const at::Tensor&) {
    std::vector<at::Tensor> all(static_cast<std::size_t>(4 + below(8)), buffers_[1]);
    run_.keep(at::cat(all).sum());
  }
  void on_another_stream(const at::Tensor& x) {
    if (device_.is_cpu()) return;
    const c10::impl::VirtualGuardImpl impl(device_.type());
    const c10::Stream here = impl.getStream(device_), other = impl.getNewStream(device_);
    c10::Event before(device_.type()), after(device_.type());
    before.record(here);
    before.block(other);
    at::Tensor result;
    {
      const c10::StreamGuard there(other);
      result = x.detach().mm(layer().weight).tanh();
      after.record(other);
    }
    after.block(here);
    result.record_stream(here);
    run_.keep(result.sum());
  }
  void to_and_from_file(const at::Tensor& from, const at::Tensor& to) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
    const int fd = fileno(file.get());
    const auto bytes = static_cast<ssize_t>(from.nbytes());
    EXPECT_EQ(pwrite(fd, from.const_data_ptr(), from.nbytes(), 0), bytes);
    std::vector<float> read(static_cast<std::size_t>(from.numel()));
    EXPECT_EQ(pread(fd, to.defined() ? to.data_ptr() : read.data(), from.nbytes(), 0), bytes);
    run_.keep(to.defined() ? to.sum() : at::tensor(read).sum());
  }
  void other_thread(const at::Tensor&) {
    at::Tensor loss;
    const at::Tensor weight = layers_.front().weight;
    std::thread([&] {
      const at::AutoGradMode grad(true);
      at::Tensor own = weight.detach().clone().set_requires_grad(true);
      loss = own.mm(own).tanh().mean();
      loss.backward();
      loss = loss.detach() + own.grad().sum();
    }).join();
    run_.keep(loss);
  }

  Trial& run_;
  std::mt19937_64 random_;
  const at::Device device_;
  std::int64_t width_ = 0, rows_ = 0, drift_ = 0, noise_ = 0, repeats_ = 1;
  bool varies_ = false, trains_ = true, sparse_ = false;
  std::vector<Layer> layers_;
  std::vector<at::Tensor> buffers_;
  at::Tensor cache_, scratch_, table_;
  std::deque<at::Tensor> kept_;
  std::future<at::Tensor> next_batch_;
  std::future<void> dropping_;
  std::vector<Action> actions_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

// Options of a guard, drawn from the same seed.
inline GuardOptions drawn_options(std::uint64_t seed, std::uint64_t peak, const std::string& directory) {
  std::mt19937_64 random(seed * 977 + 5);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  GuardOptions options = tight(peak * (15 + below(60)) / 100);
  options.chunk = Bytes{(std::uint64_t{16} << 10) << below(3)};
  options.fast_memory = Bytes{std::max(options.fast_memory.value, 12 * options.chunk.value)};
  const std::array<std::string, 3> slow = {"host", "nvme:" + directory, "host:1MiB+nvme:" + directory};
  options.slow = slow[below(slow.size())];
  const std::array<std::string_view, 6> others = {"on-demand", "sentinel", "g10", "capuchin", "deepum", "vdnn-all"};
  if (below(3) == 0) options.policy = others[below(others.size())];
  options.profile = std::array{ProfileTicks::operands, ProfileTicks::layers, ProfileTicks::ops}[below(3)];
  options.warmup_steps = static_cast<std::uint32_t>(below(3));
  options.checksums = below(2) == 0;
  options.recompute = std::array{Recompute::off, Recompute::off, Recompute::planned, Recompute::always}[below(4)];
  return options;
}

// The first `count`, or those that VEDETTE_SEEDS names, as in "100-250".
inline auto drawn_seeds(unsigned count) {
  unsigned first = 1, last = count;
  if (const char* const text = std::getenv("VEDETTE_SEEDS"); text != nullptr) std::sscanf(text, "%u-%u", &first, &last);
  return ::testing::Range(first, last + 1);
}

inline void expect_plain_runs_bits(unsigned seed) {
  at::set_num_threads(static_cast<int>(1 + seed % 2));
  Trial plain;
  examples::forget_peak();
  DrawnProgram(plain, seed).run();
  const GuardOptions options = drawn_options(seed, examples::counted_peak_bytes(), ::testing::TempDir());
  SCOPED_TRACE("budget " + std::to_string(options.fast_memory.value) + ", chunk " +
               std::to_string(options.chunk.value) + ", " + options.slow + ", " + options.policy);
  Guard guard(options);
  Trial guarded{.guard = &guard};
  DrawnProgram(guarded, seed).run();
  expect_same(guarded.outcome, plain.outcome);
  EXPECT_FALSE(guard.session().take_error());
}

}  // namespace vedette::test
