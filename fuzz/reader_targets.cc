// Readers of files that others wrote.
#include <algorithm>
#include <cmath>

#include "archive/zip.h"
#include "base/log.h"
#include "base/text.h"
#include "compare/flatten.h"
#include "compare/store.h"
#include "config/collect_config.h"
#include "config/compare_config.h"
#include "config/merge_config.h"
#include "config/module_maps.h"
#include "config/postprocess_config.h"
#include "config/rule_config.h"
#include "dump/journal.h"
#include "dump/reader.h"
#include "formats/pickle.h"
#include "formats/tensor_file.h"
#include "fuzz/target.h"
#include "json/json.h"
#include "metrics/sketch.h"
#include "precheck/precision_compare.h"
#include "report/table.h"

namespace msprobe::fuzz {
namespace {

constexpr uint64_t kSmall = 1u << 20;

class NoLog final : public LogSink {
 public:
  void Log(LogLevel, std::string_view) override {}
};

// What parses is written and parsed again, and reads the same. Halves of a surrogate pair that
// stood apart in bytes that are no UTF-8 meet in what is written, as Python's json.dumps has it:
// there it is the second writing that says the same.
void Json(Bytes input) {
  const auto document = json::ParseDocument(AsText(input));
  if (!document.ok()) return;
  std::string written, twice;
  json::Writer(written).Copy(document->root());
  const auto again = json::ParseDocument(written);
  Check(again.ok(), "JSON that was written cannot be read");
  json::Writer(twice).Copy(again->root());
  Check(twice == written, "JSON changed when it was written twice");
  Check(
      !IsValidUtf8(AsText(input)) || json::PyRepr(document->root()) == json::PyRepr(again->root()),
      "JSON changed on its way");
}

// The file as a side of a comparison.
void Dump(Bytes input) {
  compare::Side side;
  (void)compare::ReadSide(AsFile("dump.json", input), side);
}
void Stack(Bytes input) { (void)dump::ReadStack(AsFile("stack.json", input)); }
void Construct(Bytes input) { (void)dump::ReadConstruct(AsFile("construct.json", input)); }

// A journal beside a torn dump.
void Journal(Bytes input) {
  constexpr std::string_view kDump =
      R"({"task": "statistics", "level": "L1", "data": {"Torch.add.0.forward": {"output": []}, "Tor)";
  const std::string journal = AsFile(dump::kJournalName, input);
  const std::string path = AsFile("dump.json", AsBytes(kDump));
  (void)dump::ReadJournal(DirName(journal));
  (void)dump::ReadDump(path, [](std::string_view, const json::Value&) { return true; });
  AsFile(dump::kJournalName, {});
}

void CollectConfig(Bytes input) {
  NoLog log;
  config::CollectArguments arguments;
  arguments.config_path = AsFile("config.json", input);
  (void)config::ReadCollectConfig(arguments, log);
}
void NarrowConfig(Bytes input) {
  NoLog log;
  config::CollectArguments arguments;
  arguments.config_path =
      AsFile("config.json", AsBytes(R"({"task": "statistics", "dump_path": "/tmp/d"})"));
  arguments.narrow_path = AsFile("narrow.json", input);
  (void)config::ReadCollectConfig(arguments, log);
}
void CompareJson(Bytes input) {
  NoLog log;
  (void)config::ReadCompareJson(AsFile("compare.json", input), log);
}
void NameMap(Bytes input) { (void)config::ReadNameMapYaml(AsFile("map.yaml", input)); }
void ApiMap(Bytes input) {
  NoLog log;
  (void)config::ReadApiMapYaml(AsFile("apis.yaml", input), log);
}
void LayerMap(Bytes input) { (void)config::ReadLayerMapYaml(AsFile("layers.yaml", input)); }
void RuleFile(Bytes input) {
  NoLog log;
  (void)config::ReadRuleFile(AsFile("rules.yaml", input), log);
}
void MergeConfig(Bytes input) {
  NoLog log;
  (void)config::ReadMergeConfig(AsFile("merge.yaml", input), log);
}
void PostprocessConfig(Bytes input) {
  NoLog log;
  (void)config::ReadPostprocessConfig(AsFile("post.yaml", input), log);
}

void Zip(Bytes input) {
  const auto file = InputFile::Open(AsFile("archive.zip", input));
  Check(file.ok(), "the temporary file cannot be opened");
  const auto zip = archive::ZipReader::Open(*file);
  if (!zip.ok()) return;
  for (const auto& entry : zip->entries()) {
    (void)zip->DataOffset(entry);
    const auto data = zip->Read(entry, kSmall);
    Check(!data.ok() || data->size() == entry.size, "a member has not the size that it declares");
  }
}

// All four formats: the content decides which one it is.
void Tensor(Bytes input) {
  formats::Limits limits;
  limits.max_bytes = kSmall;
  const auto file = formats::TensorFile::Open(AsFile("tensor.pt", input), limits);
  if (!file.ok()) return;
  std::vector<std::byte> data;
  for (const auto& tensor : file->tensors()) {
    data.resize(static_cast<size_t>(tensor.num_elements) * ItemSize(tensor.dtype));
    const Status whole = file->ReadAll(tensor, data.data());
    if (!whole.ok() || !tensor.contiguous || tensor.num_elements == 0) continue;
    std::vector<std::byte> last(ItemSize(tensor.dtype));
    Check(file->ReadElements(tensor, tensor.num_elements - 1, 1, last.data()).ok(),
          "the last element cannot be read by itself");
    Check(std::equal(last.rbegin(), last.rend(), data.rbegin()), "the last element differs");
  }
}

void Pickle(Bytes input) {
  formats::Unpickler pickle(input, 0);
  while (pickle.position() < input.size()) {
    const auto root = pickle.Run();
    if (!root.ok()) return;
    (void)formats::CollectTensors(pickle, *root);
    for (const auto& node : pickle.nodes()) (void)formats::Describe(node);
  }
}

void Csv(Bytes input) { (void)report::ReadCsv(AsFile("table.csv", input)); }
void Xlsx(Bytes input) {
  report::ReadLimits limits;
  limits.max_bytes = kSmall;
  limits.max_cells = 100'000;
  (void)report::ReadXlsx(AsFile("table.xlsx", input), limits);
}
void Details(Bytes input) {
  const auto table = precheck::ReadDetails(AsFile("details.csv", input));
  if (!table.ok()) return;
  const auto verdict = precheck::JudgeDetails(*table, *table, precheck::Standard::kNew);
  Check(verdict.rows.size() >= table->rows.size(), "a row was lost in the final verdict");
}

// A leaf with a sketch: what is read is written and read the same, is at no distance of itself and
// adds to twice itself.
void Sketch(Bytes input) {
  const auto leaf = json::ParseDocument(AsText(input));
  if (!leaf.ok()) return;
  const auto read = metrics::ReadSketch(leaf->root());
  if (!read.ok() || !*read) return;
  const metrics::Sketch& sketch = **read;
  for (const double v : sketch.values) Check(std::isfinite(v), "a slot that is no number");
  std::string text = R"({"dtype": )";
  json::Writer writer(text);
  const json::Value* const dtype = leaf->root().Find("dtype");
  if (dtype == nullptr) {
    text += "null";
  } else {
    writer.Copy(*dtype);
  }
  text += R"(, "shape": )";
  json::Writer(text).Copy(*leaf->root().Find("shape"));
  text += R"(, "sketch": )";
  metrics::AppendSketch(text, sketch);
  text += '}';
  const auto document = json::ParseDocument(text);
  Check(document.ok(), "a sketch was written that is no JSON");
  const auto again = metrics::ReadSketch(document->root());
  Check(again.ok() && again->has_value() && (*again)->values == sketch.values,
        "a sketch changed on its way");
  metrics::Sketch twice = sketch;
  Check(metrics::Add(sketch, twice).ok(), "a sketch does not add to itself");
  const auto distance = metrics::Distance(sketch, sketch, sketch.Norm(), sketch.Norm());
  Check(distance.ok() == sketch.whole(), "a distance of a part, or none of a whole");
  if (distance.ok()) Check(distance->distance == 0, "a sketch is off itself");
}

constexpr Target kTargets[] = {
    {"json", Json},
    {"sketch", Sketch},
    {"dump", Dump},
    {"stack", Stack},
    {"construct", Construct},
    {"journal", Journal},
    {"collect_config", CollectConfig},
    {"narrow_config", NarrowConfig},
    {"compare_json", CompareJson},
    {"name_map", NameMap},
    {"api_map", ApiMap},
    {"layer_map", LayerMap},
    {"rule_file", RuleFile},
    {"merge_config", MergeConfig},
    {"postprocess_config", PostprocessConfig},
    {"zip", Zip},
    {"pt", Tensor},
    {"pickle", Pickle},
    {"npy", Tensor},
    {"npz", Tensor},
    {"safetensors", Tensor},
    {"csv", Csv},
    {"xlsx", Xlsx},
    {"details", Details},
};

}  // namespace

std::span<const Target> ReaderTargets() { return kTargets; }

}  // namespace msprobe::fuzz
