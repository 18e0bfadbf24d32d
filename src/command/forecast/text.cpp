// What `sennit job` prints.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/core.h>

#include "command/forecast/job.hpp"

namespace sennit::forecast {
namespace {

std::string percent(double part, double of) {
  return of > 0 ? fmt::format("{:.1f}%", 100 * part / of) : "-";
}

std::string heading(const Problem& problem, const Answer& answer) {
  const Job& job = problem.job;
  const Model& m = job.model;
  std::string text = fmt::format("{} ({} parameters) on {} of {} GPUs of {}, {}\n", m.name,
                                 count_text(m.parameters()), job.mesh.gpus(), problem.tree.ranks(),
                                 problem.fabric, job.gpu.full_name);
  text += fmt::format(
      "mesh {}{}, sequences of {}, {} in each of {} data-parallel groups, microbatches of {}: {} "
      "tokens a step\n",
      job.mesh.to_text(), problem.mesh_chosen ? " (the fastest that fits)" : "", job.sequence,
      job.batch, job.mesh.size(Axis::data), job.microbatch, count_text(job.tokens_per_step()));
  const Stage stage = busiest_stage(job);
  text +=
      fmt::format("--zero {} --recompute {}; {}\n", job.zero, name(job.recompute),
                  job.mesh.size(Axis::pipeline) > 1
                      ? fmt::format("a pipeline stage has at most {} layers in {} chunk{}",
                                    stage.most_layers, stage.chunks, stage.chunks > 1 ? "s" : "")
                      : std::string("no pipeline"));
  if (!problem.assumed_tiers.empty())
    text += fmt::format(
        "ASSUMED: the fabric does not say the capacity of {}; every time below compares, and "
        "promises nothing\n",
        problem.assumed_tiers);
  if (!problem.assumed_latencies.empty())
    text += fmt::format("ASSUMED: latencies that the fabric does not declare: {}\n",
                        problem.assumed_latencies);
  const double attention = m.attention_flops_per_token(job.sequence),
               products = m.parameter_flops_per_token();
  text += fmt::format(
      "\noperations for {} tokens: 6 N P {:.3g}, causal attention {:.3g} (+{}), in all {:.3g} "
      "FLOPs\n",
      count_text(job.tokens), products * job.tokens, attention * job.tokens,
      percent(attention, products), (products + attention) * job.tokens);
  text += fmt::format(
      "step {}, {:.1f}% MFU ({:.0f} of {:.0f} TFLOP/s for each GPU, attention counted), {} "
      "tokens/s\n",
      duration_text(answer.step.total), 100 * answer.step.mfu,
      answer.step.mfu * job.gpu.bf16.value / 1e12, job.gpu.bf16.value / 1e12,
      count_text(answer.step.tokens_per_s));
  return text;
}

std::string step_text(const Answer& answer) {
  const StepTime& s = answer.step;
  std::string text = fmt::format("\n{:<24} {:>10} {:>8}\n", "where a step goes", "time", "of it");
  const auto row = [&](const char* part, double seconds, const std::string& note) {
    if (seconds <= 0) return;
    const std::string bar(static_cast<size_t>(std::lround(30 * seconds / s.total)), '#');
    text += fmt::format("  {:<22} {:>10} {:>8}{}{}{}\n", part, duration_text(seconds),
                        percent(seconds, s.total), bar.empty() && note.empty() ? "" : "  ",
                        bar + (bar.empty() || note.empty() ? "" : "  "), note);
  };
  row("matrix products", s.matmul, "");
  row("attention", s.attention, "");
  row("norms, gates", s.elementwise, "");
  row("tensor parallel", s.tensor, "");
  row("context parallel", s.context, "");
  row("pipeline bubble", s.bubble, "");
  row("pipeline transfers", s.pipeline, "");
  row("data parallel", s.data,
      fmt::format("another {} of it is hidden", duration_text(s.data_hidden)));
  row("optimizer", s.optimizer, "");
  return text;
}

std::string memory_text(const Problem& problem, const Answer& answer) {
  const double total = answer.memory.total(), there = problem.job.gpu.memory_bytes.value;
  std::string text = std::string("\nmemory of a GPU of the busiest stage\n");
  for (const auto& [part, bytes] : answer.memory.parts())
    text += fmt::format("  {:<28} {:>10}{}\n", part, bytes_text(bytes),
                        part[0] == 'a'
                            ? fmt::format("  {} layers' in flight", answer.memory.layers_in_flight)
                            : "");
  return text + fmt::format("  {:<28} {:>10}  {} of {}\n", "all", bytes_text(total),
                            percent(total, there), bytes_text(there));
}

std::string groups_text(const Problem& problem, const Answer& answer) {
  if (answer.dimensions.empty()) return "\none GPU: nothing is communicated\n";
  std::string text = fmt::format("\n{:<10} {:>7} {:>8}  members of one are spread over\n", "groups",
                                 "number", "members");
  for (const Dimension& d : answer.dimensions) {
    std::string spread;
    for (const Spread& s : d.spread) {
      const std::string& tier = problem.tree.tiers[static_cast<size_t>(s.tier)].name;
      spread += fmt::format("{}{}{} {}{}", spread.empty() ? "" : ", ", s.least,
                            s.most > s.least ? fmt::format(" to {}", s.most) : "", tier,
                            s.most > 1 ? "s" : "");
    }
    text += fmt::format("{:<10} {:>7} {:>8}  {}\n", d.name, d.groups, d.members,
                        spread.empty() ? "the one host" : spread);
  }
  return text;
}

std::string tiers_text(const Problem& problem, const SetBound& bound, double of) {
  std::string text;
  for (size_t t = 0; t < bound.tier_seconds.size(); t++)
    if (bound.tier_seconds[t] > 0)
      text += fmt::format("{}{} at {} ({})", text.empty() ? "" : ", ",
                          duration_text(bound.tier_seconds[t]), problem.tree.tiers[t].name,
                          percent(bound.tier_seconds[t], of));
  return text;
}

std::string calls_text(const Problem& problem, const Answer& answer) {
  if (answer.calls.empty()) return "";
  std::string text = fmt::format(
      "\n{:<8} {:<14} {:<18} {:>8} {:>8} {:>9} {:>6} {:>9} {:>9} {:>9}\n", "groups", "collective",
      "of", "bytes", "x a step", "bound", "binds", "simulated", "predicted", "a step");
  for (const Call& call : answer.calls)
    text += fmt::format("{:<8} {:<14} {:<18} {:>8} {:>8.0f} {:>9} {:>6} {:>9} {:>9} {:>9}  {}\n",
                        call.traffic.groups, call.traffic.collective, call.traffic.of,
                        bytes_text(call.traffic.bytes), call.traffic.times,
                        duration_text(call.bound.seconds), tier_name(problem, call.bound),
                        call.simulated_s > 0 ? duration_text(call.simulated_s) : "-",
                        duration_text(call.predicted_s),
                        duration_text(call.predicted_s * call.traffic.times),
                        call.traffic.hidden ? "beside computing" : "waited for");
  text += fmt::format(
      "All groups of a kind at once, which share the uplinks. Simulated: sennit's schedules, {} in "
      "flight to a peer; predicted: the bound at the rates that are reached, and latency.\n",
      bytes_text(kInFlightBytes));
  if (std::any_of(answer.calls.begin(), answer.calls.end(),
                  [](const Call& call) { return call.simulated_s == 0; }))
    text += "-: large groups are simulated with --simulate, which can take minutes\n";
  text += "\nwhat runs at once and shares links, and the least that it takes (of that stretch)\n";
  for (const Phase& phase : answer.phases) {
    text += fmt::format("  {} ({}): {}\n", phase.name, duration_text(phase.seconds), phase.calls);
    text += fmt::format("    at least {}\n", tiers_text(problem, phase.bound, phase.seconds));
  }
  return text + fmt::format("  all of a step: at least {}\n",
                            tiers_text(problem, answer.all_calls, answer.step.total));
}

// Orders from the fastest; two placements that make no difference are one row.
std::string options_text(const Problem& problem, const Answer& answer) {
  constexpr size_t kMostRows = 12;
  struct Row {
    const Option* option;
    std::string placement;
    bool given;
  };
  std::vector<Row> rows;
  for (size_t i = 0; i < answer.options.size(); i++) {
    const Option& o = answer.options[i];
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.option->mesh == o.mesh && o.step.total <= 1.001 * row.option->step.total;
    });
    if (same == rows.end()) {
      rows.push_back({&o, o.placement, i == answer.given});
    } else {
      same->placement = "any";
      same->given = same->given || i == answer.given;
    }
  }
  std::string text = fmt::format("\n{:<24} {:<9} {:>9} {:>6} {:>6} {:>7} {:>9} {:>9} {:>9} {:>9}\n",
                                 "order, innermost first", "placement", "step", "MFU", "x best",
                                 "days", "waits: tp", "cp", "pp", "dp");
  for (size_t i = 0; i < rows.size(); i++) {
    const StepTime& step = rows[i].option->step;
    if (rows.size() > kMostRows && i >= kMostRows / 2 && i + kMostRows / 2 < rows.size() &&
        !rows[i].given)
      continue;
    const auto wait = [](double seconds) { return seconds > 0 ? duration_text(seconds) : "-"; };
    text += fmt::format(
        "{:<24} {:<9} {:>9} {:>5.1f}% {:>6.2f} {:>7.1f} {:>9} {:>9} {:>9} {:>9}{}\n",
        rows[i].option->mesh.to_text(), rows[i].placement, duration_text(step.total),
        100 * step.mfu, step.total / rows.front().option->step.total,
        answer.cost.steps * step.total / kSecondsPerDay, wait(step.tensor), wait(step.context),
        wait(step.pipeline), wait(step.data), rows[i].given ? "  this one" : "");
  }
  if (rows.size() > kMostRows)
    text += fmt::format("({} in all; those between are left out)\n", rows.size());
  if (answer.faster)
    text += fmt::format("faster by this model, and fits: --mesh {} --batch {}{}: {}, {:.1f}% MFU\n",
                        answer.faster->mesh.to_text(), answer.faster->batch,
                        without_interleave(problem.job), duration_text(answer.faster_step.total),
                        100 * answer.faster_step.mfu);
  return text;
}

