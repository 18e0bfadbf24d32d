// The terminal's tree: one line per group or fold of equal groups, with capacity, oversubscription
// and who said so. Cost: that of folding.
#include <algorithm>

#include <fmt/core.h>

#include "command/topo/model/fold.hpp"
#include "command/topo/model/wording.hpp"
#include "command/topo/outputs/outputs.hpp"
#include "topology/fabric/units.hpp"

namespace sennit::topo {
namespace {

constexpr size_t kMostNames = 60;  // bytes of a list of names on a line

struct Style {
  const char *bold, *dim, *red, *off;
};
constexpr Style kPlain{"", "", "", ""};
constexpr Style kColor{"\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[0m"};

class Tree {
 public:
  Tree(const Model& model, const Style& style) : model_(model), style_(style) {}

  void draw(const Fold& fold, const std::string& indent, bool names) {
    for (size_t i = 0; i < fold.children.size(); i++) {
      const Fold& child = fold.children[i];
      const bool last = i + 1 == fold.children.size();
      drawn += indent + (last ? "└─ " : "├─ ") + line(child, names) + "\n";
      if (!child.rest && !is_its_nic(*child.first))
        draw(child, indent + (last ? "   " : "│  "), names && child.count == 1);
    }
  }

  std::string line(const Fold& fold, bool names) const {
    const Item& item = *fold.first;
    std::string head;
    if (fold.rest) return rest_line(fold);
    // Beneath a fold of several this stands for all of theirs.
    const std::string said = figures(fold, names && fold.count == 1);
    const std::string listed = names ? list(fold.names) : "";
    if (fold.count > 1) {
      head = fmt::format("{}{}{}", style_.bold, plural(fold.count, item.tier), style_.off);
      if (!listed.empty()) head += " " + listed;
      if (const std::string held = holds(item); !held.empty()) head += " of " + held;
      head += ", each ";
    } else {
      head =
          fmt::format("{}{}{}", style_.bold,
                      item.name.empty() || !names ? plural(1, item.tier) : item.name, style_.off);
      const std::string held = holds(item);
      if (!held.empty() || !said.empty()) head += ": ";
      if (!held.empty()) head += held + (said.empty() ? "" : ", ");
    }
    return head + said + marks(fold);
  }

  std::string drawn;

 private:
  static std::string list(const std::vector<std::string>& names) {
    const std::string text = fold_names(names);
    return text.size() <= kMostNames ? text
                                     : fmt::format("{}, ... {}", names.front(), names.back());
  }

  // A host with nothing inside but the one NIC that it was drawn with.
  static bool is_its_nic(const Item& host) {
    return host.kind == ItemKind::host && host.egress.known() && host.children.size() == 1 &&
           host.children[0].kind == ItemKind::nic &&
           host.children[0].egress.bytes_per_s == host.egress.bytes_per_s &&
           host.children[0].ingress.bytes_per_s == host.ingress.bytes_per_s;
  }

  // "2 racks, 8 hosts"; empty for hosts, whose insides are listed below them.
  static std::string holds(const Item& item) {
    if (item.kind != ItemKind::group) return "";
    const bool hosts_only = std::all_of(
        item.children.begin(), item.children.end(),
        [](const Item& child) { return child.kind == ItemKind::host && child.tier == "host"; });
    return members_words(item) + (hosts_only ? "" : ", " + plural(item.hosts, "host"));
  }

  std::string figures(const Fold& fold, bool one) const {
    const Item& item = *fold.first;
    std::string text;
    const bool root = item.group == 0;
    const bool inside = item.kind == ItemKind::numa;
    if (!root && !inside) {
      const bool known = item.egress.known() || item.ingress.known();
      text += !known ? "capacity unknown" : one ? rate_words(item) : rate_words(fold);
    }
    if (item.oversubscription > 0 && !root) text += ", " + readable_ratio(item.oversubscription);
    if (item.cables > 1 && !root) text += fmt::format(", {} cables", item.cables);
    if (item.planes > 1) text += fmt::format("{}{} planes", text.empty() ? "" : ", ", item.planes);
    if (item.latency_ns > 0)
      text += fmt::format(
          "{}latency {} within{}", text.empty() ? "" : ", ", format_time(item.latency_ns),
          item.latency_assumed ? fmt::format(" (assumed, {})", name(item.wire)) : "");
    if (const std::string origin = origin_words(item); !origin.empty() && !root && !inside)
      text += fmt::format(" {}({}){}", style_.dim, origin, style_.off);
    return text;
  }

  // A suspect that is not the item itself but a link or a device of it is named, where it is one.
  std::string marks(const Fold& fold) const {
    const Item& item = *fold.first;
    std::string text;
    for (size_t i = 0; i < item.suspects.size(); i++) {
      const Suspect& suspect = model_.suspects[static_cast<size_t>(item.suspects[i])];
      if (i == 3) {
        text +=
            fmt::format("  {}! and {} more{}", style_.red, item.suspects.size() - i, style_.off);
        break;
      }
      const bool named = fold.count == 1 && suspect.where != item.name;
      text += fmt::format("  {}! {}{}: {}{}", style_.red, suspect.kind,
                          named ? " " + suspect.where : "", suspect.what, style_.off);
    }
    return text;
  }

  std::string rest_line(const Fold& fold) const {
    const bool bits = fold.first->kind != ItemKind::gpu;
    const std::string least = readable_rate(fold.least.bytes_per_s, bits);
    const std::string most = readable_rate(fold.most.bytes_per_s, bits);
    return fmt::format("{} more, unlike each other: {}{} (--json has them)",
                       plural(fold.count, fold.first->tier), list(fold.names),
                       least == most ? ", each " + most : fmt::format(", {} to {}", least, most));
  }

  const Model& model_;
  const Style& style_;
};

}  // namespace

std::string text_of(const Reading& reading, const Model& model, bool color) {
  const Style& style = color ? kColor : kPlain;
  std::string text = fmt::format("{}{}{}\nfrom {}\n", style.bold, heading(reading, model),
                                 style.off, from_words(reading));
  for (const SourceReport& source : reading.sources)
    if (!source.error.empty())
      text += fmt::format("{}source {} failed{}: {}\n", style.red, source.name, style.off,
                          source.error);
  for (const SourceReport& source : reading.sources)
    if (!source.note.empty())
      text += fmt::format("source {} left out: {}\n", source.name, source.note);
  for (const std::string& note : model.fabric.notes) text += fmt::format("note: {}\n", note);
  if (reading.outside) text += fmt::format("this host, {}, is not part of it\n", reading.host);
  Tree tree(model, style);
  const Fold whole = fold(model, {});
  tree.drawn = "\n" + tree.line(whole, true) + "\n";
  tree.draw(whole, "", true);
  text += tree.drawn;
  if (!model.way_up.empty()) text += "\n" + way_up_words(model) + "\n";
  if (!model.above_known) {
    text += "\nabove the NIC: unknown. Three ways to learn it:\n";
    for (const std::string& way : ways_to_learn()) text += "  " + way + "\n";
  }
  if (!model.fabric.conflicts.empty()) {
    text += fmt::format("\n{}sources disagree{}; what each says is kept:\n", style.red, style.off);
    for (const std::string& conflict : model.fabric.conflicts) text += "  " + conflict + "\n";
  }
  if (const size_t count = model.suspects.size(); count > 0)
    text += fmt::format("\n{}{} suspect{}{}: sennit topo --check lists them\n", style.red, count,
                        count == 1 ? "" : "s", style.off);
  return text;
}

}  // namespace sennit::topo
