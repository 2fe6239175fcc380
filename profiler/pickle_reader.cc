#include "profiler/pickle_reader.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

namespace vedette {

std::string_view PickledValues::text(Ref value) const {
  const Value& found = values_.at(value);
  return found.kind == Kind::text ? found.text : std::string_view();
}

std::optional<std::int64_t> PickledValues::integer(Ref value) const {
  const Value& found = values_.at(value);
  return found.kind == Kind::integer ? std::optional(found.number) : std::nullopt;
}

std::span<const PickledValues::Ref> PickledValues::items(Ref value) const {
  const Value& found = values_.at(value);
  if (found.kind != Kind::list && found.kind != Kind::dict) return {};
  return items_.at(static_cast<std::size_t>(found.number));
}

std::optional<PickledValues::Ref> PickledValues::at(Ref dict, std::string_view key) const {
  if (kind(dict) != Kind::dict) return std::nullopt;
  const std::span<const Ref> all = items(dict);
  for (std::size_t i = all.size(); i >= 2; i -= 2)
    if (kind(all[i - 2]) == Kind::text && text(all[i - 2]) == key) return all[i - 1];
  return std::nullopt;
}

// The stack machine of Lib/pickletools.py, as far as plain data need it.
class PickleMachine {
 public:
  explicit PickleMachine(std::string_view bytes) : bytes_(bytes) {}

  Result<PickledValues> run() {
    try {
      while (step()) {
      }
      return std::move(made_);
    } catch (const Error& error) {
      return error;
    }
  }

 private:
  using Ref = PickledValues::Ref;
  using Kind = PickledValues::Kind;
  static constexpr std::size_t most_values = 100'000'000;

