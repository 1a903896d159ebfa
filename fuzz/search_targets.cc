// Files of the search for the culprit and of joined ranks, and results of workers.
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "app/compare_fields.h"
#include "app/difference_part.h"
#include "app/item_stream.h"
#include "app/layout_ways.h"
#include "app/wire.h"
#include "base/file.h"
#include "config/layout_config.h"
#include "culprit/collectives.h"
#include "culprit/culprit.h"
#include "culprit/floor.h"
#include "fuzz/target.h"

namespace msprobe::fuzz {
namespace {

// The ranks of one small tensor, joined in all ways that the first rule leaves open.
void JoinAll(const config::Mesh& mesh, const config::Layout& layout) {
  int64_t ranks = 1;
  for (const auto& [name, size] : mesh) {
    if ((ranks *= size) > 64) return;
  }
  std::vector<config::Held> rule(mesh.size());
  for (size_t d = 0; d < mesh.size() && !layout.rules.empty(); ++d) {
    for (const auto& [name, held] : layout.rules.front().held) {
      if (name == mesh[d].first) rule[d] = held;
    }
  }
  const std::vector<app::Recorded> parts(
      static_cast<size_t>(ranks), {.shape = {2, 3}, .max = 2, .min = -1, .mean = 0.5, .norm = {}});
  for (const app::Way& way : app::WaysOf(parts, mesh, rule)) {
    for (const int64_t n : way.whole.shape) Check(n >= 0, "a whole of a negative size");
    Check(!way.whole.max || *way.whole.max == 2, "a maximum that no rank has");
  }
}

void Layout(Bytes input) {
  const auto layout = config::ReadLayout(AsFile("layout.yaml", input));
  if (!layout.ok()) return;
  Check(layout->target.size() == layout->golden.size(), "sides of different dimensions");
  JoinAll(layout->target, *layout);
  JoinAll(layout->golden, *layout);
}

void Floor(Bytes input) {
  const auto model = culprit::ReadFloor(AsFile("floor.json", input), culprit::ScoreModel());
  if (!model.ok()) return;
  const std::string written = culprit::FloorJson(*model, {"run"});
  const auto again = culprit::ReadFloor(AsFile("floor.json", AsBytes(written)), {});
  Check(again.ok(), "constants that were written cannot be read");
  Check(culprit::FloorJson(*again, {"run"}) == written, "constants changed on their way");
}

// Two dumps, cut at the first 0xFF (which no UTF-8 has); without one, the same twice.
void Search(Bytes input) {
  const std::string_view text = AsText(input);
  const size_t cut = text.find('\xff');
  const std::string_view second = cut == std::string_view::npos ? text : text.substr(cut + 1);
  const std::string target = AsFile("dump.json", AsBytes(text.substr(0, cut)));
  const std::string golden = AsFile("golden.json", AsBytes(second));
  const auto report = culprit::FindCulprit({.target_json = target, .golden_json = golden}, {});
  if (report.ok()) {
    Check(report->verdict != culprit::Verdict::kFound || !report->findings.empty(),
          "found, but nothing");
    Check(!std::isnan(report->front), "a front that is no number");
  }
  (void)culprit::FindInOneDump({.target_json = target, .golden_json = {}}, {});
  const culprit::RankDump ranks[] = {{0, target}, {1, golden}};
  for (const bool known : {false, true}) {
    for (const auto& scores : culprit::JudgeCollectives(ranks, known)) {
      for (const auto& [entry, score] : scores) {
        Check(!score.judged() || score.deviation >= 0, "a deviation that is no number");
      }
    }
  }
}

// What is read from bytes is written and read the same.
template <class T>
void Back(std::string_view bytes) {
  std::optional<T> value = app::Unpacked<T>(bytes);
  if (!value) return;
  const std::string once = app::Packed(*value);
  std::optional<T> again = app::Unpacked<T>(once);
  Check(again.has_value(), "data of a worker was written that cannot be read");
  Check(app::Packed(*again) == once, "data of a worker changed on its way");
}

class Counter final : public app::ResultReader::Taker {
 public:
  Result<std::vector<app::BlobHead>> Head(std::string_view head) override {
    auto blobs = app::Unpacked<std::vector<app::BlobHead>>(head);
    if (!blobs) return Error(ErrorCode::kMalformed, "no heads");
    for (const app::BlobHead& blob : *blobs) due += blob.size;
    return *blobs;
  }
  Status Blob(const app::BlobHead&, std::string_view bytes) override {
    got += bytes.size();
    return {};
  }
  uint64_t due = 0, got = 0;
};

void Stream(std::string_view bytes) {
  Counter whole, pieces;
  app::ResultReader at_once(whole), in_pieces(pieces);
  const bool ok = at_once.Add(bytes).ok() && at_once.Finish().ok();
  bool same = true;
  for (size_t i = 0; i < bytes.size() && same; i += 5) {
    same = in_pieces.Add(bytes.substr(i, 5)).ok();
  }
  same = same && in_pieces.Finish().ok();
  Check(ok == same, "a result in pieces is another one");
  Check(!ok || (whole.got == whole.due && pieces.got == whole.got), "bytes of a result were lost");
}

void Wire(Bytes input) {
  if (input.empty()) return;
  const std::string_view bytes = AsText(input.subspan(1));
  constexpr void (*kKinds[])(std::string_view) = {
      Stream,
      Back<app::DifferenceHead>,
      Back<culprit::Report>,
      Back<Error>,
      Back<app::RankRows>,
      Back<app::RankFiles>,
      Back<app::RankJob>,
      Back<compare::OverflowRank>,
      Back<app::CompareHtml::Piece>,
      Back<app::JunitReport::Suite>,
      Back<std::vector<app::Message>>,
      Back<std::vector<app::BlobHead>>,
  };
  kKinds[std::to_integer<size_t>(input[0]) % std::size(kKinds)](bytes);
}

constexpr Target kTargets[] = {
    {"layout", Layout},
    {"floor", Floor},
    {"search", Search},
    {"wire", Wire},
};

}  // namespace

std::span<const Target> SearchTargets() { return kTargets; }

}  // namespace msprobe::fuzz
