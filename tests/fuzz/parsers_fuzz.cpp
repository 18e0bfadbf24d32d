// parsers_fuzz.cpp: libFuzzer's target for every text form of the topology family, for GOAL, and
// for the headers of safetensors files; SENNIT_FUZZ_FORM names the one.
//
// What holds for a form is in tests/fuzz/check_form.hpp. GOAL's parser gives a schedule that its
// own text holds, or an error that begins with file:line:column; a header gives tensors that lie
// within the file, or an error that names it. By hand:
//
//   SENNIT_FUZZ_FORM=slurm_yaml build/asan/bin/parsers_fuzz -runs=1000000 DIRECTORY
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "goal/goal.hpp"
#include "tests/fuzz/check_form.hpp"
#include "topology/source.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace {

const sennit::TextForm* form = nullptr;  // null: one of the other two
bool safetensors = false;

void fail(const char* what, const std::string& text) {
  const std::string name = form ? std::string(form->name) : safetensors ? "safetensors" : "goal";
  std::fprintf(stderr, "%s: %s: %s\n", name.c_str(), what, text.c_str());
  std::abort();
}

void read_goal(const std::string& text) {
  const sennit::Result<sennit::Goal> goal = sennit::parse_goal(text, "fuzz");
  if (!goal) {
    if (!sennit::test::names_a_place(goal.status().text(), "fuzz"))
      fail("an error without a place", goal.status().text());
    return;
  }
  const std::string written = goal->to_text();
  const sennit::Result<sennit::Goal> again = sennit::parse_goal(written, "fuzz");
  if (!again)
    fail("what it read cannot be written and read", again.status().text() + "\n" + written);
  if (*again != *goal) fail("what it read changes when written and read", written);
}

// The first 8 bytes are the header's length, which few rounds would guess: the text is tried with
// the right one and with that which it has.
void read_safetensors(std::string text) {
  for (int round = 0; round < 2; round++) {
    const auto header = sennit::trainer::parse_safetensors(
        {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, text.size(), "fuzz");
    if (!header) {
      if (header.status().text().rfind("fuzz: ", 0) != 0)
        fail("an error without a file", header.status().text());
    } else {
      uint64_t at = header->data_at;
      for (const sennit::trainer::StoredTensor& tensor : header->tensors) {
        if (header->data_at + tensor.begin != at || tensor.end < tensor.begin)
          fail("a hole", tensor.name);
        at = header->data_at + tensor.end;
      }
      if (at != text.size()) fail("not the whole file", text);
    }
    if (text.size() < 8) return;
    const uint64_t length = std::min(text.find_last_of('}'), text.size() - 1) - 7;
    if (text.size() < 9) return;
    std::memcpy(text.data(), &length, sizeof(length));
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const name = std::getenv("SENNIT_FUZZ_FORM");
  for (const sennit::TextForm& known : sennit::text_forms())
    if (name != nullptr && known.name == name) form = &known;
  safetensors = name != nullptr && std::string(name) == "safetensors";
  if (form != nullptr || safetensors || (name != nullptr && std::string(name) == "goal")) return 0;
  std::fprintf(stderr, "SKIPPED: SENNIT_FUZZ_FORM is not one of those that are built in:");
  for (const sennit::TextForm& known : sennit::text_forms())
    std::fprintf(stderr, " %s", std::string(known.name).c_str());
  std::fprintf(stderr, " goal safetensors\n");
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (safetensors) {
    read_safetensors(text);
    return 0;
  }
  if (form == nullptr) {
    read_goal(text);
    return 0;
  }
  const std::string wrong = sennit::test::check_form(*form, text);
  if (!wrong.empty()) fail("the form", wrong);
  return 0;
}
