// `sennit topo --html`: one self-contained page: the picture, suspects and conflicts, tiers as a
// table, the tree as text.
#include <algorithm>
#include <map>

#include <fmt/core.h>

#include "base/text/page.hpp"
#include "command/topo/model/wording.hpp"
#include "command/topo/outputs/outputs.hpp"

namespace sennit::topo {
namespace {

// A wide page, for the picture, and the picture's colours on a dark ground.
constexpr const char* kPageStyle = R"css(
main { max-width:1500px; }
@media (prefers-color-scheme:dark) {
 .box { fill:#202a37; stroke:#5b6a7d; } .box.leaf { fill:#18212c; } .box.bad { fill:#3a1d20; stroke:#ff7b72; }
 .head,.rate { fill:#e7ecf2; } .origin { fill:#9aa7b5; } .link { stroke:#6f86a3; } .link.bad { stroke:#ff7b72; }
 .fault { fill:#ff7b72; } .ratio { fill:#8fb98a; } .ratio.over { fill:#ffa24d; } }
)css";

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
    if (child.kind == ItemKind::group) collect(child, rows);
  }
}

std::string range(const std::string& least, const std::string& most) {
  return least == most ? most : least + " to " + most;
}

std::string tiers_table(const Model& model) {
  std::vector<std::pair<std::string, Row>> rows;
  collect(model.root, &rows);
  std::vector<std::vector<std::string>> cells;
  for (const auto& [tier, row] : rows) {
    std::string rate =
        row.most == 0 ? "unknown" : range(readable_rate(row.least), readable_rate(row.most));
    if (row.most > 0 && row.unknown > 0) rate += fmt::format(", {} unknown", row.unknown);
    const std::string ratio =
        row.most_ratio > 0 ? range(readable_ratio(row.least_ratio), readable_ratio(row.most_ratio))
                           : "";
    std::string who;
    for (const auto& [origin, count] : row.origins) who += (who.empty() ? "" : "; ") + origin;
    cells.push_back({tier, std::to_string(row.groups), rate, ratio, who});
  }
  return html_table({"tier", "how many", "way out, each", "oversubscription", "who says so"},
                    cells);
}

std::string suspects_section(const Model& model) {
  constexpr size_t kMost = 200;
  const size_t all = model.suspects.size();
  if (all == 0) return "";
  std::vector<std::vector<std::string>> cells;
  for (size_t i = 0; i < std::min(kMost, all); i++) {
    const Suspect& suspect = model.suspects[i];
    cells.push_back({suspect.kind, suspect.where, suspect.what});
  }
  return fmt::format("<section class=\"alarm\"><h2>{} suspect{}</h2>{}{}</section>", all,
                     all == 1 ? "" : "s", html_table({"what", "where", "seen"}, cells),
                     all > kMost ? html_note("The rest: sennit topo --check") : "");
}

}  // namespace

std::string picture_page_style() { return std::string(kPictureStyle) + kPageStyle; }

std::string page_of(const Reading& reading, const Model& model) {
  std::string body;
  if (reading.outside) body += html_note("this host, " + reading.host + ", is not part of it");
  body += suspects_section(model) + html_section("", svg_of(reading, model, true));
  if (model.root.hosts > 1) body += html_section("Tiers", tiers_table(model));
  body += html_section("As text", "<pre>" + escape(text_of(reading, model, false)) + "</pre>");
  return html_page(heading(reading, model), "from " + escape(from_words(reading)), body,
                   picture_page_style());
}

}  // namespace sennit::topo
