// The tree of the report: spine, pods, racks and hosts from top to bottom, links as wide as they
// are fast.
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "base/text/page.hpp"
#include "command/emulate/draw.hpp"

namespace sennit::emulate {
namespace {

using nlohmann::json;

constexpr double kWidth = 1040, kLeft = 96, kRight = 16;
constexpr size_t kMostDrawn = 24;  // more are not drawn one by one

struct Box {
  double x = 0;  // middle
  double rate = 0, below = 0;
};

std::string node(double x, double y, double width, const std::string& name, const char* css) {
  return fmt::format(
      "<rect class='node {}' x='{:.1f}' y='{:.0f}' width='{:.1f}' height='30' rx='6'/>"
      "<text class='name' text-anchor='middle' x='{:.1f}' y='{:.0f}'>{}</text>",
      css, x - width / 2, y, width, x, y + 20, escape(name));
}

std::string link(double x1, double y1, double x2, double y2, double rate, double fastest) {
  return fmt::format(
      "<line class='link' x1='{:.1f}' y1='{:.0f}' x2='{:.1f}' y2='{:.0f}' stroke-width='{:.1f}'/>",
      x1, y1, x2, y2, 1.2 + 5 * std::sqrt(rate / fastest));
}

class TreePicture {
 public:
  explicit TreePicture(const json& about)
      : about_(about),
        hosts_(about.at("hosts").size()),
        racks_(about.at("racks").size()),
        pods_(about.at("pods").size()),
        one_by_one_(hosts_.size() <= kMostDrawn) {
    place();
  }

  std::string draw() {
    std::string lines, boxes, labels;
    const bool spine = racks_.size() > 1;
    const double pod_y = spine ? 84 : 8, rack_y = pods_.empty() ? pod_y : pod_y + 92;
    const double host_y = rack_y + 100;
    if (spine) boxes += node(root_, 8, 120, "spine", "switch");
    for (size_t p = 0; p < pods_.size(); p++) {
      lines += link(root_, 38, pods_[p].x, pod_y, pods_[p].rate, fastest_);
      boxes += node(pods_[p].x, pod_y, 96, of("pods", p, "name"), "switch");
      labels += rate_label(pods_[p], pod_y, pods_.size());
    }
    for (size_t r = 0; r < racks_.size(); r++) {
      const double from_x = pods_.empty() ? root_ : pods_[pod_of(r)].x;
      if (spine)
        lines += link(from_x, pods_.empty() ? 38 : pod_y + 30, racks_[r].x, rack_y, racks_[r].rate,
                      fastest_);
      boxes += node(racks_[r].x, rack_y, std::min(96.0, spacing_of_racks() - 8),
                    of("racks", r, "name"), "switch");
      if (spine) labels += rate_label(racks_[r], rack_y, racks_.size());
    }
    double bottom = host_y;
    if (one_by_one_) {
      for (size_t h = 0; h < hosts_.size(); h++) {
        lines +=
            link(racks_[rack_of(h)].x, rack_y + 30, hosts_[h].x, host_y, hosts_[h].rate, fastest_);
        boxes +=
            node(hosts_[h].x, host_y, std::min(72.0, spacing_ - 6), of("hosts", h, "name"), "host");
      }
      labels += fmt::format("<text class='tick' text-anchor='end' x='{:.0f}' y='{:.0f}'>{}</text>",
                            kLeft - 16, host_y - 30, nic_text());
      labels += ranks(host_y + 54, &bottom);
    } else {
      for (size_t r = 0; r < racks_.size(); r++)
        labels += fmt::format(
            "<text class='name' text-anchor='middle' x='{:.1f}' y='{:.0f}'>{} hosts</text>",
            racks_[r].x, rack_y + 54, hosts_of_rack(r));
    }
    return fmt::format("<svg viewBox='0 0 {:.0f} {:.0f}' role='img'>{}{}{}</svg>", kWidth,
                       bottom + (one_by_one_ ? 14 : 44), lines, boxes, labels);
  }

 private:
  // These throw where the record, which anybody may have written, has no such part.
  const json& of(const char* list, size_t part, const char* key) const {
    return about_.at(list).at(part).at(key);
  }
  size_t index_into(const char* list, const json& index) const {
    const size_t part = index;
    static_cast<void>(about_.at(list).at(part));
    return part;
  }
  size_t rack_of(size_t host) const { return index_into("racks", of("hosts", host, "rack")); }
  size_t pod_of(size_t rack) const { return index_into("pods", of("racks", rack, "pod")); }
  size_t hosts_of_rack(size_t rack) const {
    size_t n = 0;
    for (size_t h = 0; h < hosts_.size(); h++) n += rack_of(h) == rack;
    return n;
  }
  double spacing_of_racks() const {
    return (kWidth - kLeft - kRight) / static_cast<double>(racks_.size());
  }

