// compare_report_{ts}.html: a comparison as one page to look at.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "app/compare_app.h"
#include "report/html_page.h"

namespace msprobe::app {

// Gathers the rows of every pair of ranks and writes the page at the end. The rows of a pair leave
// memory when they are added. A file keeps up to a million rows: beyond that every row that did not
// pass and one in so many of the others, and says so.
class CompareHtml {
 public:
  // `jobs`: pairs that will come. Errors: those of HtmlReport::Create.
  static Result<std::unique_ptr<CompareHtml>> Create(const std::string& path, size_t jobs);

  // What a pair of ranks gives to the page.
  struct Piece {
    report::HtmlPart part;                                 // without its block
    compare::State first_state = compare::State::kOutput;  // of the first bad row
    std::string table;
  };
  // `jobs`: pairs of the whole page. Errors: kCancelled.
  static Result<Piece> PieceOf(size_t jobs, const CompareOptions& options, const RankOutcome& rank,
                               const compare::Comparison& comparison, const CancelToken* cancel);
  // From any thread. `index`: place of the pair in CompareRun::ranks. A failure to write is kept
  // for Finish(): the tables on disk do not depend on the page.
  void Add(size_t index, Piece piece);
  // Everything but the rows; then the file appears.
  Status Finish(const CompareOptions& options, const CompareRun& run);
  const std::string& path() const { return path_; }
  size_t jobs() const { return parts_.size(); }

 private:
  CompareHtml(std::string path, size_t jobs, std::unique_ptr<report::HtmlReport> report);

  std::string path_;
  std::unique_ptr<report::HtmlReport> report_;
  std::vector<report::HtmlPart> parts_;
  std::vector<compare::State> first_state_;
  std::mutex mutex_;
  std::optional<Error> failure_;
};

}  // namespace msprobe::app
