// The picture of `sennit topo`: groups from left to right, a box for each fold, links as wide as
// they are fast (in area), dashed where assumed, dotted where unknown, red where suspect. Siblings
// stay apart while the picture has at most kMostRows rows, then equal ones fold, so 8 hosts and
// 3,072 are both legible. Colours are classes, so the page can have a dark side. Cost: that of
// folding.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/core.h>

#include "base/text/page.hpp"
#include "command/topo/model/fold.hpp"
#include "command/topo/model/wording.hpp"
#include "command/topo/outputs/outputs.hpp"

namespace sennit::topo {
namespace {

constexpr int kMostRows = 20;
constexpr double kMargin = 24, kBox = 216, kGap = 132, kLine = 16, kPad = 7, kBetween = 10;

// Cut to what fits; names are mostly ASCII, and a character cut in half would spoil the file.
std::string cut(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) end--;
  return text.substr(0, end) + "…";
}

// Lines of at most so many bytes, broken between words.
std::vector<std::string> wrap(const std::string& text, size_t most) {
  std::vector<std::string> lines = {""};
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > most) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    begin = end + 1;
  }
  return lines;
}

std::string label(double x, double y, const char* css, const std::string& text,
                  const char* anchor = "start") {
  return fmt::format("<text class='{}' x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>", css, x, y,
                     anchor, escape(text));
}

struct Box {
  const Fold* fold = nullptr;
  std::string head;
  std::vector<std::string> lines, faults;
  double x = 0, y = 0, height = 0;
  std::vector<Box> children;
  double middle() const { return y + height / 2; }
};

class Picture {
 public:
  Picture(const Reading& reading, const Model& model) : reading_(reading), model_(model) {
    FoldOptions options;
    options.unfolded_columns = kMostRows;
    options.insides = model.root.hosts == 1;
    whole_ = fold(model, options);
    root_ = make(whole_, true);
    collect(root_);
    double y = kMargin;
    place(&root_, kMargin, &y);
    width_ = std::max(right_, 700.0) + kMargin;
    bottom_ = y;
  }

  std::string draw(bool embedded) {
    std::string body;
    draw_box(root_, &body);
    double y = bottom_ + 12;
    if (!model_.way_up.empty())
      body += label(kMargin, y += 10, "soft", cut(way_up_words(model_), 150));
    if (!model_.above_known) {
      body += label(kMargin, y += 10, "fault", "Above the NIC: unknown. Three ways to learn it:");
      for (const std::string& way : ways_to_learn())
        body += label(kMargin, y += 20, "soft", cut(way, 110));
      y += 24;
    }
    std::string legend =
        "Links are as wide as they are fast; dashed: assumed; dotted: unknown; red: suspect. "
        "N:1 is what comes from below against the way out.";
    if (origins_.size() == 1) legend = fmt::format("Figures: {}. {}", *origins_.begin(), legend);
    body += label(kMargin, y + 14, "soft", legend);
    width_ = std::max(width_, 2 * kMargin + 6.1 * static_cast<double>(legend.size()));
    y += 30;
    if (embedded) return svg(0, y, body);
    const std::string title = label(kMargin, 30, "title", heading(reading_, model_)) +
                              label(kMargin, 50, "soft", "from " + from_words(reading_));
    return svg(
        56, y,
        fmt::format(
            "<style>{}</style><rect class='ground' x='0' y='-56' width='100%' height='100%'/>"
            "<g transform='translate(0 -56)'>{}</g>{}",
            kPictureStyle, title, body));
  }

 private:
  std::string svg(double top, double bottom, const std::string& body) const {
    return fmt::format(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 "
        "{2:.0f} {0:.0f} {1:.0f}' font-family='system-ui, \"Segoe UI\", Roboto, \"DejaVu Sans\", "
        "sans-serif' role='img'>{3}</svg>\n",
        width_, bottom + top, -top, body);
  }