std::string cost_text(const Problem& problem, const Answer& answer) {
  const Cost& c = answer.cost;
  const Operation& o = problem.operation;
  std::string text = fmt::format(
      "\n{:.0f} steps: {:.1f} days if nothing fails, {:.1f} days with failures ({:.1f}% "
      "effective)\n",
      c.steps, c.days, c.days_effective, 100 * c.effective);
  text += fmt::format(
      "  an interruption every {}, {:.0f} in all; {} to restart; a checkpoint of {} every {}, "
      "written in {}\n",
      duration_text(c.mtbf_s), c.interruptions, duration_text(o.restart_s),
      bytes_text(c.checkpoint_bytes), duration_text(c.interval_s), duration_text(c.checkpoint_s));
  text += fmt::format("  {} GPU hours\n", count_text(c.gpu_hours));
  text += fmt::format(
      "  {} kWh: {:.0f} W for each GPU{}, PUE {:.2f}\n", count_text(c.kwh), c.watts_per_gpu,
      c.chip_only ? " (the accelerator alone; --power says the server's share)" : "", o.pue);
  if (o.usd_per_gpu_hour > 0)
    text += fmt::format("  ${} for GPUs at ${:.2f} an hour\n", count_text(c.usd_gpus),
                        o.usd_per_gpu_hour);
  else
    text += fmt::format("  ${} for every $1 that a GPU hour costs (--gpu-hour-usd)\n",
                        count_text(c.gpu_hours));
  if (o.people > 0)
    text += fmt::format("  ${} for {:.0f} people at ${} a year, while it runs\n",
                        count_text(c.usd_staff), o.people, count_text(o.usd_per_person_year));
  return text;
}

