// forms.cpp: the registered sources and text forms; see topology/source.hpp.
#include <algorithm>
#include <vector>

#include "topology/source.hpp"

namespace sennit {
namespace {

std::vector<Source>& registered_sources() {
  static std::vector<Source> all;
  return all;
}

std::vector<TextForm>& registered_forms() {
  static std::vector<TextForm> all;
  return all;
}

}  // namespace

SourceEntry::SourceEntry(Source source) {
  std::vector<Source>& all = registered_sources();
  all.push_back(std::move(source));
  std::sort(all.begin(), all.end(), [](const Source& a, const Source& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.name < b.name;
  });
}

std::span<const Source> sources() { return registered_sources(); }

TextFormEntry::TextFormEntry(TextForm form) {
  std::vector<TextForm>& all = registered_forms();
  all.push_back(form);
  std::sort(all.begin(), all.end(),
            [](const TextForm& a, const TextForm& b) { return a.name < b.name; });
}

std::span<const TextForm> text_forms() { return registered_forms(); }

Result<Fabric> parse_any_form(std::string_view text, const std::string& file,
                              const std::string& host) {
  for (const TextForm& form : text_forms())
    if (form.recognises(text)) return form.parse(text, file, host);
  return parse_fabric(text, file);
}

}  // namespace sennit