  Box make(const Fold& fold, bool names) const {
    Box box;
    box.fold = &fold;
    const Item& item = *fold.first;
    const std::string listed = names ? fold_names(fold.names) : "";
    if (fold.rest) {
      box.head = fmt::format("{} more", plural(fold.count, item.tier));
      box.lines = {"unlike each other"};
    } else if (fold.count > 1) {
      box.head = plural(fold.count, item.tier);
      if (!listed.empty()) box.lines.push_back(listed);
    } else {
      box.head = item.name.empty() || !names ? plural(1, item.tier) : item.name;
    }
    if (!fold.rest) add_details(item, fold.count > 1, &box);
    for (const Fold& child : fold.children)
      box.children.push_back(make(child, names && fold.count == 1));
    box.height = 2 * kPad + kLine * static_cast<double>(1 + box.lines.size() + box.faults.size());
    return box;
  }

  void add_details(const Item& item, bool several, Box* box) const {
    std::string text;
    if (item.kind == ItemKind::group) {
      text = members_words(item);
      const bool deeper = item.hosts > static_cast<int>(item.children.size());
      if (deeper) text += ", " + plural(item.hosts, "host");
    } else if (item.kind == ItemKind::host && model_.root.hosts > 1) {
      text = inside_words(item);
    }
    if (item.planes > 1 && item.kind == ItemKind::group)
      text += fmt::format("{}{} planes", text.empty() ? "" : ", ", item.planes);
    if (several && !text.empty()) text = "each " + text;
    if (!text.empty()) box->lines.push_back(text);
    constexpr size_t kMostFaults = 2;
    for (size_t i = 0; i < std::min(kMostFaults, item.suspects.size()); i++) {
      const Suspect& suspect = model_.suspects[static_cast<size_t>(item.suspects[i])];
      const bool named = !several && suspect.where != item.name;
      for (const std::string& line :
           wrap(fmt::format("{}{}: {}", suspect.kind, named ? " " + suspect.where : "",
                            suspect.what),
                36))
        box->faults.push_back(cut(line, 36));
    }
    if (item.suspects.size() > kMostFaults)
      box->faults.push_back(fmt::format("and {} more", item.suspects.size() - kMostFaults));
  }

  static std::string inside_words(const Item& host) {
    int nics = 0, gpus = 0, numa = 0;
    const auto count = [&](const Item& item, const auto& self) -> void {
      nics += item.kind == ItemKind::nic;
      gpus += item.kind == ItemKind::gpu;
      numa += item.kind == ItemKind::numa;
      for (const Item& child : item.children) self(child, self);
    };
    count(host, count);
    std::string text;
    for (const auto& [n, word] : {std::pair(numa, "numa"), {gpus, "gpu"}, {nics, "nic"}})
      if (n > 0) text += (text.empty() ? "" : ", ") + plural(n, word);
    return text;
  }

  void collect(const Box& box) {  // the fastest link, and who says the figures
    for (const Box& child : box.children) {
      fastest_ = std::max(fastest_, child.fold->about_egress_bytes_per_s);
      if (const std::string words = origin_words(*child.fold->first); !words.empty())
        origins_.insert(words);
      collect(child);
    }
  }

  void place(Box* box, double x, double* y) {
    box->x = x;
    right_ = std::max(right_, x + kBox);
    const double top = *y;
    for (Box& child : box->children) place(&child, x + kBox + kGap, y);
    if (box->children.empty()) {
      box->y = top;
    } else {
      const double middle = (box->children.front().middle() + box->children.back().middle()) / 2;
      box->y = std::max(top, middle - box->height / 2);
    }
    *y = std::max(*y, box->y + box->height + kBetween);
  }

  void draw_box(const Box& box, std::string* body) {
    for (const bool bad : {false, true})  // suspects on top
      for (const Box& child : box.children)
        if (child.faults.empty() != bad) draw_link(box, child, body);
    const Item& item = *box.fold->first;
    const bool bad = !box.faults.empty();
    const char* const css = bad ? "box bad" : item.kind == ItemKind::group ? "box" : "box leaf";
    *body += "<g>";
    if (const std::string tip = tooltip(box); !tip.empty())
      *body += fmt::format("<title>{}</title>", escape(tip));
    for (int behind = box.fold->count > 2 ? 2 : box.fold->count - 1; behind >= 0; behind--)
      *body += fmt::format(
          "<rect class='{}' x='{:.1f}' y='{:.1f}' width='{:.0f}' height='{:.1f}' rx='5'/>", css,
          box.x + 4 * behind, box.y - 3 * behind, kBox - 8, box.height);
    double y = box.y + kPad + 12;
    const bool ratio = item.oversubscription > 0 && item.group != 0 && !box.fold->rest;
    *body += label(box.x + 10, y, "head", cut(box.head, ratio ? 19 : 26));
    if (ratio)
      *body += label(box.x + kBox - 18, y, item.oversubscription > 1.05 ? "ratio over" : "ratio",
                     readable_ratio(item.oversubscription), "end");
    for (const std::string& line : box.lines)
      *body += label(box.x + 10, y += kLine, "soft", cut(line, 33));
    for (const std::string& fault : box.faults)
      *body += label(box.x + 10, y += kLine, "fault", fault);
    *body += "</g>";
    for (const Box& child : box.children) draw_box(child, body);
  }

