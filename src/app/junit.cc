#include "app/junit.h"

#include <fmt/format.h>

#include "app/compare_app.h"
#include "app/compare_text.h"
#include "app/culprit_text.h"
#include "app/json_rows.h"
#include "base/text.h"
#include "report/html_text.h"

namespace msprobe::app {
namespace {

constexpr size_t kMaxRows = 10;  // named per test

// Text of an XML attribute or element; control characters are made visible, XML has no others.
std::string Xml(std::string_view text) {
  std::string out;
  report::AppendMarkup(out, VisibleText(text));
  return out;
}

std::string Label(const std::string& step, const std::string& rank) {
  const std::string label = step.empty() || rank.empty() ? step + rank : step + "." + rank;
  return label.empty() ? "compare" : label;
}

// Rows of one kind in one entry.
struct Lines {
  uint64_t count = 0;
  std::string text;  // XML, a line each
  std::string first;
  void Add(const std::string& line) {
    if (count == 0) first = line;
    if (++count <= kMaxRows) text += line + "\n";
  }
  std::string Rest() const {
    return count > kMaxRows ? fmt::format("and {} more rows\n", count - kMaxRows) : "";
  }
};

std::string RowLine(const compare::Comparison& comparison, const compare::Row& row,
                    compare::Face face) {
  const std::string_view name = row.target != nullptr ? row.target->name : row.golden->name;
  if (row.uncompared) {
    return Xml(fmt::format("{}: {}", name, NotComparedReason(row, comparison.mode)));
  }
  const std::string message = ErrMessage(row, comparison.mode, face);
  if (!message.empty() && message != "[]") return Xml(fmt::format("{}: {}", name, message));
  return Xml(fmt::format("{}: {}", name, VerdictText(row, comparison.mode, face)));
}

// The search for the operator at fault as a test of its suite; empty when it was not made.
std::string CulpritTest(const std::string& label, const culprit::Report* report) {
  if (report == nullptr) return {};
  const std::string head = fmt::format("  <testcase classname=\"{}\" name=\"culprit\"", Xml(label));
  if (report->verdict == culprit::Verdict::kNotJudged) {
    return fmt::format("{}>\n   <skipped message=\"{}\"/>\n  </testcase>\n", head,
                       Xml(report->reason));
  }
  if (report->findings.empty()) return head + "/>\n";
  std::string lines;
  for (size_t i = 0; i < report->findings.size() && i < kMaxRows; ++i) {
    const culprit::Finding& f = report->findings[i];
    lines += Xml(fmt::format("{}: {}", culprit::KindName(f.kind), f.sentence)) + "\n";
  }
  lines += fmt::format("consequences: {}\n", report->consequences);
  if (const std::string loss = LossText(*report); !loss.empty()) lines += Xml(loss) + "\n";
  const culprit::Finding& first = report->findings.front();
  return fmt::format("{}>\n   <failure type=\"{}\" message=\"{}\">{}</failure>\n  </testcase>\n",
                     head, culprit::KindName(first.kind), Xml(first.sentence), lines);
}

}  // namespace

Result<std::unique_ptr<JunitReport>> JunitReport::Create(const std::string& path) {
  MSPROBE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  return std::unique_ptr<JunitReport>(new JunitReport(std::move(file)));
}

JunitReport::Suite JunitReport::SuiteOf(const RankJob& job, const compare::Comparison& comparison,
                                        compare::Face face) {
  Suite suite;
  const std::string label = Xml(Label(job.step, job.rank));
  const std::vector<std::string> names = comparison.entry_of_row();
  for (size_t begin = 0; begin < names.size();) {
    Lines errors, warnings, unmatched;
    size_t end = begin;
    for (; end < names.size() && names[end] == names[begin]; ++end) {
      const compare::Row& row = comparison.rows[end];
      const std::string_view verdict = NeutralVerdict(row, face);
      if (verdict == "error") errors.Add(RowLine(comparison, row, face));
      if (verdict == "warning") warnings.Add(RowLine(comparison, row, face));
      if (verdict == "unmatched") unmatched.Add(RowLine(comparison, row, face));
    }
    ++suite.count;
    suite.tests +=
        fmt::format("  <testcase classname=\"{}\" name=\"{}\"", label, Xml(names[begin]));
    std::string inner;
    if (errors.count > 0) {
      ++suite.failures;
      inner += fmt::format("   <failure type=\"error\" message=\"{}\">{}{}</failure>\n",
                           errors.first, errors.text, errors.Rest());
    } else if (unmatched.count == end - begin) {
      ++suite.skipped;
      inner += fmt::format("   <skipped message=\"{}\"/>\n", unmatched.first);
    }
    const std::string output = warnings.text + warnings.Rest() + unmatched.text + unmatched.Rest();
    if (!output.empty()) inner += fmt::format("   <system-out>{}</system-out>\n", output);
    suite.tests += inner.empty() ? "/>\n" : ">\n" + inner + "  </testcase>\n";
    begin = end;
  }
  return suite;
}

Status JunitReport::Finish(const CompareRun& run) {
  uint64_t tests = 0, failures = 0, skipped = 0, errors = 0;
  std::string body;
  const auto broken = [&](const std::string& label, const std::string& reason) {
    ++tests;
    ++errors;
    body += fmt::format(
        " <testsuite name=\"{0}\" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\">\n"
        "  <testcase classname=\"{0}\" name=\"compared\">\n   <error message=\"{1}\"/>\n"
        "  </testcase>\n </testsuite>\n",
        Xml(label), Xml(reason));
  };
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const RankOutcome& rank = run.ranks[i];
    const std::string label = Label(rank.job.step, rank.job.rank);
    if (rank.error) {
      broken(label, rank.error->ToString());
      continue;
    }
    const Suite& suite = suites_[i];
    const std::string culprit = CulpritTest(label, rank.culprit.get());
    const uint64_t searched = culprit.empty() ? 0 : 1;
    const uint64_t found = searched && !rank.culprit->findings.empty() ? 1 : 0;
    const uint64_t unjudged =
        searched && rank.culprit->verdict == culprit::Verdict::kNotJudged ? 1 : 0;
    tests += suite.count + searched;
    failures += suite.failures + found;
    skipped += suite.skipped + unjudged;
    body += fmt::format(
        " <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n{}{} "
        "</testsuite>\n",
        Xml(label), suite.count + searched, suite.failures + found, suite.skipped + unjudged,
        culprit, suite.tests);
  }
  for (const MissingPart& part : run.missing) broken(Label(part.step, part.rank), part.reason);
  MSPROBE_TRY(file_.Write(fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"msprobe compare\" "
      "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\">\n",
      tests, failures, errors, skipped, run.seconds)));
  MSPROBE_TRY(file_.Write(body));
  MSPROBE_TRY(file_.Write("</testsuites>\n"));
  return file_.Commit();
}

}  // namespace msprobe::app