  void place() {
    index_into("hosts", 0);  // else there is nothing to draw
    const double columns = static_cast<double>(one_by_one_ ? hosts_.size() : racks_.size());
    // Hosts of a rack stand together: half a column more between racks.
    spacing_ = (kWidth - kLeft - kRight) /
               (columns + (one_by_one_ ? 0.5 * static_cast<double>(racks_.size() - 1) : 0));
    std::vector<double> first(racks_.size(), -1), last(racks_.size(), -1);
    for (size_t h = 0; h < hosts_.size(); h++) {
      const size_t rack = rack_of(h);
      hosts_[h].rate = of("hosts", h, "bits_per_s");
      const double column = one_by_one_ ? static_cast<double>(h) + 0.5 * static_cast<double>(rack)
                                        : static_cast<double>(rack);
      hosts_[h].x = kLeft + spacing_ * (column + 0.5);
      racks_[rack].below += hosts_[h].rate;
      if (first[rack] < 0) first[rack] = hosts_[h].x;
      last[rack] = hosts_[h].x;
      fastest_ = std::max(fastest_, hosts_[h].rate);
    }
    std::vector<int> racks_of_pod(pods_.size());
    for (size_t r = 0; r < racks_.size(); r++) {
      racks_[r].x = (first[r] + last[r]) / 2;
      racks_[r].rate = of("racks", r, "bits_per_s");
      fastest_ = std::max(fastest_, racks_[r].rate);
      if (pods_.empty()) continue;
      const size_t pod = pod_of(r);
      pods_[pod].x += racks_[r].x;
      pods_[pod].below += racks_[r].rate;
      racks_of_pod[pod]++;
    }
    for (size_t p = 0; p < pods_.size(); p++) {
      pods_[p].x /= std::max(1, racks_of_pod[p]);
      pods_[p].rate = of("pods", p, "bits_per_s");
      fastest_ = std::max(fastest_, pods_[p].rate);
    }
    root_ = (hosts_.front().x + hosts_.back().x) / 2;
  }

  // Beside a switch: its uplink, and how much more hangs below it.
  std::string rate_label(const Box& box, double y, size_t siblings) const {
    if (siblings > 12) return "";
    return fmt::format(
        "<text class='tick over' text-anchor='middle' x='{0:.1f}' y='{1:.0f}'>{2}</text>"
        "<text class='tick strong over' text-anchor='middle' x='{0:.1f}' y='{3:.0f}'>{4:.1f} : "
        "1</text>",
        box.x, y - 22, readable_rate(static_cast<uint64_t>(box.rate)), y - 7, box.below / box.rate);
  }

  std::string nic_text() const {
    for (const Box& host : hosts_)
      if (host.rate != hosts_[0].rate) return "various";
    return readable_rate(static_cast<uint64_t>(hosts_[0].rate));
  }

  // Which ranks every order puts on a host.
  std::string ranks(double y, double* bottom) const {
    std::string text;
    for (const std::string order : about_.at("orders")) {
      const json& places = about_.at("places").at(order);
      text += fmt::format("<text class='label' text-anchor='end' x='{:.0f}' y='{:.0f}'>{}</text>",
                          kLeft - 16, y, escape(order));
      std::vector<std::string> on(hosts_.size());
      for (size_t rank = 0; rank < places.size(); rank++) {
        std::string& list = on[index_into("hosts", places.at(rank))];
        list += (list.empty() ? "" : ",") + std::to_string(rank);
      }
      for (size_t h = 0; h < hosts_.size(); h++)
        text +=
            fmt::format("<text class='rank' text-anchor='middle' x='{:.1f}' y='{:.0f}'>{}</text>",
                        hosts_[h].x, y, on[h]);
      *bottom = y;
      y += 24;
    }
    return text;
  }

  const json& about_;
  std::vector<Box> hosts_, racks_, pods_;
  const bool one_by_one_;
  double spacing_ = 0, root_ = 0, fastest_ = 1;
};

}  // namespace

std::string draw_tree(const json& about) { return TreePicture(about).draw(); }

}  // namespace sennit::emulate
