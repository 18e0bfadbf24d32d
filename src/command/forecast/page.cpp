// `sennit job --html`: one self-contained page: where a step and the memory go, what other orders
// and sizes cost.
#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include <fmt/core.h>

#include "base/text/page.hpp"
#include "command/forecast/job.hpp"

namespace sennit::forecast {
namespace {

constexpr const char* kStyle = R"css(
.figures { display:flex; flex-wrap:wrap; gap:12px 36px; } .figures b { display:block; font-size:22px; }
.figures span { color:var(--soft); }
table { font-size:13px; } th, td { padding:3px 12px 3px 0; text-align:right; white-space:nowrap; }
td:first-child, th:first-child { text-align:left; }
.part0 { fill:#2f6fb7; } .part1 { fill:#7aa6d8; } .part2 { fill:#b4cbe6; } .part3 { fill:#c8781e; }
.part4 { fill:#e3a55d; } .part5 { fill:#a33f3f; } .part6 { fill:#d38787; } .part7 { fill:#6d7f52; }
.part8 { fill:#8a97a8; }
)css";

struct Slice {
  std::string label, value;
  double amount = 0;
};

// One bar of parts on a scale that ends at `whole`, and what each of them is.
std::string stacked(const std::vector<Slice>& parts, double whole, const std::string& end) {
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
        "y=\"{4}\">{5} <tspan class=\"soft\">{6}</tspan></text>\n",
        i, column * 330, kBar + 32 + row * kRow, column * 330 + 20, kBar + 43 + row * kRow,
        escape(parts[i].label), escape(parts[i].value));
  }
  text += fmt::format(
      "<line class=\"axis\" x1=\"{0}\" x2=\"{0}\" y1=\"0\" y2=\"{1}\"/><text class=\"soft\" "
      "x=\"{0}\" y=\"{2}\" text-anchor=\"end\">{3}</text>\n",
      kWidth, kBar + 6, kBar + 18, escape(end));
  return text + "</svg>";
}

std::vector<Slice> step_parts(const StepTime& s) {
  const std::pair<const char*, double> all[] = {
      {"matrix products", s.matmul},      {"attention", s.attention},
      {"norms, gates", s.elementwise},    {"tensor parallel", s.tensor},
      {"context parallel", s.context},    {"pipeline bubble", s.bubble},
      {"pipeline transfers", s.pipeline}, {"data parallel, waited", s.data},
      {"optimizer", s.optimizer}};
  std::vector<Slice> parts;
  for (const auto& [label, seconds] : all)
    parts.push_back({label,
                     fmt::format("{} ({:.1f}%)", duration_text(seconds), 100 * seconds / s.total),
                     seconds});
  return parts;
}

std::string orders_svg(const Answer& answer) {
  constexpr double kLabels = 300, kWidth = 480, kPicture = 1000;
  constexpr size_t kMost = 16;
  const size_t all = answer.options.size();
  // evenly from the fastest to the slowest, and the one asked about
  std::set<size_t> shown = {answer.given};
  for (size_t i = 0; i < std::min(kMost, all); i++)
    shown.insert(all <= kMost ? i : i * (all - 1) / (kMost - 1));
  BarChart chart;
  chart.most = answer.options.back().step.total;
  chart.labels = kLabels;
  chart.width = kWidth;
  for (const size_t i : shown) {
    const Option& o = answer.options[i];
    chart.bars.push_back({o.mesh.to_text() + ", " + o.placement, duration_text(o.step.total),
                          fmt::format("{:.1f}% MFU", 100 * o.step.mfu),
                          i == answer.given ? "blue" : "", o.step.total});
  }
  return svg_picture(kPicture, chart.height() + 4, chart.draw());
}

// Days until done, of a fabric in the mesh's order, and reversed.
double reversed_days(const CurvePoint::Fabric& f) {
  return f.cost.days_effective * f.reversed.total / f.step.total;
}

// The axes of the points that are shown: GPUs by powers of two, days by powers of ten.
void set_axes(const std::vector<const CurvePoint*>& shown, LineChart* chart) {
  constexpr double kApart = 50;  // pixels between two labels
  double least = 0, most = 0;
  for (const CurvePoint* p : shown)
    for (const CurvePoint::Fabric& f : p->fabrics) {
      if (least == 0 || f.cost.days_effective < least) least = f.cost.days_effective;
      most = std::max(most, reversed_days(f));
    }
  const double first = std::floor(std::log10(least));
  const double last = std::max(first + 1, std::ceil(std::log10(most)));
  chart->y = {std::pow(10, first), std::pow(10, last), true, {}};
  for (double exponent = first; exponent <= last; exponent++)
    chart->y.ticks.emplace_back(std::pow(10, exponent),
                                fmt::format("{:g}", std::pow(10, exponent)));
  const double most_gpus = shown.back()->gpus;
  chart->x = {static_cast<double>(shown.front()->gpus), most_gpus, true, {}};
  for (const CurvePoint* p : shown)
    // The last has its label in any case.
    if (p == shown.back() || chart->x_of(most_gpus) - chart->x_of(p->gpus) >= kApart)
      chart->x.ticks.emplace_back(p->gpus, std::to_string(p->gpus));
}

// Days over GPUs, both logarithmic: three fabrics in the mesh's order, and the last of them
// reversed.
std::string curve_svg(std::span<const CurvePoint> points) {
  static constexpr const char* kStyles[] = {"blue", "green dotted", "orange dashed"};
  std::vector<const CurvePoint*> shown;
  for (const CurvePoint& p : points)
    if (p.fits && !p.fabrics.empty()) shown.push_back(&p);
  if (shown.size() < 2) return "";
  LineChart chart;
  chart.top = 30;
  chart.width = 720;
  chart.height = 300;
  set_axes(shown, &chart);
  const double right = chart.left + chart.width;
  const size_t fabrics = shown.back()->fabrics.size();
  std::string legend = fmt::format(
      "<text class=\"soft\" x=\"{}\" y=\"{}\">GPUs</text><text class=\"soft\" x=\"8\" "
      "y=\"{}\">days</text>\n",
      right + 34, chart.top + chart.height + 20, chart.top - 14);
  for (size_t i = 0; i <= fabrics; i++) {
    Line line;
    line.style = i == fabrics ? "red" : kStyles[std::min(i, std::size(kStyles) - 1)];
    for (const CurvePoint* p : shown) {
      const CurvePoint::Fabric& f = p->fabrics[std::min(i, p->fabrics.size() - 1)];
      line.points.emplace_back(p->gpus, i == fabrics ? reversed_days(f) : f.cost.days_effective);
    }
    const double over = shown.back()->fabrics[std::min(i, fabrics - 1)].oversubscription;
    const double y = chart.top + 40 + 22 * static_cast<double>(i);
    legend += fmt::format(
        "<path class=\"curve {0}\" d=\"M{1} {3} L{2} {3}\"/><text x=\"{4}\" y=\"{5}\">{6:.0f}:1"
        "{7}</text>\n",
        line.style, right + 20, right + 50, y, right + 58, y + 4, over,
        i == fabrics ? ", reversed order" : "");
    chart.lines.push_back(std::move(line));
  }
  return svg_picture(1000, chart.top + chart.height + 50, chart.draw() + legend);
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
  return html_table({"call, all groups at once", "bytes", "a step", "bound", "binds", "simulated",
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
    if (!p.fits || p.fabrics.empty()) continue;
    rows.push_back({fmt::format("{}", p.gpus), p.mesh.to_text(),
                    fmt::format("{:.1f}%", 100 * p.fabrics[0].step.mfu)});
    // Without tiers above the hosts there is the first alone.
    const auto columns = [&](auto value) {
      for (size_t i = 0; i < std::size(kOversubscriptions); i++)
        rows.back().push_back(i < p.fabrics.size() ? value(p.fabrics[i]) : "-");
    };
    columns(
        [](const CurvePoint::Fabric& f) { return fmt::format("{:.1f}", f.cost.days_effective); });
    columns([](const CurvePoint::Fabric& f) { return fmt::format("{}", f.parts.switches); });
    columns([](const CurvePoint::Fabric& f) { return fmt::format("{}", f.parts.cables); });
  }
  return html_table(head, rows);
}

// What shares links at the same time.
std::string phases_text(const Problem& problem, const Answer& answer) {
  std::string text;
  for (const Phase& phase : answer.phases)
    text += html_note(fmt::format(
        "{} ({}) at once: {}: at least {}, which {} sets", phase.name, duration_text(phase.seconds),
        phase.calls, duration_text(phase.bound.seconds), tier_name(problem, phase.bound)));
  return text;
}

std::string figures_section(const Problem& problem, const Answer& answer) {
  const Job& job = problem.job;
  const Cost& cost = answer.cost;
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
  body += "</div>";
  body += html_note(fmt::format("{} tokens: 6 N P {:.3g} FLOPs, causal attention {:.3g} more",
                                count_text(job.tokens),
                                job.model.parameter_flops_per_token() * job.tokens,
                                job.model.attention_flops_per_token(job.sequence) * job.tokens));
  return html_section("", body);
}

std::string memory_section(const Problem& problem, const Answer& answer) {
  std::vector<Slice> memory;
  for (const auto& [label, bytes] : answer.memory.parts())
    memory.push_back({label, bytes_text(bytes), bytes});
  const double total = answer.memory.total(), there = problem.job.gpu.memory_bytes.value;
  return html_section(fmt::format("Memory of a GPU of the busiest stage: {} of {}",
                                  bytes_text(total), bytes_text(there)),
                      stacked(memory, there, bytes_text(there)));
}

std::string sources_section(const Job& job) {
  std::string sources;
  for (const Constant* c : job.constants.all())
    sources += html_note(fmt::format("{} {:.2f}: {}", c->name, c->value, c->source));
  std::set<std::string> figures_from;
  for (const Figure& figure : {job.gpu.bf16, job.gpu.memory_bytes, job.gpu.memory_bytes_per_s,
                               job.gpu.scale_up_bytes_per_s, job.gpu.server_watts})
    if (figure.known()) figures_from.insert(figure.source);
  for (const std::string& source : figures_from)
    sources += html_note(fmt::format("{}: {}", job.gpu.name, source));
  return html_section("What the times rest on", sources);
}

}  // namespace

std::string page_of(const Problem& problem, const Answer& answer) {
  const Job& job = problem.job;
  const std::string lead = fmt::format(
      "{}, mesh {}, sequences of {}, {} tokens a step. Predicted, not measured.{}{}",
      job.gpu.full_name, job.mesh.to_text(), job.sequence, count_text(job.tokens_per_step()),
      problem.assumed_tiers.empty() ? ""
                                    : " ASSUMED: the capacity of " + problem.assumed_tiers + ".",
      problem.assumed_latencies.empty()
          ? ""
          : " ASSUMED: latencies that nobody declared: " + problem.assumed_latencies + ".");
  std::string body = figures_section(problem, answer);
  body += html_section("Where a step goes", stacked(step_parts(answer.step), answer.step.total,
                                                    duration_text(answer.step.total)));
  body += memory_section(problem, answer);
  body += html_section("What communicates",
                       answer.calls.empty()
                           ? html_note("One GPU: nothing is communicated.")
                           : calls_table(problem, answer) + phases_text(problem, answer));
  body += html_section("Orders of the mesh, innermost first, and placements", orders_svg(answer));
  if (!answer.curve.empty())
    body += html_section("Other sizes, and the outermost tier oversubscribed",
                         curve_svg(answer.curve) +
                             html_note("Days with failures. Lines that lie on each other: uplinks "
                                       "do not bind there.") +
                             curve_table(answer));
  body += sources_section(job);
  return html_page(
      fmt::format("{} on {} GPUs of {}", job.model.name, job.mesh.gpus(), problem.fabric),
      escape(lead), body, kStyle);
}

}  // namespace sennit::forecast
