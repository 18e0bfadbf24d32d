// `sennit job --html`: one self-contained page: where a step and the memory go, what other orders
// and sizes cost.
#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include <fmt/format.h>

#include "base/page_text.hpp"
#include "command/forecast/job.hpp"

namespace sennit::forecast {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme:light dark; }
body { margin:0; background:#fbfbfc; color:#17202b; font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif; }
main { max-width:1080px; margin:0 auto; padding:28px 24px 48px; }
h1 { font-size:24px; margin:0 0 2px; } h2 { font-size:16px; margin:0 0 10px; } p { margin:0 0 8px; } .note { color:#5d6875; }
section { background:#fff; border:1px solid #e3e6ea; border-radius:10px; padding:18px 20px; margin-top:18px; overflow-x:auto; }
.figures { display:flex; flex-wrap:wrap; gap:12px 36px; } .figures b { display:block; font-size:22px; } .figures span { color:#5d6875; }
svg { display:block; max-width:max(100%,820px); height:auto; } text { fill:#17202b; font:13px system-ui,"DejaVu Sans",sans-serif; }
table + .note, .figures + .note, svg + .note { margin-top:10px; }
table { border-collapse:collapse; font-size:13px; } th { text-align:right; color:#5d6875; font-weight:500; } td, th { padding:3px 12px 3px 0; text-align:right; white-space:nowrap; }
td:first-child, th:first-child { text-align:left; } .soft { fill:#5d6875; } .axis { stroke:#c9d0d8; } .bar { fill:#9db4d3; } .bar.this { fill:#2f6fb7; }
.part0 { fill:#2f6fb7; } .part1 { fill:#7aa6d8; } .part2 { fill:#b4cbe6; } .part3 { fill:#c8781e; } .part4 { fill:#e3a55d; } .part5 { fill:#a33f3f; } .part6 { fill:#d38787; } .part7 { fill:#6d7f52; } .part8 { fill:#8a97a8; }
.line { fill:none; stroke-width:2; } .line0 { stroke:#2f6fb7; } .line1 { stroke:#6d7f52; stroke-dasharray:2 4; } .line2 { stroke:#c8781e; stroke-dasharray:7 4; } .line3 { stroke:#a33f3f; }
@media (prefers-color-scheme:dark) { body { background:#0f141b; color:#e7ecf2; } .note, .figures span, th { color:#9aa7b5; }
 section { background:#161d27; border-color:#2a3441; } text { fill:#e7ecf2; } .soft { fill:#9aa7b5; } .axis { stroke:#3a4654; } .bar { fill:#51657f; } })";

struct Part {
  std::string label, value;
  double amount = 0;
};

// One bar of parts on a scale that ends at `whole`, and what each of them is.
std::string stacked(const std::vector<Part>& parts, double whole, const std::string& end) {
  constexpr int kWidth = 980, kBar = 34, kRow = 22, kColumns = 3;
  const int rows = (static_cast<int>(parts.size()) + kColumns - 1) / kColumns;
  std::string text = fmt::format("<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" role=\"img\">\n",
                                 kWidth + 20, kBar + 34 + rows * kRow);
  double x = 0;
  for (size_t i = 0; i < parts.size(); i++) {
    const double width = parts[i].amount / whole * kWidth;
    text += fmt::format(
        "<rect class=\"part{}\" x=\"{:.1f}\" y=\"0\" width=\"{:.1f}\" height=\"{}\"><title>{} "
        "{}</title></rect>",
        i, x, width, kBar, escape(parts[i].label), escape(parts[i].value));
    x += width;
    const int column = static_cast<int>(i) % kColumns, row = static_cast<int>(i) / kColumns;
    text += fmt::format(
        "<rect class=\"part{0}\" x=\"{1}\" y=\"{2}\" width=\"12\" height=\"12\"/><text x=\"{3}\" "
        "y=\"{4}\">{5} <tspan "
        "class=\"soft\">{6}</tspan></text>\n",
        i, column * 330, kBar + 32 + row * kRow, column * 330 + 20, kBar + 43 + row * kRow,
        escape(parts[i].label), escape(parts[i].value));
  }
  text += fmt::format(
      "<line class=\"axis\" x1=\"{0}\" x2=\"{0}\" y1=\"0\" y2=\"{1}\"/><text class=\"soft\" "
      "x=\"{0}\" "
      "y=\"{2}\" "
      "text-anchor=\"end\">{3}</text>\n",
      kWidth, kBar + 6, kBar + 18, escape(end));
  return text + "</svg>";
}

std::vector<Part> step_parts(const StepTime& s) {
  const std::pair<const char*, double> all[] = {
      {"matrix products", s.matmul},      {"attention", s.attention},
      {"norms, gates", s.elementwise},    {"tensor parallel", s.tensor},
      {"context parallel", s.context},    {"pipeline bubble", s.bubble},
      {"pipeline transfers", s.pipeline}, {"data parallel, waited", s.data},
      {"optimizer", s.optimizer}};
  std::vector<Part> parts;
  for (const auto& [label, seconds] : all)
    parts.push_back({label,
                     fmt::format("{} ({:.1f}%)", duration_text(seconds), 100 * seconds / s.total),
                     seconds});
  return parts;
}

std::string orders_svg(const Answer& answer) {
  constexpr int kLabel = 300, kWidth = 480, kRow = 24;
  constexpr size_t kMost = 16;
  const size_t all = answer.options.size();
  const double worst = answer.options.back().step.total;
  // evenly from the fastest to the slowest, and the one asked about
  std::set<size_t> shown = {answer.given};
  for (size_t i = 0; i < std::min(kMost, all); i++)
    shown.insert(all <= kMost ? i : i * (all - 1) / (kMost - 1));
  std::string text = fmt::format("<svg viewBox=\"0 0 1000 {0}\" width=\"1000\" role=\"img\">\n",
                                 static_cast<int>(shown.size()) * kRow + 4);
  int row = -1;
  for (const size_t i : shown) {
    row++;
    const Option& o = answer.options[i];
    const double width = o.step.total / worst * kWidth;
    text += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}, {}</text><rect class=\"bar{}\" x=\"{}\" "
        "y=\"{}\" "
        "width=\"{:.1f}\" height=\"{}\" rx=\"3\"/><text x=\"{:.1f}\" y=\"{}\">{} <tspan "
        "class=\"soft\">{:.1f}% MFU"
        "</tspan></text>\n",
        kLabel - 10, row * kRow + 16, escape(o.mesh.to_text()), escape(o.placement),
        i == answer.given ? " this" : "", kLabel, row * kRow + 3, width, kRow - 6,
        kLabel + width + 8, row * kRow + 16, duration_text(o.step.total), 100 * o.step.mfu);
  }
  return text + "</svg>";
}

// Days over GPUs, both logarithmic: three fabrics in the mesh's order, and the last of them
// reversed.
std::string curve_svg(std::span<const CurvePoint> points) {
  constexpr double kLeft = 70, kTop = 30, kWidth = 720, kHeight = 300, kApart = 50;
  double least = 0, most = 0;
  std::vector<const CurvePoint*> shown;
  const auto reversed_days = [](const CurvePoint::Fabric& f) {
    return f.cost.days_effective * f.reversed.total / f.step.total;
  };
  for (const CurvePoint& p : points)
    if (p.fits && !p.fabrics.empty()) {
      shown.push_back(&p);
      for (const CurvePoint::Fabric& f : p.fabrics) {
        if (least == 0 || f.cost.days_effective < least) least = f.cost.days_effective;
        most = std::max(most, reversed_days(f));
      }
    }
  if (shown.size() < 2) return "";
  const double log_least = std::floor(std::log10(least)), log_most = std::ceil(std::log10(most));
  const double log_first = std::log2(shown.front()->gpus), log_last = std::log2(shown.back()->gpus);
  const auto x = [&](int gpus) {
    return kLeft + (std::log2(gpus) - log_first) / (log_last - log_first) * kWidth;
  };
  const auto y = [&](double days) {
    return kTop + (log_most - std::log10(days)) / std::max(1.0, log_most - log_least) * kHeight;
  };
  std::string text = "<svg viewBox=\"0 0 1000 380\" width=\"1000\" role=\"img\">\n";
  for (double exponent = log_least; exponent <= log_most; exponent++) {
    const double days = std::pow(10, exponent);
    text += fmt::format(
        "<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text "
        "class=\"soft\" x=\"{}\" "
        "y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
        kLeft, kLeft + kWidth, y(days), y(days), kLeft - 8, y(days) + 4, days);
  }
  for (const CurvePoint* p : shown) {
    // of the last, which has its label in any case
    const double left = x(shown.back()->gpus) - x(p->gpus);
    if (p != shown.back() && left < kApart) continue;
    text +=
        fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                    x(p->gpus), kTop + kHeight + 20, p->gpus);
  }
  text += fmt::format(
      "<text class=\"soft\" x=\"{}\" y=\"{}\">GPUs</text><text class=\"soft\" x=\"8\" "
      "y=\"{}\">days</text>\n",
      kLeft + kWidth + 34, kTop + kHeight + 20, kTop - 14);
  const size_t fabrics = shown.back()->fabrics.size();
  for (size_t line = 0; line <= fabrics; line++) {
    std::string path;
    double end = 0;
    for (const CurvePoint* p : shown) {
      const CurvePoint::Fabric& f = p->fabrics[std::min(line, p->fabrics.size() - 1)];
      end = line == fabrics ? reversed_days(f) : f.cost.days_effective;
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x(p->gpus), y(end));
    }
    const double over = shown.back()->fabrics[std::min(line, fabrics - 1)].oversubscription;
    const double label = kTop + 40 + 22 * static_cast<double>(line);
    text += fmt::format(
        "<path class=\"line line{0}\" d=\"{1}\"/><line class=\"line line{0}\" x1=\"{2}\" "
        "x2=\"{3}\" "
        "y1=\"{4}\" "
        "y2=\"{4}\"/><text x=\"{5}\" y=\"{6}\">{7:.0f}:1{8}</text>\n",
        line == fabrics ? 3 : line, path, kLeft + kWidth + 20, kLeft + kWidth + 50, label,
        kLeft + kWidth + 58, label + 4, over, line == fabrics ? ", reversed order" : "");
  }
  return text + "</svg>";
}

std::string table(const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows) {
  std::string text = "<table><tr>";
  for (const std::string& cell : head) text += "<th>" + escape(cell) + "</th>";
  for (const std::vector<std::string>& row : rows) {
    text += "</tr>\n<tr>";
    for (const std::string& cell : row) text += "<td>" + escape(cell) + "</td>";
  }
  return text + "</tr></table>\n";
}

std::string calls_table(const Problem& problem, const Answer& answer) {
  std::vector<std::vector<std::string>> rows;
  for (const Call& call : answer.calls)
    rows.push_back(
        {fmt::format("{}: {} of {}", call.traffic.groups, call.traffic.collective, call.traffic.of),
         bytes_text(call.traffic.bytes), fmt::format("{:.0f}", call.traffic.times),
         duration_text(call.bound.seconds), tier_name(problem, call.bound),
         call.simulated_s > 0 ? duration_text(call.simulated_s) : "-",
         duration_text(call.predicted_s), call.traffic.hidden ? "beside computing" : "waited for"});
  return table({"call, all groups at once", "bytes", "a step", "bound", "binds", "simulated",
                "predicted", "how"},
               rows);
}

std::string curve_table(const Answer& answer) {
  std::vector<std::string> head = {"GPUs", "mesh", "MFU 1:1"};
  for (const char* of : {"days", "switches", "cables"})
    for (const double over : kOversubscriptions)
      head.push_back(fmt::format("{} {:.0f}:1", of, over));
  std::vector<std::vector<std::string>> rows;
  for (const CurvePoint& p : answer.curve) {
    if (!p.fits || p.fabrics.size() < std::size(kOversubscriptions)) continue;
    rows.push_back({fmt::format("{}", p.gpus), p.mesh.to_text(),
                    fmt::format("{:.1f}%", 100 * p.fabrics[0].step.mfu)});
    for (const auto& f : p.fabrics)
      rows.back().push_back(fmt::format("{:.1f}", f.cost.days_effective));
    for (const auto& f : p.fabrics) rows.back().push_back(fmt::format("{}", f.parts.switches));
    for (const auto& f : p.fabrics) rows.back().push_back(fmt::format("{}", f.parts.cables));
  }
  return table(head, rows);
}

// What shares links at the same time.
std::string phases_text(const Problem& problem, const Answer& answer) {
  std::string text;
  for (const Phase& phase : answer.phases)
    text +=
        fmt::format("<p class=\"note\">{} ({}) at once: {}: at least {}, which {} sets</p>\n",
                    escape(phase.name), duration_text(phase.seconds), escape(phase.calls),
                    duration_text(phase.bound.seconds), escape(tier_name(problem, phase.bound)));
  return text;
}

std::string section(const std::string& heading, const std::string& body) {
  return fmt::format("<section><h2>{}</h2>\n{}</section>\n", heading, body);
}

}  // namespace

std::string page_of(const Problem& problem, const Answer& answer) {
  const Job& job = problem.job;
  const Cost& cost = answer.cost;
  const std::string title =
      fmt::format("{} on {} GPUs of {}", job.model.name, job.mesh.gpus(), problem.fabric);
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>{0}</title>\n<style>{1}</style>\n<main>\n<h1>{0}</"
      "h1>\n<p "
      "class=\"note\">{2}, mesh {3}, "
      "sequences of {4}, {5} tokens a step. Predicted, not measured.{6}</p>\n",
      escape(title), kStyle, escape(job.gpu.full_name), escape(job.mesh.to_text()), job.sequence,
      count_text(job.tokens_per_step()),
      problem.assumed_tiers.empty()
          ? ""
          : " ASSUMED: the capacity of " + escape(problem.assumed_tiers) + ".");
  std::vector<std::pair<std::string, std::string>> figures = {
      {duration_text(answer.step.total), "a step"},
      {fmt::format("{:.1f}%", 100 * answer.step.mfu), "MFU, attention counted"},
      {count_text(answer.step.tokens_per_s), "tokens/s"},
      {fmt::format("{:.1f}", cost.days_effective),
       fmt::format("days; {:.1f} if nothing fails", cost.days)},
      {count_text(cost.gpu_hours), "GPU hours"},
      {count_text(cost.kwh), "kWh"}};
  if (cost.usd_gpus + cost.usd_staff > 0)
    figures.emplace_back("$" + count_text(cost.usd_gpus + cost.usd_staff),
                         cost.usd_staff <= 0  ? "GPUs"
                         : cost.usd_gpus <= 0 ? "staff"
                                              : "GPUs and staff");
  std::string body = "<div class=\"figures\">";
  for (const auto& [value, label] : figures)
    body += fmt::format("<div><b>{}</b><span>{}</span></div>", escape(value), escape(label));
  const double products = job.model.parameter_flops_per_token() * job.tokens;
  const double attention = job.model.attention_flops_per_token(job.sequence) * job.tokens;
  page += "<section>" + body + "</div>" +
          fmt::format(
              "<p class=\"note\">{} tokens: 6 N P {:.3g} FLOPs, causal attention {:.3g} "
              "more</p></section>\n",
              count_text(job.tokens), products, attention);
  page += section("Where a step goes", stacked(step_parts(answer.step), answer.step.total,
                                               duration_text(answer.step.total)));
  std::vector<Part> memory;
  for (const auto& [label, bytes] : answer.memory.parts())
    memory.push_back({label, bytes_text(bytes), bytes});
  const double total = answer.memory.total(), there = job.gpu.memory_bytes.value;
  page += section(fmt::format("Memory of a GPU of the busiest stage: {} of {}", bytes_text(total),
                              bytes_text(there)),
                  stacked(memory, there, bytes_text(there)));
  page += section("What communicates", calls_table(problem, answer) + phases_text(problem, answer));
  page += section("Orders of the mesh, innermost first, and placements", orders_svg(answer));
  if (!answer.curve.empty())
    page += section(
        "Other sizes, and the outermost tier oversubscribed",
        curve_svg(answer.curve) +
            "<p class=\"note\">Days with failures. Lines that lie on each other: uplinks do not "
            "bind there.</p>\n" +
            curve_table(answer));
  std::string sources;
  for (const Constant* c : job.constants.all())
    sources +=
        fmt::format("<p class=\"note\">{} {:.2f}: {}</p>\n", c->name, c->value, escape(c->source));
  std::set<std::string> figures_from;
  for (const Figure& figure : {job.gpu.bf16, job.gpu.memory_bytes, job.gpu.memory_bytes_per_s,
                               job.gpu.scale_up_bytes_per_s, job.gpu.server_watts})
    if (figure.known()) figures_from.insert(figure.source);
  for (const std::string& source : figures_from)
    sources += fmt::format("<p class=\"note\">{}: {}</p>\n", job.gpu.name, escape(source));
  return page + section("What the times rest on", sources) + "</main></html>\n";
}

}  // namespace sennit::forecast