  static std::string tooltip(const Box& box) {
    if (box.fold->rest) return fold_names(box.fold->names);
    const std::string origin = origin_words(*box.fold->first);
    return fmt::format("{}{}{}", fold_names(box.fold->names),
                       origin.empty() ? "" : "\n" + rate_words(*box.fold),
                       origin.empty() ? "" : " (" + origin + ")");
  }

  void draw_link(const Box& from, const Box& to, std::string* body) const {
    const Item& item = *to.fold->first;
    if (item.kind == ItemKind::numa) return draw_curve(from, to, "link plain", 1.2, body);
    const uint64_t rate =
        to.fold->rest ? to.fold->most.bytes_per_s : to.fold->about_egress_bytes_per_s;
    const bool known = rate != 0;
    const bool slow = std::any_of(item.suspects.begin(), item.suspects.end(), [&](int s) {
      const std::string& kind = model_.suspects[static_cast<size_t>(s)].kind;
      return kind != "conflict" && !to.fold->rest;
    });
    std::string css = slow ? "link bad" : "link";
    if (!known) css += " unknown";
    if (known && item.egress.provenance == Provenance::assumed) css += " assumed";
    const double share =
        known ? static_cast<double>(rate) / static_cast<double>(std::max<uint64_t>(1, fastest_))
              : 0;
    draw_curve(from, to, css, 1.2 + 7 * std::sqrt(share), body);
    const double x = to.x - 6, y = to.middle() - 5 - 3.5 * std::sqrt(share);
    std::string text = known || item.ingress.known() ? rate_words(*to.fold) : "unknown";
    if (to.fold->rest)
      text =
          fmt::format("{} to {}", readable_rate(to.fold->least.bytes_per_s), readable_rate(rate));
    if (to.fold->count > 1 && !to.fold->rest) text = "each " + text;
    if (const size_t in = text.find(" out, "); in != text.npos) {  // on two lines
      *body += label(x, y - 13, "rate", text.substr(0, in + 4), "end");
      text = text.substr(in + 6);
    }
    *body += label(x, y, "rate", text, "end");
    if (origins_.size() > 1 && known)
      *body += label(x, to.middle() + 13 + 3.5 * std::sqrt(share), "origin",
                     cut(origin_words(item), 24), "end");
  }

  static void draw_curve(const Box& from, const Box& to, const std::string& css, double width,
                         std::string* body) {
    const double x1 = from.x + kBox - 8, y1 = from.middle(), x2 = to.x, y2 = to.middle();
    const double bend = x1 + 26;  // steep at once, so that rates stand on a straight line
    *body += fmt::format(
        "<path class='{}' stroke-width='{:.1f}' d='M{:.1f} {:.1f} C{:.1f} {:.1f} {:.1f} {:.1f} "
        "{:.1f} {:.1f} L{:.1f} {:.1f}'/>",
        css, width, x1, y1, bend, y1, x1 + 4, y2, bend + 8, y2, x2, y2);
  }

  const Reading& reading_;
  const Model& model_;
  Fold whole_;
  Box root_;
  std::set<std::string> origins_;
  uint64_t fastest_ = 0;
  double right_ = 0, bottom_ = 0, width_ = 0;
};

}  // namespace

std::string svg_of(const Reading& reading, const Model& model, bool embedded) {
  return Picture(reading, model).draw(embedded);
}

}  // namespace sennit::topo
