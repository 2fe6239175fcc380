// Wrong uses of the C++ interface, by their kind: each is refused with one sentence that says what to do, and a
// training goes on afterwards with its numbers. Two rows differ only where the program reaches another check.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/lbfgs.h>
#include <torch/utils.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "adapter/training.h"
#include "support/child.h"
#include "support/store_file.h"
#include "vedette/gpu.h"

namespace vedette::test::wrong_uses_test {
namespace {

using namespace vedette::literals;
using Use = std::function<void()>;
using InGuard = std::function<void(Guard&)>;

constexpr Bytes budget = 8_MiB;

GuardOptions small_guard() {
  return {.fast_memory = budget, .slow = "host", .chunk = small_chunk, .on_message = [](std::string_view) {}};
}

template <class T>
T value_of(Result<T> result) {
  if (!result) throw Failure(result.error());
  return std::move(*result);
}

// --- a training that goes on -----------------------------------------------------------------------------------------

struct Training {
  torch::nn::Sequential model{torch::nn::Linear(128, 128), torch::nn::Linear(128, 128), torch::nn::Linear(128, 128)};
  torch::optim::Adam optimizer{model->parameters()};
  std::vector<float> losses;
  void pass() {
    optimizer.zero_grad();
    model->forward(torch::ones({16, 128})).square().mean().backward();
  }
  void train(Guard* guard, int steps) {
    for (int i = 0; i < steps; ++i) {
      std::optional<Guard::Step> step;
      if (guard != nullptr) step.emplace(*guard);
      pass();
      optimizer.step();
      losses.push_back(model->forward(torch::ones({16, 128})).square().mean().item<float>());
    }
  }
};

constexpr int steps_before = 2, steps_after = 3;

std::vector<float> plain_losses() {
  torch::manual_seed(3);
  Training training;
  training.train(nullptr, steps_before + steps_after);
  return training.losses;
}

// libtorch's own error, of an allocation, is a Failure here.
void as_failure(const Use& use) {
  try {
    use();
  } catch (const c10::Error& error) {
    throw Failure({Cause::out_of_memory, error.what_without_backtrace()});
  }
}

// The use, between two halves of a training.
Use in_guard(InGuard use, GuardOptions options = small_guard()) {
  return [use = std::move(use), options] {
    static const std::vector<float> plain = plain_losses();
    Guard guard(options);
    torch::manual_seed(3);
    Training training;
    guard.watch(*training.model);
    training.train(&guard, steps_before);
    std::optional<Failure> failure;
    try {
      use(guard);
    } catch (const Failure& thrown) {
      failure = thrown;
    }
    training.train(&guard, steps_after);
    EXPECT_EQ(training.losses, plain);
    if (failure) throw *failure;
  };
}

InGuard in_step(InGuard use) {
  return [use = std::move(use)](Guard& guard) {
    const auto step = guard.step();
    use(guard);
  };
}

InGuard in_thread(InGuard use) {
  return [use = std::move(use)](Guard& guard) {
    std::exception_ptr thrown;
    std::thread([&] {
      try {
        use(guard);
      } catch (...) {
        thrown = std::current_exception();
      }
    }).join();
    if (thrown) std::rethrow_exception(thrown);
  };
}

// A Failure of the child is one here, by its words.
Use in_child(const Use& use) {
  return [use] {
    const testing::LastWords heard = testing::listen_to_child([&] {
      try {
        as_failure(use);
      } catch (const Failure& failure) {
        std::fprintf(stderr, "%d%s", static_cast<int>(failure.error.cause), failure.what());
      }
      ::_exit(0);
    });
    if (!testing::exited_well(heard.status)) throw std::logic_error("the child died: " + heard.said);
    if (!heard.said.empty()) throw Failure({static_cast<Cause>(heard.said[0] - '0'), heard.said.substr(1)});
  };
}

InGuard in_child_of(const InGuard& use) {
  return [use](Guard& guard) { in_child([&] { use(guard); })(); };
}

// --- openings --------------------------------------------------------------------------------------------------------

using Change = std::function<void(GuardOptions&)>;

Use opens(const Change& change) {
  return [change] {
    GuardOptions options = small_guard();
    change(options);
    const Guard guard(options);
  };
}

SessionOptions small_session() { return {.fast_memory = budget, .slow = "host", .chunk = small_chunk}; }
Use opens_session(const std::function<void(SessionOptions&)>& change) {
  return [change] {
    SessionOptions options = small_session();
    change(options);
    value_of(Session::open(options));
  };
}

Use with_limit(decltype(RLIMIT_NOFILE) resource, rlim_t most, const Use& use) {
  return in_child([=] {
    const rlimit limit{most, most};
    ::signal(SIGXFSZ, SIG_IGN);  // as Python has it: a write fails instead
    if (::setrlimit(resource, &limit) != 0) throw std::logic_error("setrlimit");
    use();
  });
}

Use as_nobody(const Use& use) {
  return in_child([use] {
    constexpr unsigned nobody = 65534;
    if (::setgid(nobody) != 0 || ::setuid(nobody) != 0) throw std::logic_error("setuid");
    use();
  });
}

InGuard begins_step() {
  return [](Guard& guard) { const auto step = guard.step(); };
}
InGuard resizes(Bytes bytes) {
  return [bytes](Guard& guard) { guard.set_fast_memory(bytes); };
}
InGuard pins(std::int64_t floats) {
  return [floats](Guard& guard) {
    const at::Tensor tensor = torch::empty({floats});
    const auto pinned = guard.resident(tensor);
  };
}
InGuard allocates(Bytes bytes) {
  return [bytes](Guard& guard) { Session::release(value_of(guard.session().allocate({.bytes = bytes}))); };
}
void opens_another(Guard&) { const Guard another(small_guard()); }

template <class Optimizer>
Use steps_in_backward(const std::function<void(Training&, Optimizer&)>& backward) {
  return [backward] {
    Training training;
    Optimizer optimizer(training.model->parameters(), 0.1);
    step_in_backward(optimizer, [&] { backward(training, optimizer); });
  };
}
Use trains_on(const std::string& folder) {
  return [folder] {
    GuardOptions options = small_guard();
    options.fast_memory = 1_MiB;
    options.slow = "nvme:" + folder;
    in_guard([](Guard&) {}, options)();
  };
}

class Own final : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;
};

// --- the table -------------------------------------------------------------------------------------------------------

struct Row {
  const char* kind;
  Use use;
  Cause cause;
  const char* sentence;  // a part that says what to do
};

const std::string& folder() {
  static const std::string made = [] {
    std::string name = "/tmp/vedette_wrong_uses_XXXXXX";
    name = ::mkdtemp(name.data());
    std::ofstream(name + "/file") << "no folder";
    return name;
  }();
  return made;
}

Use slow(std::string tier) {
  return opens([tier](GuardOptions& of) { of.slow = tier; });
}
Use fast(std::string tier) {
  return opens([tier](GuardOptions& of) { of.fast = tier; });
}
Use memory(Bytes bytes) {
  return opens([bytes](GuardOptions& of) { of.fast_memory = bytes; });
}
Use chunk(Bytes bytes) {
  return opens([bytes](GuardOptions& of) { of.chunk = bytes; });
}
Use record(std::string path) {
  return opens([path](GuardOptions& of) { of.record = path; });
}
Use writes(std::string most) {
  return opens([most](GuardOptions& of) { of.slow = "nvme:" + folder(), of.max_writes = most; });
}

using enum Cause;

std::vector<Row> of_values() {
  return {
      {"wrong unit", chunk(48_KiB), unsupported, "chunk must be a power of two of at least 16 KiB"},
      {"wrong unit", chunk(Bytes{0}), unsupported, "chunk must be a power of two of at least 16 KiB"},
      {"wrong unit", slow("host@5MiB/s"), unsupported, "has no speed after '@'; write 500MB/s or 0.5GB/s"},
      {"wrong unit", slow("nvme:" + folder() + "@5"), unsupported,
       "has a speed without a unit after '@'; write @500MB/s or @0.5GB/s"},
      {"wrong unit", slow("host:much+nvme:" + folder()), unsupported,
       "give a size such as 8GiB, of at least 640.0 KiB"},
      {"wrong unit", slow("numa:0:64"), unsupported, "this machine has"},
      {"wrong unit", writes("500GB"), unsupported, "is no number of bytes a day; write 500GB/day or 2TB/day"},
      {"wrong unit", [] { const Guard guard({.fast_memory = fraction(25), .slow = "host"}); }, malformed_input,
       "a fraction of the machine's memory lies above 0 and is at most 1"},

      {"wrong path", slow("nvme:/nowhere/at/all"), Cause::system,
       "No such file or directory; name a directory of a local file system"},
      {"wrong path", slow("nvme:" + folder() + "/file"), Cause::system,
       "Not a directory; name a directory of a local file system"},
      {"wrong path", slow("/data"), unsupported, "did you mean 'nvme:/data'?"},
      {"wrong path", slow("tape"), unsupported, "is unknown; use nvme:DIRECTORY or host"},
      {"wrong path", slow("numa:99"), unsupported, "numa:99"},
      {"wrong path", record("/nowhere/run.vedette"), Cause::system,
       "/nowhere/run.vedette: unable to open database file (No such file"},
      {"wrong path", record(folder()), unsupported, "exists and is no recording; name another file, or remove it"},
      {"wrong path", fast("gpu:x"), unsupported, "or gpu:N with the number of a GPU"},
      {"wrong path", fast("numa:x"), unsupported, "there is no such NUMA node"},
      {"wrong path", fast("disk"), unsupported, "use dram, numa:N with the number of a NUMA node"},
      {"wrong path", opens([](GuardOptions& of) { of.policy = "nothing"; }), unsupported,
       "no policy 'nothing'; there are: on-demand"},
      {"wrong path", opens([](GuardOptions& of) { of.tracker = "eyes"; }), unsupported,
       "no page tracker 'eyes'; there are: best, "},

      {"wrong type", opens_session([](SessionOptions& of) { of.record = folder() + "/run.vedette"; }), unsupported,
       "open a vedette::Recorder and make it the observer"},
      {"wrong type", opens_session([](SessionOptions& of) { of.enabled = false; }), unsupported,
       "make a vedette::Guard with enabled = false"},
      {"wrong type", opens([](GuardOptions& of) { of.slow = "host", of.max_writes = "500GB/day"; }), unsupported,
       "has none; leave it out"},
      {"wrong type", opens([](GuardOptions& of) { of.table_memory = 1_MiB; }), unsupported,
       "table_memory is a part of a GPU's memory"},
      {"wrong type", steps_in_backward<Own>([](Training& training, auto&) { training.pass(); }), unsupported,
       "say .per_parameter = true where it updates each parameter"},
      {"wrong type", steps_in_backward<torch::optim::LBFGS>([](Training& training, auto&) { training.pass(); }),
       unsupported, "LBFGS looks at all gradients together and cannot step in backward; call its step() afterwards"},

  };
}

std::vector<Row> of_resources() {
  const Use opens_small = opens([](GuardOptions&) {});
  return {
      {"too small", memory(Bytes{1}), unsupported, "fast_memory of 1 bytes is too small: at least 8 chunks"},
      {"too small", chunk(4_KiB), unsupported, "chunk must be a power of two of at least 16 KiB"},
      {"too small", opens([](GuardOptions& of) { of.ranks = 0; }), unsupported,
       "it counts this process, so it is at least 1"},
      {"too small", slow("host:64KiB+nvme:" + folder()), unsupported,
       "give a size such as 8GiB, of at least 640.0 KiB"},
      {"too small", in_guard(resizes(Bytes{1})), unsupported, "is too small: at least 8 chunks"},
      {"too small", in_guard(pins(4 << 20)), out_of_memory, "use a larger budget, or copy the tensor piece by piece"},

      {"full", memory(100 * 1024_GiB), unsupported, "is more than the machine has"},
      {"full", in_guard(resizes(100 * 1024_GiB)), unsupported, "is more than the machine has"},
      {"full", in_guard(allocates(1024 * 1024_GiB)), out_of_memory, "is larger than the arena"},
      {"full", in_guard([](Guard& guard) {
         const at::Tensor one = torch::empty({5 << 18}), other = torch::empty({5 << 18});
         const auto held = guard.resident(one);
         const auto beside = guard.resident(other);
       }),
       out_of_memory, "held already; use a larger budget"},
      {"full", with_limit(RLIMIT_FSIZE, 1 << 20, trains_on(folder())), out_of_memory,
       "the limit of a file's size is reached (ulimit -f); free some or name another directory"},

      {"missing privilege", as_nobody(slow("nvme:/root")), Cause::system, "/root: Permission denied; name a directory"},
      {"missing privilege", as_nobody(record("/root/run.vedette")), Cause::system,
       "/root/run.vedette: unable to open database file (Permission denied)"},
      {"missing privilege", as_nobody(with_limit(RLIMIT_NPROC, 1, opens_small)), unavailable,
       "raise the limit of processes (ulimit -u)"},
      {"missing privilege", with_limit(RLIMIT_NOFILE, 3, slow("nvme:" + folder())), Cause::system, "open files"},
      {"missing privilege", with_limit(RLIMIT_AS, 1 << 30, opens_small), out_of_memory,
       "raise the address space limit (ulimit -v)"},

      {"wrong order", steps_in_backward<torch::optim::SGD>([](Training& training, auto&) {
         training.pass();
         training.pass();
       }),
       unsupported, "step after backward where a pass accumulates gradients more than once"},

  };
}

std::vector<Row> of_order() {
  return {
      {"twice", in_guard([](Guard&) { const Guard wrong({.fast_memory = budget, .policy = "sentinel"}); }), unsupported,
       "where `policy` has another value; leave it out, or end that guard first"},
      {"twice", in_guard([](Guard&) { value_of(Session::open(small_session())); }), unsupported,
       "end the first one (leave its guard's scope) before opening another"},
      {"twice", in_guard([](Guard& guard) {
         const auto one = guard.step();
         const auto other = guard.step();
       }),
       unsupported, "steps do not nest, and one thread at a time has one"},
      {"twice", in_guard([](Guard&) { const Guard wrong({.fast_memory = Bytes{1}, .slow = "nvme:/nowhere"}); }),
       unsupported, "where `slow` has another value"},

      {"nested", in_guard(in_step(begins_step())), unsupported, "steps do not nest"},
      {"nested", in_guard(in_step(opens_another)), unsupported, "open another guard between steps"},
      {"nested", in_guard(in_step([](Guard& guard) {
         const auto layer = guard.layer("outer");
         begins_step()(guard);
       })),
       unsupported, "steps do not nest"},
      {"nested", in_guard(in_step([](Guard&) { value_of(Session::open(small_session())); })), unsupported,
       "end the first one (leave its guard's scope)"},
      {"nested", in_guard(in_step([](Guard& guard) {
         std::optional<Guard::Step> inner;
         inner.emplace(guard);
       })),
       unsupported, "steps do not nest"},
      {"nested", in_guard(in_step(resizes(Bytes{1}))), unsupported, "is too small: at least 8 chunks"},

      {"in a thread", in_guard(in_step(in_thread(begins_step()))), unsupported,
       "steps do not nest, and one thread at a time has one"},
      {"in a thread",
       in_guard(in_thread([](Guard&) { const Guard wrong({.fast_memory = budget, .record = "/tmp/run"}); })),
       unsupported, "where `record` has another value"},
      {"in a thread", in_guard(in_thread(resizes(100 * 1024_GiB))), unsupported, "is more than the machine has"},
      {"in a thread", in_guard(in_thread(pins(4 << 20))), out_of_memory,
       "use a larger budget, or copy the tensor piece by piece"},

      {"in a child", in_guard(in_child_of(begins_step())), unsupported, "child of fork(); open one of its own here"},
      {"in a child", in_guard(in_child_of([](Guard& guard) {
         torch::nn::Linear other(128, 128);
         guard.watch(*other);
       })),
       unsupported, "child of fork(); open one of its own here, or start the child by spawn"},
      {"in a child", in_guard(in_child_of([](Guard& guard) { guard.bring_home(); })), unsupported, "child of fork()"},
      {"in a child", in_guard(in_child_of(resizes(4_MiB))), unsupported, "child of fork()"},
      {"in a child", in_guard(in_child_of(allocates(1_MiB))), unsupported, "child of fork()"},

      {"forgotten", opens_session([](SessionOptions& of) { of.fast = "gpu:0"; }), unsupported, "gpu"},
      {"forgotten", opens([](GuardOptions& of) { of.slow = ""; }), unsupported, "unknown"},
      {"forgotten", slow("nvme:"), Cause::system, "name a directory of a local file system that this user may write"},
      {"forgotten", opens([](GuardOptions& of) { of.policy = ""; }), unsupported, "no policy ''"},
      {"forgotten", opens_session([](SessionOptions& of) { of.fast_memory = {}; }), unsupported, "is too small"},
      {"forgotten", fast(""), unsupported, "unknown"},
  };
}

TEST(WrongUses, AreRefusedWithWhatToDoAndATrainingGoesOn) {
  int number = 0;
  std::vector<Row> rows = of_values();
  for (const auto& more : {of_resources(), of_order()}) rows.insert(rows.end(), more.begin(), more.end());
  for (const Row& row : rows) {
    SCOPED_TRACE(row.kind + std::string(", row ") + std::to_string(number++));
    try {
      as_failure(row.use);
      ADD_FAILURE() << "was not refused";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.error.cause, row.cause);
      EXPECT_THAT(failure.what(), ::testing::HasSubstr(row.sentence));
    }
  }
}

}  // namespace
}  // namespace vedette::test::wrong_uses_test
