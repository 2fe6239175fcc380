// The sentences: see left_out.h.
#include "adapter/torch/left_out.h"

#include <utility>

#include "base/readable.h"

namespace vedette::adapter {
namespace {

struct Sentence {  // after "Tensor 'x'", after "3 tensors (24 MiB in all), the first 'x',"
  const char *of_one, *of_many;
};

constexpr std::array<Sentence, 5> sentences = {{
    {"lives in memory that libtorch did not allocate; it stays there, outside the budget.",
     "live in memory that libtorch did not allocate; they stay there, outside the budget."},
    {"is shared with other processes; it stays where it is, outside the budget.",
     "are shared with other processes; they stay where they are, outside the budget."},
    {"is in use by another library, too (numpy, DLPack, an extension); it stays where it is, outside the budget: call "
     "watch() before a library gets it.",
     "are in use by another library, too (numpy, DLPack, an extension); they stay where they are, outside the budget: "
     "call watch() before a library gets them."},
    {"is in use by another library, too (numpy, DLPack, an extension); it stays in the guard's memory: drop what that "
     "library has before bring_home().",
     "are in use by another library, too (numpy, DLPack, an extension); they stay in the guard's memory: drop what it "
     "has before bring_home()."},
    {"is of a kind that is not moved (an opaque layout, or a subclass without __tensor_flatten__); it stays where it "
     "is, "
     "outside the budget.",
     "are of a kind that is not moved (an opaque layout, or a subclass without __tensor_flatten__); they stay where "
     "they "
     "are, outside the budget."},
}};

}  // namespace

void LeftOut::add(Why why, std::string_view name, Bytes bytes) {
  Tensors& those = tensors_[static_cast<std::size_t>(why)];
  if (those.count++ == 0) those.first = name;
  those.bytes += bytes;
}

void LeftOut::say(const std::function<void(std::string_view)>& say) {
  for (std::size_t why = 0; why < tensors_.size(); ++why) {
    const Tensors those = std::exchange(tensors_[why], {});
    if (those.count == 0) continue;
    std::string sentence = those.count == 1
                               ? "Tensor '" + those.first + "' " + sentences[why].of_one
                               : std::to_string(those.count) + " tensors (" + readable(those.bytes) +
                                     " in all), the first '" + those.first + "', " + sentences[why].of_many;
    if (sentence == said_[why]) continue;
    say(sentence);
    said_[why] = std::move(sentence);
  }
}

}  // namespace vedette::adapter
