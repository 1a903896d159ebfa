// The pre-check for Python: inputs that depend on their place only, judging of one output, the
// growing csv files.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "app/precision_app.h"
#include "base/log.h"
#include "base/time.h"
#include "bindings/errors.h"
#include "bindings/module.h"
#include "dump/reader.h"
#include "json/json.h"
#include "precheck/judge.h"
#include "precheck/q_rules.h"
#include "precheck/random_fill.h"
#include "precheck/result_writer.h"

namespace msprobe::bindings {
namespace {

namespace nb = nanobind;
using precheck::DetailsRow;
using precheck::MetricCell;
using precheck::Status;

// Address, dtype ("torch.float32") and shape of contiguous elements in CPU memory that the caller
// keeps alive.
using Raw = std::tuple<uint64_t, std::string, std::vector<int64_t>>;

DType DTypeNamed(const std::string& name) {
  const std::optional<DType> dtype = DTypeFromTorchName(name);
  if (!dtype) throw nb::value_error(("unknown dtype: " + name).c_str());
  return *dtype;
}

TensorView ViewOf(const Raw& raw) {
  const auto& [address, dtype, shape] = raw;
  return {reinterpret_cast<const std::byte*>(address), DTypeNamed(dtype), shape, {}};
}

Status StatusNamed(const std::string& text) {
  Status out;
  if (!precheck::StatusFromText(text, out)) throw nb::value_error(("no status: " + text).c_str());
  return out;
}

nb::str StatusObject(Status s) {
  const std::string_view text = precheck::StatusText(s, precheck::Standard::kNew);
  return nb::str(text.data(), text.size());
}

precheck::Standard StandardOf(bool old) {
  return old ? precheck::Standard::kOld : precheck::Standard::kNew;
}

struct Judge {
  std::string api;
  bool float8_input = false, old_standard = false, q_rules = true;
  double scale = 0, terms = 1;
  bool amplifies = false;
  bool gradient = false;
  bool corrected = false;  // tolerances of small 16-bit values

  void operator()(DetailsRow& row, const Raw& bench, const Raw& device,
                  const std::optional<Raw>& baseline, const std::string& bench_dtype,
                  const std::string& device_dtype) const {
    precheck::OutputPair pair;
    pair.api = api;
    pair.bench_dtype = bench_dtype;
    pair.device_dtype = device_dtype;
    pair.bench = ViewOf(bench);
    pair.device = ViewOf(device);
    pair.float8_input = float8_input;
    pair.gradient = gradient;
    if (corrected) pair.small_values = precheck::SmallValues::kCorrected;
    TensorView base;
    precheck::QContext context{scale, terms, amplifies, nullptr};
    if (baseline) {
      base = ViewOf(*baseline);
      context.baseline = &base;
    }
    const nb::gil_scoped_release release;
    precheck::JudgeOutput(pair, StandardOf(old_standard), row);
    if (q_rules) precheck::ApplyQRules(pair, context, row);
  }