  [[noreturn]] void fail(const std::string& why) const {
    throw Error{Cause::malformed_input, "the pickle, at byte " + std::to_string(at_) + ": " + why};
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail("it ends too soon; write or copy it anew");
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += taken.size();
    return taken;
  }
  std::uint64_t number(int count) {
    std::uint64_t value = 0;
    const std::string_view taken = take(static_cast<std::uint64_t>(count));
    for (int i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(taken[static_cast<std::size_t>(i)]);
    return value;
  }
  void push(Kind kind, std::int64_t value = 0, std::string_view text = {}) {
    if (made_.values_.size() >= most_values) fail("it has more than 100,000,000 values");
    stack_.push_back(static_cast<Ref>(made_.values_.size()));
    made_.values_.push_back({kind, value, text});
  }
  void push_items(Kind kind, std::vector<Ref> items = {}) {
    push(kind, static_cast<std::int64_t>(made_.items_.size()));
    made_.items_.push_back(std::move(items));
  }
  Ref pop() {
    const Ref value = top();
    stack_.pop_back();
    return value;
  }
  Ref top() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("an operation lacks its operand");
    return stack_.back();
  }
  std::vector<Ref> since_the_mark() {
    if (marks_.empty()) fail("an operation lacks its mark");
    const auto from = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Ref> taken(from, stack_.end());
    stack_.erase(from, stack_.end());
    marks_.pop_back();
    return taken;
  }
  void tuple(std::size_t count) {
    std::vector<Ref> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    push_items(Kind::list, std::move(items));
  }
  // Adds to the list or dictionary on top of the stack.
  void extend(Kind kind, const std::vector<Ref>& items) {
    const PickledValues::Value& target = made_.values_.at(top());
    if (target.kind != kind)
      fail(kind == Kind::list ? "it adds to what is no list" : "it adds to what is no dictionary");
    if (kind == Kind::dict && items.size() % 2 != 0) fail("a key has no value");
    std::vector<Ref>& held = made_.items_.at(static_cast<std::size_t>(target.number));
    held.insert(held.end(), items.begin(), items.end());
  }
  void remember(std::uint64_t place) {
    if (place >= bytes_.size()) fail("it numbers more values than it has");
    if (memo_.size() <= place) memo_.resize(static_cast<std::size_t>(place) + 1, none);
    memo_[static_cast<std::size_t>(place)] = top();
  }
  void recall(std::uint64_t place) {
    if (place >= memo_.size() || memo_[static_cast<std::size_t>(place)] == none)
      fail("it names a value that is not there");
    stack_.push_back(memo_[static_cast<std::size_t>(place)]);
  }
  // Two's complement. Nine bytes hold an address of the upper half.
  void long_number(std::uint64_t count) {
    const std::string_view taken = take(count);
    if (count > 9 || (count == 9 && taken[8] != 0)) fail("a number of more than 64 bits");
    std::uint64_t value = !taken.empty() && (taken.back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = std::min<std::size_t>(taken.size(), 8); i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(taken[i]);
    push(Kind::integer, static_cast<std::int64_t>(value));
  }

  bool step() {
    const auto code = static_cast<unsigned char>(take(1)[0]);
    if (code == '.') {  // STOP
      made_.top_ = pop();
      return false;
    }
    return step_of_a_value(code);
  }
  bool step_of_a_value(unsigned char code) {
    switch (code) {
      case 0x80:  // PROTO
        if (const std::uint64_t version = number(1); version < 2 || version > 5) fail("no protocol from 2 to 5");
        return true;
      case 0x95:
        take(8);  // FRAME: how far one may read ahead
        return true;
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case '}':
        push_items(Kind::dict);
        return true;
      case ']':
      case ')':
        push_items(Kind::list);
        return true;
      case 'N':
        push(Kind::none);
        return true;
      case 0x88:
        push(Kind::boolean, 1);
        return true;
      case 0x89:
        push(Kind::boolean, 0);
        return true;
      case 'J':
        push(Kind::integer, static_cast<std::int32_t>(number(4)));
        return true;
      case 'K':
        push(Kind::integer, static_cast<std::int64_t>(number(1)));
        return true;
      case 'M':
        push(Kind::integer, static_cast<std::int64_t>(number(2)));
        return true;
      case 0x8a:
        long_number(number(1));
        return true;
      case 'G':
        take(8), push(Kind::real);  // no field that is read is one
        return true;
      case 0x8c:
        text(number(1));
        return true;
      case 'X':
        text(number(4));
        return true;
      case 0x8d:
        text(number(8));
        return true;
      default:
        return step_on_the_stack(code);
    }
  }
  void text(std::uint64_t length) { push(Kind::text, 0, take(length)); }

  bool step_on_the_stack(unsigned char code) {
    switch (code) {
      case 'a':
        extend_by_one(Kind::list, 1);
        return true;
      case 's':
        extend_by_one(Kind::dict, 2);
        return true;
      case 'e':
        extend_by_marked(Kind::list);
        return true;
      case 'u':
        extend_by_marked(Kind::dict);
        return true;
      case 't': {
        std::vector<Ref> items = since_the_mark();
        push_items(Kind::list, std::move(items));
        return true;
      }
      case 0x85:
        tuple(1);
        return true;
      case 0x86:
        tuple(2);
        return true;
      case 0x87:
        tuple(3);
        return true;
      case 'h':
        recall(number(1));
        return true;
      case 'j':
        recall(number(4));
        return true;
      case 'q':
        remember(number(1));
        return true;
      case 'r':
        remember(number(4));
        return true;
      case 0x94:
        remember(memo_.size());
        return true;
      default:
        refuse(code);
    }
  }
  void extend_by_one(Kind kind, std::size_t count) {
    std::vector<Ref> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    extend(kind, items);
  }
  void extend_by_marked(Kind kind) {
    const std::vector<Ref> items = since_the_mark();
    extend(kind, items);
  }
  [[noreturn]] void refuse(unsigned char code) const {
    char shown[8];
    std::snprintf(shown, sizeof shown, "0x%02x", code);
    throw Error{Cause::unsupported, "the pickle, at byte " + std::to_string(at_ - 1) + ": opcode " + shown +
                                        " makes more than plain data, and is not run; only dictionaries, lists, text "
                                        "and numbers are read"};
  }

  static constexpr Ref none = std::numeric_limits<Ref>::max();
  std::string_view bytes_;
  std::size_t at_ = 0;
  PickledValues made_;
  std::vector<Ref> stack_, memo_;
  std::vector<std::size_t> marks_;
};

Result<PickledValues> PickledValues::read(std::string_view bytes) { return PickleMachine(bytes).run(); }

}  // namespace vedette
