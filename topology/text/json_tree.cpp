// json_tree.cpp: see topology/text/json_tree.hpp. The parser takes the text byte by byte from an
// iterator that counts lines and columns; when it reports a value, the iterator stands just behind
// it.
#include "topology/text/json_tree.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/text/json.hpp"

namespace sennit {
namespace {

struct Position {
  size_t line = 1;
  size_t column = 1;
};

// An input iterator over the text that keeps the position of the byte it stands on.
class Reader {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Reader(const char* at, Position* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  Reader& operator++() {
    if (position_ != nullptr) {
      position_->column = *at_ == '\n' ? 1 : position_->column + 1;
      position_->line += *at_ == '\n' ? 1 : 0;
    }
    at_++;
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(const Reader& other) const { return at_ == other.at_; }
  bool operator!=(const Reader& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  Position* position_;
};

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const Position* position, const std::string& file) : position_(position), file_(file) {}

  bool null() override { return add(JsonKind::null, "null"); }
  bool boolean(bool value) override { return add(JsonKind::boolean, value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override {
    return add(JsonKind::number, std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return add(JsonKind::number, std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return add(JsonKind::number, text);
  }
  bool string(string_t& text) override { return add(JsonKind::string, std::move(text)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(JsonKind::map); }
  bool start_array(size_t) override { return open(JsonKind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& text) override {
    open_.back().keys.emplace_back(std::move(text),
                                   Token{{}, position_->line, position_->column, false});
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    // "[...] parse error at line 1, column 2: syntax error ..."
    const std::string_view what = error.what();
    const size_t colon = what.find(": ");
    error_ =
        at(fmt::format("JSON: {}", what.substr(colon == std::string_view::npos ? 0 : colon + 2)));
    return false;
  }

  JsonTree take() { return std::move(root_); }
  const Status& error() const { return error_; }

 private:
  Status at(const std::string& expected) const {
    std::string shown;  // the message quotes the text, whatever bytes it has
    for (const char c : expected) shown += c >= 32 && c < 127 ? c : '?';
    return invalid(fmt::format("{}:{}:{}: expected {}", file_, position_->line,
                               std::max<size_t>(position_->column, 2) - 1, shown));
  }
  JsonTree make(JsonKind kind) const {
    JsonTree tree;
    tree.kind = kind;
    tree.line = position_->line;
    tree.column = std::max<size_t>(position_->column, 2) - 1;
    return tree;
  }
  bool put(JsonTree tree) {
    if (open_.empty())
      root_ = std::move(tree);
    else
      open_.back().items.push_back(std::move(tree));
    return true;
  }
  bool add(JsonKind kind, std::string text) {
    JsonTree tree = make(kind);
    tree.text = std::move(text);
    return put(std::move(tree));
  }
  bool open(JsonKind kind) {
    if (open_.size() >= kMostNested) {
      error_ = at(fmt::format("lists and maps at most {} deep", kMostNested));
      return false;
    }
    open_.push_back(make(kind));
    return true;
  }
  bool close() {
    JsonTree tree = std::move(open_.back());
    open_.pop_back();
    return put(std::move(tree));
  }

  const Position* position_;
  const std::string& file_;
  std::vector<JsonTree> open_;
  JsonTree root_;
  Status error_;
};

}  // namespace

const JsonTree* JsonTree::find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); i++)
    if (keys[i].first == key) return &items[i];
  return nullptr;
}

Token JsonTree::place() const {
  const std::string_view shown = kind == JsonKind::list  ? "["
                                 : kind == JsonKind::map ? "{"
                                                         : std::string_view(text);
  return {shown, line, column, true};
}

Result<JsonTree> parse_json_tree(std::string_view text, const std::string& file) {
  Position position;
  Builder builder(&position, file);
  const bool done = nlohmann::json::sax_parse(Reader(text.data(), &position),
                                              Reader(text.data() + text.size(), nullptr), &builder);
  if (!builder.error().ok()) return builder.error();
  if (!done)
    return invalid(fmt::format("{}:{}:{}: expected JSON", file, position.line, position.column));
  return builder.take();
}

}  // namespace sennit
