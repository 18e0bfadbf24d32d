// json_test.cpp: texts that are nested as deep as somebody likes are refused, by every parser,
// and take no stack. Those of the trainer: tests/trainer/run/limits_test.cpp.
//
// ctest not-under-tsan: it has one thread
#include "base/text/json.hpp"

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
  for (const char end : {'\n', '\r', '\0'})
    EXPECT_FALSE(is_shallow(std::string("// a line") + end + lists(kMostNested + 1))) << int{end};
  for (const char* const cut : {"\"", "\"\\", "/", "//", "/*", "/**", "", "]", "}"})
    EXPECT_TRUE(is_shallow(cut));
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
