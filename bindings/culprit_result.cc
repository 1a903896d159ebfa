#include "bindings/culprit_result.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/module.h"

namespace msprobe::bindings {
namespace {

namespace nb = nanobind;

std::optional<std::string> TextOrNone(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

std::optional<double> Number(const culprit::Finding& f, std::string_view name) {
  for (const auto& [key, value] : f.numbers) {
    if (key == name) return value;
  }
  return std::nullopt;
}

nb::dict Numbers(const culprit::Finding& f) {
  nb::dict out;
  for (const auto& [key, value] : f.numbers) out[key.c_str()] = value;
  return out;
}

std::string Line(const PyCulprit& c) {
  return std::string(culprit::KindName(c.finding().kind)) + ": " + c.finding().sentence;
}

template <class Class>
void DefNumber(Class& c, const char* property, const char* key, const char* doc) {
  c.def_prop_ro(property, [key](const PyCulprit& p) { return Number(p.finding(), key); }, doc);
}

void BindCulprit(nb::module_& m) {
  nb::class_<PyCulprit> c(m, "Culprit",
                          "One finding of the search for the operator at fault (docs/culprit.md); "
                          "figures that its rule does not have are None.");
  c.def_prop_ro(
       "kind", [](const PyCulprit& p) { return culprit::KindName(p.finding().kind); },
       "argument, structure, introduced, accumulate, state, glue, wired or output.")
      .def_prop_ro(
          "entry", [](const PyCulprit& p) { return TextOrNone(p.finding().entry); },
          "Of the target; None: the golden run has a call more at the end.")
      .def_prop_ro(
          "golden_entry", [](const PyCulprit& p) { return TextOrNone(p.finding().golden_entry); },
          "Of the golden run; None: it makes no such call.")
      .def_prop_ro(
          "leaf", [](const PyCulprit& p) { return TextOrNone(p.finding().leaf); },
          "Which tensor of the entry, as \"output.0\"; None: the call itself.")
      .def_prop_ro(
          "rule", [](const PyCulprit& p) { return p.finding().rule; },
          "Number of the rule in docs/culprit.md.")
      .def_prop_ro(
          "code", [](const PyCulprit& p) { return TextOrNone(p.finding().code); },
          "Where the call stands, as file:line; None: no stack was recorded.")
      .def_prop_ro(
          "sentence", [](const PyCulprit& p) { return p.finding().sentence; },
          "What is wrong, in words.")
      .def_prop_ro(
          "count", [](const PyCulprit& p) { return p.finding().count; },
          "How often the same API shows the same.")
      .def_prop_ro(
          "consequences", [](const PyCulprit& p) { return p.report->consequences; },
          "How many entries deviate because of the first finding.")
      .def_prop_ro(
          "numbers", [](const PyCulprit& p) { return Numbers(p.finding()); },
          nb::sig("def numbers(self, /) -> dict[str, float]"), "All figures, as in the summary.");
  DefNumber(
      c, "score", "score",
      "Largest error of an element, in errors that rounding explains. Only replays have one.");
  DefNumber(c, "golden_score", "golden_score", "The same on the golden side.");
  DefNumber(
      c, "p_value", "p",
      "How likely a right call has such a score; a rank on devices that were not calibrated.");
  DefNumber(c, "introduced", "introduced", "Error that the call makes, relative to its result.");
  DefNumber(c, "inherited", "inherited", "Error that came in, relative to its result.");
  DefNumber(c, "amplification", "amplification", "How much the call enlarges what comes in.");
  DefNumber(c, "deviation", "deviation", "Distance to the golden run, relative. No replays.");
  DefNumber(c, "limit", "limit", "What the score or the deviation is measured against.");
  DefNumber(c, "loss_impact", "loss_impact", "Effect of its error on the loss.");
  c.def("__str__", &Line).def("__repr__", [](const PyCulprit& p) {
    return "<Culprit " + Line(p) + ">";
  });
}

nb::object LossImpact(const PySearch& s) {
  const culprit::LossImpact& loss = s.report->loss;
  if (!loss.known) return nb::none();
  nb::dict out;
  out["sum"] = loss.sum;
  out["difference"] = loss.difference;
  out["unexplained"] = loss.difference - loss.sum;
  return out;
}

std::vector<PyCulprit> Findings(const PySearch& s) {
  std::vector<PyCulprit> out;
  for (size_t i = 0; i < s.report->findings.size(); ++i) out.push_back({s.report, i});
  return out;
}

void BindSearch(nb::module_& m) {
  using S = PySearch;
  nb::class_<S>(m, "CulpritSearch", "What the search for the operator at fault says of two dumps.")
      .def_prop_ro(
          "verdict", [](const S& s) { return culprit::VerdictName(s.report->verdict); },
          "found, none or not_judged.")
      .def_prop_ro(
          "reason", [](const S& s) { return TextOrNone(s.report->reason); }, "Why not_judged.")
      .def_prop_ro(
          "mode", [](const S& s) { return culprit::ModeName(s.report->mode); },
          "What was judged by: tensor, sketch or statistics.")
      .def_prop_ro("findings", &Findings, "In order of execution; the first is the culprit.")
      .def_prop_ro(
          "consequences", [](const S& s) { return s.report->consequences; }, "Number of followers.")
      .def_prop_ro(
          "followers", [](const S& s) { return s.report->followers; },
          "Entries of the target that deviate because of a finding before them.")
      .def_prop_ro("judged", [](const S& s) { return s.report->judged; })
      .def_prop_ro(
          "replayed", [](const S& s) { return s.report->replayed; },
          "Entries that were computed again in float64.")
      .def_prop_ro(
          "not_replayed", [](const S& s) { return s.report->not_replayed; },
          "Entries that could not be, by reason.")
      .def_prop_ro(
          "discoveries", [](const S& s) { return s.report->discoveries; },
          "Replayed entries that are wrong at level q (Benjamini & Hochberg).")
      .def_prop_ro("q", [](const S& s) { return s.report->q; })
      .def_prop_ro(
          "calibrated", [](const S& s) { return s.report->calibration; },
          "Where the constants come from.")
      .def_prop_ro(
          "loss_impact", &LossImpact,
          nb::sig("def loss_impact(self, /) -> dict[str, float] | None"),
          "sum of all effects, recorded difference, unexplained rest; None: not asked for, "
          "or the loss is unknown.")
      .def_prop_ro("notes", [](const S& s) { return s.report->notes; })
      .def("__repr__", [](const S& s) {
        return "<CulpritSearch " + std::string(culprit::VerdictName(s.report->verdict)) + ", " +
               std::to_string(s.report->findings.size()) + " findings>";
      });
}

}  // namespace

void BindCulpritResult(nb::module_& m) {
  BindCulprit(m);
  BindSearch(m);
}

}  // namespace msprobe::bindings