// Why a fabric shows in MFU or does not: what of the data-parallel transfers is waited for.
std::string transfers_text(const Problem& problem, const Answer& answer) {
  std::string text;
  for (const CurvePoint& p : answer.curve) {
    if (p.gpus != problem.job.mesh.gpus() || !p.fits) continue;
    const auto transfers = [](const CurvePoint::Fabric& f) {
      return f.step.data + f.step.data_hidden;
    };
    const CurvePoint::Fabric &first = p.fabrics.front(), &last = p.fabrics.back();
    text += fmt::format(
        "on {} GPUs data-parallel transfers take {} a step at {:.0f}:1, of which {} are not behind "
        "computation",
        p.gpus, duration_text(transfers(first)), first.oversubscription,
        duration_text(first.step.data));
    if (p.fabrics.size() == 1)
      text += "; there is no tier above the hosts to oversubscribe";
    else if (transfers(last) < 1.01 * transfers(first))
      text += fmt::format("; no more at {:.0f}:1: tiered, they wait for NICs, not for uplinks",
                          last.oversubscription);
    else
      text += fmt::format("; at {:.0f}:1 {} and {}", last.oversubscription,
                          duration_text(transfers(last)), duration_text(last.step.data));
    text += "\n";
  }
  return text;
}

std::string curve_text(const Problem& problem, const Answer& answer) {
  if (answer.curve.empty()) return "";
  std::string text = fmt::format(
      "\nother sizes: about {} tokens a step, the outermost tier oversubscribed 1:1, 3:1 and "
      "7:1; days with failures; switches of {} ports at a NIC's rate\n",
      count_text(problem.job.tokens_per_step()), problem.switch_ports);
  constexpr int kWidths[] = {6, 7, 6, 7};
  text += fmt::format("{:>46} | {:^20} | {:^23} | {:^20} | {:^23} |\n", "", "MFU", "days",
                      "switches", "cables");
  text += fmt::format("{:>7}  {:<20} {:>6} {:>9} |", "GPUs", "mesh", "batch", "tokens");
  for (const int width : kWidths)
    text += fmt::format(" {:>{}} {:>{}} {:>{}} |", "1:1", width, "3:1", width, "7:1", width);
  text += " reversed order\n";
  for (const CurvePoint& p : answer.curve) {
    if (!p.fits) {
      text += fmt::format("{:>7}  no mesh fits\n", p.gpus);
      continue;
    }
    text += fmt::format("{:>7}  {:<20} {:>6} {:>9} |", p.gpus, p.mesh.to_text(), p.batch,
                        fmt::format("{:.1f} M", p.tokens_per_step / 1e6));
    const auto column = [&](int width, auto value) {
      for (size_t i = 0; i < std::size(kOversubscriptions); i++)
        text += i < p.fabrics.size() ? fmt::format(" {:>{}}", value(p.fabrics[i]), width)
                                     : fmt::format(" {:>{}}", "-", width);
      text += " |";
    };
    column(kWidths[0],
           [](const CurvePoint::Fabric& f) { return fmt::format("{:.1f}%", 100 * f.step.mfu); });
    column(kWidths[1], [](const CurvePoint::Fabric& f) {
      return fmt::format("{:.1f}", f.cost.days_effective);
    });
    column(kWidths[2], [](const CurvePoint::Fabric& f) { return f.parts.switches; });
    column(kWidths[3], [](const CurvePoint::Fabric& f) { return f.parts.cables; });
    const CurvePoint::Fabric& last = p.fabrics.back();
    text += fmt::format(" {:.2f} x at {:.0f}:1\n", last.reversed.total / last.step.total,
                        last.oversubscription);
  }
  return text + transfers_text(problem, answer);
}

