// `sennit topo --html`: one self-contained page: the picture, suspects and conflicts, tiers as a
// table, the tree as text.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/page_text.hpp"
#include "command/topo/topo.hpp"

namespace sennit::topo {
namespace {

constexpr const char* kPageStyle = R"(
:root { color-scheme:light dark; }
body { margin:0; background:#fbfbfc; color:#17202b; font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif; }
main { max-width:1500px; margin:0 auto; padding:28px 24px 48px; }
h1 { font-size:24px; margin:0 0 2px; } h2 { font-size:16px; margin:0 0 10px; } p { margin:0 0 8px; }
.note { color:#5d6875; }
section { background:#fff; border:1px solid #e3e6ea; border-radius:10px; padding:18px 20px; margin-top:18px; overflow-x:auto; }
section.alarm { border-color:#cf2f2f; }
svg { display:block; max-width:max(100%,820px); height:auto; }
table { border-collapse:collapse; font-size:14px; } th,td { text-align:left; padding:4px 22px 4px 0; border-bottom:1px solid #e3e6ea; vertical-align:top; }
th { color:#5d6875; font-weight:500; } pre { margin:0; font:13px/1.45 ui-monospace,Menlo,"DejaVu Sans Mono",monospace; }
@media (prefers-color-scheme:dark) {
 body { background:#0f141b; color:#e7ecf2; } .note,th { color:#9aa7b5; }
 section { background:#161d27; border-color:#2a3441; } th,td { border-color:#2a3441; }
 .box { fill:#202a37; stroke:#5b6a7d; } .box.leaf { fill:#18212c; } .box.bad { fill:#3a1d20; stroke:#ff7b72; }
 .head,.rate { fill:#e7ecf2; } .soft,.origin { fill:#9aa7b5; } .link { stroke:#6f86a3; } .link.bad { stroke:#ff7b72; }
 .fault { fill:#ff7b72; } .ratio { fill:#8fb98a; } .ratio.over { fill:#ffa24d; } })";

// By tier: what its groups have in common.
struct Row {
  int groups = 0;
  uint64_t least = UINT64_MAX, most = 0;
  double least_ratio = 1e300, most_ratio = 0;
  int unknown = 0;
  std::map<std::string, int> origins;
};

void collect(const Item& item, std::vector<std::pair<std::string, Row>>* rows) {
  for (const Item& child : item.children) {
    auto row = std::find_if(rows->begin(), rows->end(),
                            [&](const auto& r) { return r.first == child.tier; });
    if (row == rows->end()) row = rows->insert(rows->end(), {child.tier, Row()});
    Row& sum = row->second;
    sum.groups++;
    sum.unknown += !child.egress.known();
    if (child.egress.known()) {
      sum.least = std::min(sum.least, child.egress.bytes_per_s);
      sum.most = std::max(sum.most, child.egress.bytes_per_s);
      sum.origins[origin_words(child)]++;
    }
    if (child.oversubscription > 0) {
      sum.least_ratio = std::min(sum.least_ratio, child.oversubscription);
      sum.most_ratio = std::max(sum.most_ratio, child.oversubscription);
    }
    if (child.kind == Item::Kind::group) collect(child, rows);
  }
}

std::string range(const std::string& least, const std::string& most) {
  return least == most ? most : least + " to " + most;
}

std::string tiers_table(const Model& model) {
  std::vector<std::pair<std::string, Row>> rows;
  collect(model.root, &rows);
  std::string text =
      "<table><tr><th>tier<th>how many<th>way out, each<th>oversubscription<th>who says so</tr>";
  for (const auto& [tier, row] : rows) {
    std::string rate =
        row.most == 0 ? "unknown" : range(readable_rate(row.least), readable_rate(row.most));
    if (row.most > 0 && row.unknown > 0) rate += fmt::format(", {} unknown", row.unknown);
    const std::string ratio =
        row.most_ratio > 0 ? range(readable_ratio(row.least_ratio), readable_ratio(row.most_ratio))
                           : "";
    std::string who;
    for (const auto& [origin, count] : row.origins) who += (who.empty() ? "" : "; ") + origin;
    text += fmt::format("<tr><td>{}<td>{}<td>{}<td>{}<td>{}</tr>", escape(tier), row.groups, rate,
                        ratio, escape(who));
  }
  return text + "</table>";
}

std::string suspects_section(const Model& model) {
  constexpr size_t kMost = 200;
  if (model.suspects.empty()) return "";
  std::string text = fmt::format(
      "<section class='alarm'><h2>{} suspect{}</h2><table><tr><th>what<th>where<th>seen</tr>",
      model.suspects.size(), model.suspects.size() == 1 ? "" : "s");
  for (size_t i = 0; i < std::min(kMost, model.suspects.size()); i++) {
    const Suspect& suspect = model.suspects[i];
    text += fmt::format("<tr><td>{}<td>{}<td>{}</tr>", escape(suspect.kind), escape(suspect.where),
                        escape(suspect.what));
  }
  text += "</table>";
  if (model.suspects.size() > kMost) text += "<p class='note'>The rest: sennit topo --check</p>";
  return text + "</section>";
}

}  // namespace

std::string page_of(const Reading& reading, const Model& model) {
  std::string text = fmt::format(
      "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
      "content='width=device-width'><title>{0}</title><style>{1}{2}</style></"
      "head><body><main><h1>{0}</h1><p "
      "class='note'>from {3}</p>",
      escape(heading(reading, model)), kPictureStyle, kPageStyle, escape(from_words(reading)));
  if (reading.outside)
    text +=
        fmt::format("<p class='note'>this host, {}, is not part of it</p>", escape(reading.host));
  text += suspects_section(model);
  text += fmt::format("<section>{}</section>", svg_of(reading, model, true));
  if (model.root.hosts > 1)
    text += fmt::format("<section><h2>Tiers</h2>{}</section>", tiers_table(model));
  text += fmt::format("<section><h2>As text</h2><pre>{}</pre></section></main></body></html>\n",
                      escape(text_of(reading, model, false)));
  return text;
}

}  // namespace sennit::topo
