// What a difference looks like on a terminal and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "app/diff_app.h"
#include "base/text.h"
#include "json/json.h"

namespace msprobe::app {

namespace {

constexpr size_t kBar = 40;

std::string Bar(double share) {
  const auto n = static_cast<size_t>(std::lround(share * static_cast<double>(kBar)));
  return std::string(share > 0 ? std::max<size_t>(n, 1) : 0, '#');
}

std::string PlaceText(const DiffPlace& p, const Shape& shape) {
  return fmt::format("  {:<18} {:>14.7g} {:>14.7g}   off by {:.3g}\n", IndexText(p.index, shape),
                     p.target, p.golden, p.difference);
}

std::string HistogramText(const TensorDiff& d) {
  int64_t most = d.elements - d.different;
  for (const auto& [decade, count] : d.decades) most = std::max(most, count);
  const auto line = [&](const std::string& label, int64_t count) {
    return fmt::format(
        "  {:<8} {:>12} {}\n", label, count,
        Bar(static_cast<double>(count) / static_cast<double>(std::max<int64_t>(most, 1))));
  };
  std::string out = "How large the differences are (elements per power of ten):\n";
  out += line("none", d.elements - d.different);
  // More than a dozen lines say no more than a dozen.
  constexpr int kMostLines = 12;
  if (!d.decades.empty()) {
    const int top = d.decades.rbegin()->first;
    int64_t below = 0;
    for (const auto& [decade, count] : d.decades) {
      if (decade <= top - kMostLines) below += count;
    }
    if (below > 0) out += line(fmt::format("<1e{:+03d}", top - kMostLines + 1), below);
    for (int e = std::max(top - kMostLines + 1, d.decades.begin()->first); e <= top; ++e) {
      const auto it = d.decades.find(e);
      out += line(fmt::format("1e{:+03d}", e), it == d.decades.end() ? 0 : it->second);
    }
  }
  if (d.class_differs > 0) out += line("NaN, inf", d.class_differs);
  return out;
}

std::string AxisText(const TensorDiff& d, int axis) {
  constexpr size_t kMostLines = 6;
  const std::vector<double>& shares = d.shares[static_cast<size_t>(axis)];
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t shown = std::min(kMostLines, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<ptrdiff_t>(shown), order.end(),
      [&](size_t a, size_t b) { return shares[a] != shares[b] ? shares[a] > shares[b] : a < b; });
  std::string out = fmt::format(
      "Share of the squared difference by index of axis {} ({} indexes):\n", axis, shares.size());
  for (size_t i = 0; i < shown; ++i) {
    const double share = shares[order[i]];
    if (share <= 0) break;
    out += fmt::format("  {:<8} {:>10.2f} % {}\n", order[i], 100 * share, Bar(share));
  }
  return out;
}

std::string TensorText(const DiffOptions& options, const DiffItem& item) {
  const TensorDiff& d = *item.tensors;
  std::string out =
      fmt::format("{}: {} {} against {}\n", VisibleText(item.name), ShortName(d.target_dtype),
                  ShapeText(d.shape), ShortName(d.golden_dtype));
  if (d.different == 0) return out + fmt::format("No difference in {} elements.\n", d.elements);
  out += fmt::format("Different: {} of {} elements ({:.3g} %)", d.different, d.elements,
                     100.0 * static_cast<double>(d.different) / static_cast<double>(d.elements));
  if (d.class_differs > 0) out += fmt::format(", NaN or infinity on one side: {}", d.class_differs);
  out += fmt::format("\nRelative L2 error {:.3g}, cosine {:.9g}, mean difference {:.3g}\n",
                     d.relative_l2, d.cosine, d.bias);
  out += "First differences (index, target, golden):\n";
  for (const DiffPlace& p : d.first) out += PlaceText(p, d.shape);
  out += "Largest differences:\n";
  for (const DiffPlace& p : d.worst) out += PlaceText(p, d.shape);
  out += HistogramText(d);
  const int axis = options.axis.value_or(SharpestAxis(d));
  const bool there = axis >= 0 && static_cast<size_t>(axis) < d.shares.size() &&
                     !d.shares[static_cast<size_t>(axis)].empty();
  return there ? out + AxisText(d, axis) : out;
}

std::string FiguresText(const DiffItem& item) {
  std::string out = VisibleText(item.name) + "\n";
  for (size_t i = 0; i < kDiffFigures.size(); ++i) {
    if (item.target[i].empty() && item.golden[i].empty()) continue;
    out += fmt::format("  {:<10} {:<24} {:<24}{}\n", kDiffFigures[i], VisibleText(item.target[i]),
                       VisibleText(item.golden[i]),
                       item.target[i] == item.golden[i] ? "" : " differs");
  }
  if (!item.problem.empty()) out += "  not compared: " + item.problem + "\n";
  return out;
}

std::string ItemLine(const DiffItem& item) {
  if (item.tensors) {
    const TensorDiff& d = *item.tensors;
    return fmt::format("  {}: {} of {} elements differ, relative L2 error {:.3g}\n",
                       VisibleText(item.name), d.different, d.elements, d.relative_l2);
  }
  if (!item.problem.empty())
    return fmt::format("  {}: not compared: {}\n", VisibleText(item.name), item.problem);
  return fmt::format("  {}: {}\n", VisibleText(item.name),
                     item.target == item.golden ? "equal" : "differs");
}

void WritePlaces(json::Writer& w, std::string_view key, const std::vector<DiffPlace>& places,
                 const Shape& shape) {
  const auto number = [&](double v) {
    if (std::isfinite(v)) {
      w.Double(v);
    } else {
      w.String(PyFloatRepr(v));
    }
  };
  w.Key(key).StartArray();
  for (const DiffPlace& p : places) {
    w.StartObject();
    w.Key("index").Raw(IndexText(p.index, shape));
    w.Key("target");
    number(p.target);
    w.Key("golden");
    number(p.golden);
    w.EndObject();
  }
  w.EndArray();
}

void WriteTensors(json::Writer& w, const TensorDiff& d) {
  const auto number = [&](std::string_view key, double v) {
    w.Key(key);
    if (std::isfinite(v)) {
      w.Double(v);
    } else {
      w.String(PyFloatRepr(v));
    }
  };
  w.StartObject();
  w.Key("shape").Raw(ShapeText(d.shape));
  w.Key("target_dtype").String(ShortName(d.target_dtype));
  w.Key("golden_dtype").String(ShortName(d.golden_dtype));
  w.Key("elements").Int(d.elements);
  w.Key("different").Int(d.different);
  w.Key("class_differs").Int(d.class_differs);
  number("relative_l2", d.relative_l2);
  number("cosine", d.cosine);
  number("mean_difference", d.bias);
  WritePlaces(w, "first", d.first, d.shape);
  WritePlaces(w, "worst", d.worst, d.shape);
  w.Key("decades").StartObject();
  for (const auto& [decade, count] : d.decades) w.Key(std::to_string(decade)).Int(count);
  w.EndObject();
  w.Key("axes").StartArray();
  for (const std::vector<double>& axis : d.shares) {
    w.StartArray();
    for (const double s : axis) w.Double(s);
    w.EndArray();
  }
  w.EndArray();
  w.EndObject();
}

void WriteFigures(json::Writer& w, std::string_view key, const std::vector<std::string>& values) {
  w.Key(key).StartObject();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].empty()) w.Key(kDiffFigures[i]).String(values[i]);
  }
  w.EndObject();
}

}  // namespace