std::string constants_text(const Job& job) {
  std::string text = "\nwhat the times rest on\n";
  for (const Constant* c : job.constants.all())
    text += fmt::format("  {:<10} {:.2f}  {}\n", c->name, c->value, c->source);
  std::set<std::string> sources;
  for (const Figure& figure : {job.gpu.bf16, job.gpu.memory_bytes, job.gpu.memory_bytes_per_s,
                               job.gpu.scale_up_bytes_per_s, job.gpu.server_watts})
    if (figure.known()) sources.insert(figure.source);
  for (const std::string& source : sources) text += fmt::format("  {}: {}\n", job.gpu.name, source);
  return text;
}

}  // namespace

std::string tier_name(const Problem& problem, const SetBound& bound) {
  if (bound.group < 0) return "-";
  return problem.tree.tiers[problem.tree.groups[static_cast<size_t>(bound.group)].tier].name;
}

std::string duration_text(double seconds) {
  if (seconds <= 0) return "0";
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 10 * kSecondsPerMinute) return fmt::format("{:.3g} s", seconds);
  if (seconds < 2 * kSecondsPerHour) return fmt::format("{:.3g} min", seconds / kSecondsPerMinute);
  if (seconds < 100 * kSecondsPerHour) return fmt::format("{:.3g} h", seconds / kSecondsPerHour);
  return fmt::format("{:.3g} days", seconds / kSecondsPerDay);
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    unit++;
  }
  return fmt::format("{:.3g} {}", bytes, units[unit]);
}

std::string count_text(double count) {
  const char* const units[] = {"", " K", " M", " B", " T"};
  size_t unit = 0;
  while (count >= 1000 && unit + 1 < std::size(units)) {
    count /= 1000;
    unit++;
  }
  return fmt::format("{:.4g}{}", count, units[unit]);
}

std::string text_of(const Problem& problem, const Answer& answer) {
  return heading(problem, answer) + step_text(answer) + memory_text(problem, answer) +
         groups_text(problem, answer) + calls_text(problem, answer) +
         options_text(problem, answer) + cost_text(problem, answer) + curve_text(problem, answer) +
         constants_text(problem.job);
}

}  // namespace sennit::forecast
