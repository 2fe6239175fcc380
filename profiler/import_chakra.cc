// Chakra's protobuf (mlcommons/chakra, schema/protobuf/et_def.proto, of mlc-chakra 1.0.0): messages with their lengths
// before them, first one GlobalMetadata, then a Node each. Of protobuf only its wire format is needed, which is four
// kinds of fields: a generated parser and its library would be a dependency a hundred times larger.
//
// Arguments are Python's text of a list, as chakra_converter writes them: "[[4, 5, 0, 2048, 4, 'cpu'], 1, None]".
#include <array>
#include <optional>
#include <utility>

#include "profiler/execution_nodes.h"

namespace vedette::foreign {
namespace {

using nlohmann::json;

struct Field {
  std::uint64_t number = 0;
  int wire = 0;  // 0: `value`, 2: `bytes`; others are skipped
  std::uint64_t value = 0;
  std::string_view bytes;
};

class Wire {
 public:
  explicit Wire(std::string_view bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) throw Malformed{"it ends too soon; write or copy it anew"};
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return value;
    }
    throw Malformed{"a number has more than ten bytes"};
  }
  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) throw Malformed{"it ends too soon; write or copy it anew"};
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view message() { return take(varint()); }

  Field field() {
    const std::uint64_t tag = varint();
    Field found{.number = tag >> 3, .wire = static_cast<int>(tag & 7), .value = 0};
    switch (found.wire) {
      case 0:
        found.value = varint();
        return found;
      case 1:
        take(8);
        return found;
      case 2:
        found.bytes = message();
        return found;
      case 5:
        take(4);
        return found;
      default:
        throw Malformed{"a field is of no kind that protobuf has"};
    }
  }

 private:
  std::string_view rest_;
};

// A literal of Python as JSON: lists, tuples, numbers, text, True, False and None. Names such as nan become null.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  json read() {
    json value = one(0);
    skip();
    if (at_ != text_.size()) fail();
    return value;
  }

 private:
  static constexpr int deepest = 32;
  [[noreturn]] void fail() const {
    throw Malformed{"arguments are no list of Python's: " + std::string(text_.substr(0, 40))};
  }
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() {
    while (next() == ' ' || next() == '\n') ++at_;
  }

  json one(int depth) {
    skip();
    const char c = next();
    if (c == '[' || c == '(') return list(c == '[' ? ']' : ')', depth);
    if (c == '\'' || c == '"') return word(c);
    const std::size_t begin = at_;
    while (next() != '\0' && std::string_view(" ,])").find(next()) == std::string_view::npos) ++at_;
    const std::string_view token = text_.substr(begin, at_ - begin);
    if (token.empty()) fail();
    if (token == "True" || token == "False") return token == "True";
    std::uint64_t number = 0;
    for (const char digit : token) {
      if (digit < '0' || digit > '9' || number > UINT64_MAX / 10 - 10) return {};  // none that says a size
      number = number * 10 + static_cast<std::uint64_t>(digit - '0');
    }
    return number;
  }

  json list(char end, int depth) {
    if (depth >= deepest) fail();
    json all = json::array();
    ++at_;
    for (skip(); next() != end; skip()) {
      all.push_back(one(depth + 1));
      skip();
      if (next() == ',') {
        ++at_;
      } else if (next() != end) {
        fail();
      }
    }
    ++at_;
    return all;
  }

  json word(char quote) {
    std::string text;
    for (++at_; next() != quote; ++at_) {
      if (at_ >= text_.size()) fail();
      if (next() == '\\') ++at_;
      if (at_ < text_.size()) text += text_[at_];
    }
    ++at_;
    return text;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::vector<StorageUse> uses_of(std::string_view message) {
  std::array<std::string_view, 4> text;  // by field: values, shapes, types
  for (Wire wire(message); !wire.done();)
    if (const Field f = wire.field(); f.wire == 2 && f.number < text.size()) text[f.number] = f.bytes;
  if (text[1].empty()) return {};
  return storage_uses(Literal(text[1]).read(), text[2].empty() ? json() : Literal(text[2]).read(), {});
}

void read_attribute(std::string_view message, ExecutionNode& node) {
  std::string_view name, text;
  std::optional<std::uint64_t> truth;
  for (Wire wire(message); !wire.done();) {
    const Field f = wire.field();
    if (f.number == 1 && f.wire == 2) name = f.bytes;
    if (f.number == 29 && f.wire == 2) text = f.bytes;   // string_val
    if (f.number == 27 && f.wire == 0) truth = f.value;  // bool_val; false is not written, unless of a oneof
  }
  if (name == "op_schema") node.schema = text;
  if (name == "is_cpu_op") node.on_device = truth.value_or(0) == 0;
}

ExecutionNode node_of(std::string_view message) {
  ExecutionNode node;
  std::uint64_t parent = 0;
  for (Wire wire(message); !wire.done();) {
    const Field f = wire.field();
    if (f.wire == 0 && f.number == 1) node.id = f.value;
    if (f.wire == 2 && f.number == 2) node.name = f.bytes;
    // ctrl_deps, packed or not: the first is the caller
    if (f.wire == 0 && f.number == 4 && parent == 0) parent = f.value;
    if (f.wire == 2 && f.number == 4 && parent == 0 && !f.bytes.empty()) parent = Wire(f.bytes).varint();
    constexpr std::uint64_t longest = 1'000'000'000'000;
    if (f.wire == 0 && f.number == 7 && f.value < longest) node.microseconds = static_cast<double>(f.value);
    if (f.wire == 2 && f.number == 8) node.inputs = uses_of(f.bytes);
    if (f.wire == 2 && f.number == 9) node.outputs = uses_of(f.bytes);
    if (f.wire == 2 && f.number == 10) read_attribute(f.bytes, node);
  }
  node.parent = parent;
  return node;
}

}  // namespace

bool is_chakra(std::string_view bytes) noexcept {
  try {
    Wire file(bytes);
    Wire metadata(file.message());
    bool any = false;
    for (; !metadata.done(); any = true)
      if (const Field f = metadata.field(); f.wire != 2 || f.number < 1 || f.number > 2) return false;
    return any;
  } catch (const Malformed&) {
    return false;
  }
}

Trace read_chakra(std::string_view bytes) {
  Wire file(bytes);
  file.message();
  std::vector<ExecutionNode> nodes;
  while (!file.done()) {
    try {
      nodes.push_back(node_of(file.message()));
    } catch (const Malformed& malformed) {
      throw Malformed{"node " + std::to_string(nodes.size()) + ": " + malformed.message};
    }
  }
  return trace_of_nodes(std::move(nodes), chakra_format);
}

}  // namespace vedette::foreign