  void Dropout(DetailsRow& row, const Raw& bench, const Raw& device, const std::string& bench_dtype,
               const std::string& device_dtype) const {
    precheck::OutputPair pair;
    pair.api = api;
    pair.bench_dtype = bench_dtype;
    pair.device_dtype = device_dtype;
    pair.bench = ViewOf(bench);
    pair.device = ViewOf(device);
    precheck::JudgeDropout(pair, row);
  }
};

using CellState = std::tuple<int, int, double, uint64_t, std::string>;
using RowState = std::tuple<std::string, std::string, std::string, std::vector<CellState>>;

RowState GetState(const DetailsRow& row) {
  std::vector<CellState> cells;
  for (size_t k = 0; k < row.cells.size(); ++k) {
    const MetricCell& c = row.cells[k];
    if (c.kind == MetricCell::Kind::kBlank) continue;
    cells.emplace_back(static_cast<int>(k), static_cast<int>(c.kind), c.value, c.integer, c.text);
  }
  return {row.name, std::string(precheck::StatusText(row.status, precheck::Standard::kNew)),
          row.message, std::move(cells)};
}

void SetState(DetailsRow& row, const RowState& state) {
  new (&row) DetailsRow;
  row.name = std::get<0>(state);
  row.status = StatusNamed(std::get<1>(state));
  row.message = std::get<2>(state);
  for (const auto& [index, kind, value, integer, text] : std::get<3>(state)) {
    if (index < 0 || static_cast<size_t>(index) >= row.cells.size() || kind < 0 || kind > 4)
      continue;
    row.cells[static_cast<size_t>(index)] = {static_cast<MetricCell::Kind>(kind), value, integer,
                                             text};
  }
}

void BindRow(nb::module_& m) {
  using precheck::Column;
  nb::class_<DetailsRow>(m, "PrecheckRow", "One line of accuracy_checking_details_*.csv.")
      .def(
          "__init__",
          [](DetailsRow* self, std::string name, const std::string& status, std::string message) {
            const Status s = StatusNamed(status);
            new (self) DetailsRow;
            self->name = std::move(name);
            self->status = s;
            self->message = std::move(message);
          },
          nb::arg("name"), nb::arg("status") = "SKIP", nb::arg("message") = "")
      .def_rw("name", &DetailsRow::name)
      .def_rw("message", &DetailsRow::message)
      .def_prop_rw(
          "status", [](const DetailsRow& r) { return StatusObject(r.status); },
          [](DetailsRow& r, const std::string& text) { r.status = StatusNamed(text); })
      .def(
          "set_kinds",
          [](DetailsRow& r, const std::string& bench, const std::string& device,
             const std::string& shape) {
            r.SetText(Column::kBenchDtype, bench);
            r.SetText(Column::kDeviceDtype, device);
            r.SetText(Column::kShape, shape);
          },
          nb::arg("bench"), nb::arg("device"), nb::arg("shape"))
      .def(
          "set_equal", [](DetailsRow& r) { r.SetInteger(Column::kErrorRate, 0); },
          "Equal values that are no tensors: an error rate of 0.")
      .def(
          "cells",
          [](const DetailsRow& r, int digits) {
            std::vector<std::string> out;
            for (const MetricCell& c : r.cells) out.push_back(precheck::CellText(c, {digits}));
            return out;
          },
          nb::arg("digits") = -1, "The twenty cells between name and status, as written.")
      .def("__getstate__", &GetState)
      .def("__setstate__", &SetState);
}

void BindJudge(nb::module_& m) {
  nb::class_<Judge>(m, "PrecheckJudge", "Judges the outputs of one call.")
      .def(
          "__init__",
          [](Judge* self, std::string api, bool float8_input, bool old_standard, bool q_rules,
             double scale, double terms, bool amplifies, bool gradient, bool corrected) {
            new (self) Judge{std::move(api), float8_input, old_standard, q_rules,  scale,
                             terms,          amplifies,    gradient,     corrected};
          },
          nb::arg("api"), nb::arg("float8_input"), nb::arg("old_standard"), nb::arg("q_rules"),
          nb::arg("scale") = 0.0, nb::arg("terms") = 1.0, nb::arg("amplifies") = false,
          nb::arg("gradient") = false, nb::arg("corrected") = false)
      .def("__call__", &Judge::operator(), nb::arg("row"), nb::arg("bench"), nb::arg("device"),
           nb::arg("baseline").none(), nb::arg("bench_dtype"), nb::arg("device_dtype"),
           "Fill status, cells and message of a row. Tensors are (address, dtype, shape) of "
           "contiguous CPU memory; the two texts are shown.")
      .def("dropout", &Judge::Dropout, nb::arg("row"), nb::arg("bench"), nb::arg("device"),
           nb::arg("bench_dtype"), nb::arg("device_dtype"), "Judge by the shares of zeros.");
}

void BindFill(nb::module_& m) {
  m.def("precheck_stream_key", &precheck::StreamKey, nb::arg("seed"), nb::arg("api"),
        nb::arg("path"));
  m.def(
      "precheck_fill_uniform",
      [](uint64_t address, uint64_t count, const std::string& dtype, double low, double high,
         uint64_t key) {
        const DType t = DTypeNamed(dtype);
        const nb::gil_scoped_release release;
        return precheck::FillUniform(key, t, low, high, count,
                                     reinterpret_cast<std::byte*>(address));
      },
      nb::arg("address"), nb::arg("count"), nb::arg("dtype"), nb::arg("low"), nb::arg("high"),
      nb::arg("key"), "Uniform floats in [low, high] at an address; false for other dtypes.");
  m.def(
      "precheck_fill_integers",
      [](uint64_t address, uint64_t count, const std::string& dtype, int64_t low, uint64_t span,
         uint64_t key) {
        const DType t = DTypeNamed(dtype);
        const nb::gil_scoped_release release;
        return precheck::FillIntegers(key, t, low, span, count,
                                      reinterpret_cast<std::byte*>(address));
      },
      nb::arg("address"), nb::arg("count"), nb::arg("dtype"), nb::arg("low"), nb::arg("span"),
      nb::arg("key"), "Uniform integers or bool in low … low + span at an address.");
  m.def(
      "precheck_checksum",
      [](uint64_t address, uint64_t bytes, uint64_t seed) {
        const nb::gil_scoped_release release;
        return XXH3_64bits_withSeed(reinterpret_cast<const void*>(address), bytes, seed);
      },
      nb::arg("address"), nb::arg("bytes"), nb::arg("seed"), "XXH3 of bytes at an address.");
}

precheck::ResultWriter TakeWriter(Result<precheck::ResultWriter> writer) {
  if (!writer.ok()) RaiseError(writer.error(), "PrecheckError");
  return std::move(writer).value();
}

void BindWriter(nb::module_& m) {
  using precheck::ResultWriter;
  nb::class_<ResultWriter>(m, "PrecheckWriter",
                           "accuracy_checking_details_*.csv and …_result_*.csv while they grow.")
      .def_static(
          "create",
          [](const std::string& dir, bool old_standard, int digits, bool english, bool baseline) {
            return TakeWriter(ResultWriter::Create(
                dir, UnixSeconds(), {StandardOf(old_standard), {digits}, english, baseline}));
          },
          nb::arg("dir"), nb::arg("old_standard"), nb::arg("digits") = -1,
          nb::arg("english") = false, nb::arg("baseline") = false,
          "New files with headers. Raises PrecheckError.")
      .def_static(
          "resume",
          [](const std::string& result_csv, bool retry_skips, bool old_standard, int digits,
             bool baseline) {
            return TakeWriter(ResultWriter::Resume(
                result_csv, retry_skips, {StandardOf(old_standard), {digits}, false, baseline}));
          },
          nb::arg("result_csv"), nb::arg("retry_skips"), nb::arg("old_standard"),
          nb::arg("digits") = -1, nb::arg("baseline") = false,
          "Go on with files of an earlier run. Raises PrecheckError.")
      .def(
          "append",
          [](ResultWriter& w, std::string name, const std::string& forward,
             const std::string& backward, std::string message, const std::vector<DetailsRow>& rows,
             const std::vector<DetailsRow>& baseline_rows) {
            const auto status =
                w.Append({std::move(name), StatusNamed(forward), StatusNamed(backward),
                          std::move(message), rows, baseline_rows});
            if (!status.ok()) RaiseError(status.error(), "PrecheckError");
          },
          nb::arg("name"), nb::arg("forward"), nb::arg("backward"), nb::arg("message"),
          nb::arg("rows"), nb::arg("baseline_rows") = std::vector<DetailsRow>())
      .def_prop_ro("done", [](const ResultWriter& w) { return w.done(); })
      .def_prop_ro("result_path", [](const ResultWriter& w) { return w.result_path(); })
      .def_prop_ro("details_path", [](const ResultWriter& w) { return w.details_path(); })
      .def_prop_ro("baseline_path", [](const ResultWriter& w) { return w.baseline_path(); })
      .def_prop_ro("stamp", [](const ResultWriter& w) { return w.stamp(); });
}

nb::object ObjectOf(const json::Value& value) {
  using Type = json::Value::Type;
  switch (value.type()) {
    case Type::kNull:
      return nb::none();
    case Type::kBool:
      return nb::bool_(value.as_bool());
    case Type::kInt:
      return nb::int_(value.as_int());
    case Type::kBigInt: {
      const std::string digits(value.as_string());
      return nb::steal(PyLong_FromString(digits.c_str(), nullptr, 10));
    }
    case Type::kDouble:
      return nb::float_(value.as_double());
    case Type::kString: {
      const std::string_view text = value.as_string();
      return nb::str(text.data(), text.size());
    }
    case Type::kArray: {
      nb::list out;
      for (const json::Value& item : value) out.append(ObjectOf(item));
      return out;
    }
    case Type::kObject: {
      nb::dict out;
      for (auto* m = value.members_begin(); m != value.members_end(); ++m)
        out[nb::str(m->key.data(), m->key.size())] = ObjectOf(m->value);
      return out;
    }
  }
  return nb::none();
}

// What a replay needs of a dump.json, complete or torn, with what its journal adds.
nb::dict ReadDumpFile(const std::string& path) {
  nb::dict data;
  const auto info = dump::ReadDump(path, [&](std::string_view name, const json::Value& value) {
    data[nb::str(name.data(), name.size())] = ObjectOf(value);
    return true;
  });
  if (!info.ok()) RaiseError(info.error(), "PrecheckError");
  nb::dict out;
  out["data"] = data;
  out["has_data"] = info->header.has_data;
  out["framework"] = info->header.framework;
  out["has_data_files"] =
      info->header.dump_data_dir.has_value() && !info->header.dump_data_dir->empty();
  out["tear"] = info->tear ? nb::object(nb::str(info->tear->ToString().c_str())) : nb::none();
  out["journal_entries"] = info->journal_entries;
  return out;
}

class MessageLog final : public LogSink {
 public:
  void Log(LogLevel level, std::string_view message) override {
    if (level >= LogLevel::kWarning) messages.emplace_back(message);
  }
  std::vector<std::string> messages;
};

struct FinalOptions {
  bool old_standard, base_rules, english;
  int digits;
};

// The final verdict of two details files: what to print, and the messages of the comparison.
nb::dict FinalVerdict(const std::string& npu, const std::string& gpu, const std::string& dir,
                      const FinalOptions& given) {
  app::PrecisionOptions options;
  options.npu_csv = npu;
  options.gpu_csv = gpu;
  options.output_dir = dir;
  options.standard = StandardOf(given.old_standard);
  options.rules = given.base_rules ? precheck::Rules::kBase : precheck::Rules::kDefault;
  options.format.digits = given.digits;
  options.english = given.english;
  options.command = "api_precision_compare";
  MessageLog log;
  const auto run = [&] {
    const nb::gil_scoped_release release;
    return app::ComparePrecision(options, {log, NullProgress()});
  }();
  if (!run.ok()) RaiseError(run.error(), "PrecheckError");
  nb::dict out;
  out["answer"] = app::PrecisionAnswer(*run);
  out["closing"] = app::PrecisionClosingLine(*run);
  out["reports"] = std::vector<std::string>{run->details_path, run->result_path, run->summary_path};
  out["messages"] = log.messages;
  app::StatusCounts both = run->forward;
  both.Add(run->backward);
  out["error"] = both.error;
  out["warning"] = both.warning;
  out["skip"] = both.skip;
  return out;
}

void BindFiles(nb::module_& m) {
  m.def("precheck_read_dump", &ReadDumpFile, nb::arg("path"),
        "Entries of a dump.json in file order, of a torn one those that are complete, then those "
        "of its journal. Raises PrecheckError.");
  m.def(
      "precheck_final",
      [](const std::string& npu, const std::string& gpu, const std::string& dir, bool old_standard,
         bool base_rules, int digits, bool english) {
        return FinalVerdict(npu, gpu, dir, {old_standard, base_rules, english, digits});
      },
      nb::arg("npu"), nb::arg("gpu"), nb::arg("dir"), nb::arg("old_standard"),
      nb::arg("base_rules"), nb::arg("digits") = -1, nb::arg("english") = false,
      "Judge the details of one device by those of another and write the final files. Raises "
      "PrecheckError.");
}

}  // namespace

void RegisterPrecheck(nb::module_& m) {
  BindFiles(m);
  BindRow(m);
  BindJudge(m);
  BindFill(m);
  BindWriter(m);
}

}  // namespace msprobe::bindings
