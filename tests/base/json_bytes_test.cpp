// json_bytes_test.cpp: texts and messages that are nested as deep as somebody likes are refused, by
// every parser, and take no stack. Those of the trainer: tests/trainer/trainer_limits_test.cpp.
#include "base/json_bytes.hpp"

#include <gtest/gtest.h>

#include "forecast/model.hpp"
#include "topology/source.hpp"
#include "topology/text/json_tree.hpp"

namespace sennit {
namespace {

constexpr size_t kDeep = 1'000'000;

std::string times(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; i++) all += text;
  return all;
}

std::string lists(size_t depth) { return times("[", depth) + times("]", depth); }

TEST(ShallowJson, IsReadAsDeepAsTheLimitAndNoDeeper) {
  EXPECT_TRUE(parse_json(lists(kMostNested)).is_array());
  EXPECT_TRUE(parse_json(lists(kMostNested + 1)).is_discarded());
  EXPECT_TRUE(parse_json(lists(kDeep)).is_discarded());
  EXPECT_TRUE(parse_json(times("[", kDeep)).is_discarded());
  EXPECT_TRUE(parse_json(times("{\"a\":", kDeep) + "1" + times("}", kDeep)).is_discarded());
  EXPECT_TRUE(parse_json("[" + times("[],", 1000) + "[]]").is_array()) << "beside one another";
}

TEST(ShallowJson, BracketsInStringsAndCommentsAreNone) {
  const std::string many = times("[{", kMostNested);
  EXPECT_EQ(parse_json("\"" + many + "\"").get<std::string>(), many);
  EXPECT_TRUE(parse_json("{\"" + many + "\\\"" + many + "\": \"\\\\\"}").is_object());
  EXPECT_TRUE(is_shallow("/* \" " + many + "*/ // \" " + many + "\n" + lists(kMostNested)));
  EXPECT_FALSE(is_shallow("/* \" *" + many + "*/ // \" " + many + "\n" + lists(kMostNested + 1)));
  EXPECT_FALSE(is_shallow("\"\\\\\"" + lists(kMostNested + 1)));
  for (const char* const cut : {"\"", "\"\\", "/", "//", "/*", "/**", "", "]", "}"})
    EXPECT_TRUE(is_shallow(cut));
}

TEST(ShallowJson, MessagesAreReadAsDeepAsTheLimitAndNoDeeper) {
  for (const char head : {'\x81', '\x9f'}) {  // lists of one item, of untold length
    const auto deep = [&](size_t depth) {
      std::string text(depth, head);
      text += '\x01';
      if (head == '\x9f') text += std::string(depth, '\xff');
      const auto* const data = reinterpret_cast<const std::byte*>(text.data());
      return unpack({data, data + text.size()});
    };
    EXPECT_TRUE(deep(kMostNested).is_array());
    EXPECT_TRUE(deep(kMostNested + 1).is_discarded());
    EXPECT_TRUE(deep(kDeep).is_discarded());
  }
  std::vector<std::byte> maps;
  for (size_t i = 0; i < kDeep; i++)
    for (const int byte : {0xa1, 0x61, 0x61}) maps.push_back(static_cast<std::byte>(byte));
  EXPECT_TRUE(unpack(maps).is_discarded());
  EXPECT_TRUE(unpack({}).is_discarded());
}

// 9b 7f ff...: a list of more items than there can be, for which the JSON library throws.
TEST(ShallowJson, AMessageThatCannotHoldWhatItSaysIsRefused) {
  for (const int head : {0x9b, 0xbb, 0x5b, 0x7b}) {
    std::vector<std::byte> message(9, std::byte{0xff});
    message[0] = static_cast<std::byte>(head);
    message[1] = std::byte{0x7f};
    EXPECT_TRUE(unpack(message).is_discarded()) << head;
  }
}

TEST(ShallowJson, MessagesAreReadAsWritten) {
  const nlohmann::json json = {{"a", {1, -2, 3.5, nullptr, true}},
                               {"b", {{"c", "d"}}},
                               {"e", nlohmann::json::binary({1, 2, 3})}};
  EXPECT_EQ(unpack(pack(json)), json);
}

// Whatever the form, and also what only begins like one.
TEST(ShallowJson, NoTextFormTakesStackForWhatIsNestedInIt) {
  std::vector<std::string> texts;
  for (const char* const begin :
       {"[", "{\"lldp\":[", "{\"a\":", "{a: ", "- ", "? ", "<a>", "<system><cpu>",
        "<pci busid=\"1\">", "- topology: a\n  tree: [", "SwitchName=a Switches=b[", "(", "a["})
    for (const char* const inner : {begin, "["}) texts.push_back(begin + times(inner, kDeep / 20));
  texts.push_back("&a [*a]");
  for (const TextForm& form : text_forms())
    for (const std::string& text : texts) {
      static_cast<void>(form.recognises(text));
      EXPECT_FALSE(form.parse(text, "f", "host").ok()) << form.name << ": " << text.substr(0, 30);
    }
  for (const std::string& text : texts) {
    EXPECT_FALSE(parse_json_tree(text, "f").ok()) << text.substr(0, 30);
    EXPECT_FALSE(forecast::parse_model(text, "f").ok()) << text.substr(0, 30);
  }
}

}  // namespace
}  // namespace sennit
