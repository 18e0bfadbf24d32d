// parsers_fuzz.cpp: libFuzzer's target for every text form of the topology family, for GOAL, and
// for the headers of safetensors files; SENNIT_FUZZ_FORM names the one.
//
// Whatever the text, a parser gives a fabric (a schedule) that its own text form holds, or an error
// that begins with file:line:column; a header gives tensors that lie within the file, or an error
// that names it. By hand: SENNIT_FUZZ_FORM=slurm_yaml build/asan/bin/parsers_fuzz -runs=1000000
// DIRECTORY.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "goal/goal.hpp"
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

// "fuzz:12:3: expected ..."
bool names_a_place(const std::string& error) {
  size_t at = 5;
  if (error.rfind("fuzz:", 0) != 0) return false;
  for (int number = 0; number < 2; number++) {
    const size_t begin = at;
    while (at < error.size() && error[at] >= '0' && error[at] <= '9') at++;
    if (at == begin || at >= error.size() || error[at++] != ':') return false;
  }
  return true;
}

void read_goal(const std::string& text) {
  const sennit::Result<sennit::Goal> goal = sennit::parse_goal(text, "fuzz");
  if (!goal) {
    if (!names_a_place(goal.status().text()))
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
  std::fprintf(stderr, "SENNIT_FUZZ_FORM must be one of:");
  for (const sennit::TextForm& known : sennit::text_forms())
    std::fprintf(stderr, " %s", std::string(known.name).c_str());
  std::fprintf(stderr, " goal safetensors\n");
  std::exit(1);
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  constexpr size_t kReadBack = 5000;  // vertices; larger fabrics would only make the rounds few
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (safetensors) {
    read_safetensors(text);
    return 0;
  }
  if (form == nullptr) {
    read_goal(text);
    return 0;
  }
  static_cast<void>(form->recognises(text));
  const sennit::Result<sennit::Fabric> fabric = form->parse(text, "fuzz", "host");
  if (!fabric) {
    if (!names_a_place(fabric.status().text()))
      fail("an error without a place", fabric.status().text());
  } else if (fabric->vertices.size() + fabric->links.size() < kReadBack) {
    const std::string written = fabric->to_text();
    const sennit::Result<sennit::Fabric> again = sennit::parse_fabric(written, "fuzz");
    if (!again)
      fail("what it read cannot be written and read", again.status().text() + "\n" + written);
    if (again->to_text() != written) fail("what it read changes when written and read", written);
  }
  return 0;
}