std::string DiffText(const DiffOptions& options, const DiffRun& run) {
  constexpr size_t kMostLines = 30;
  const DiffItem* worst = WorstItem(run);
  std::string out;
  if (run.items.size() > 1) {
    for (size_t i = 0; i < std::min(run.items.size(), kMostLines); ++i)
      out += ItemLine(run.items[i]);
    if (run.items.size() > kMostLines) {
      out += fmt::format("  and {} more\n", run.items.size() - kMostLines);
    }
  }
  for (const std::string& n : run.only_target)
    out += "  only in the target: " + VisibleText(n) + "\n";
  for (const std::string& n : run.only_golden)
    out += "  only in the golden dump: " + VisibleText(n) + "\n";
  if (worst == nullptr) return out;
  if (!out.empty()) out += "\n";
  return out + (worst->tensors ? TensorText(options, *worst) : FiguresText(*worst));
}

std::string DiffJson(const DiffOptions& options, const DiffRun& run) {
  std::string out;
  json::Writer w(out, 1);
  w.StartObject();
  w.Key("format_version").Int(1);
  w.Key("target").String(options.target);
  w.Key("golden").String(options.golden);
  w.Key("items").StartArray();
  for (const DiffItem& item : run.items) {
    w.StartObject();
    w.Key("name").String(item.name);
    if (!item.target.empty()) {
      WriteFigures(w, "target", item.target);
      WriteFigures(w, "golden", item.golden);
    }
    if (!item.problem.empty()) w.Key("problem").String(item.problem);
    if (item.tensors) {
      w.Key("tensors");
      WriteTensors(w, *item.tensors);
    }
    w.EndObject();
  }
  w.EndArray();
  for (const auto& [key, list] :
       {std::pair("only_target", &run.only_target), {"only_golden", &run.only_golden}}) {
    w.Key(key).StartArray();
    for (const std::string& n : *list) w.String(n);
    w.EndArray();
  }
  w.EndObject();
  return out + "\n";
}

}  // namespace msprobe::app
