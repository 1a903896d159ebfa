// Runs each hot operation once under callgrind, which writes its instruction count to a file of its
// own (bench/counts.py reads them). Without valgrind it only runs the operations.
//   valgrind --tool=callgrind --instr-atstart=no ... counts_main FOLDER
#include <valgrind/callgrind.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "collect/collector.h"
#include "dump/reader.h"
#include "kernels/checksum.h"
#include "kernels/pair_errors.h"
#include "kernels/stats.h"
#include "tensor/convert.h"

namespace {

using msprobe::DType;
namespace collect = msprobe::collect;
namespace kernels = msprobe::kernels;

constexpr size_t kElements = size_t{64} << 10;
constexpr int kEntries = 1000;

// Runs `work` once to warm up (dispatch tables, first allocations), then counts the second run.
void Count(const char* name, const std::function<void()>& work) {
  work();
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
  work();
  CALLGRIND_DUMP_STATS_AT(name);
  CALLGRIND_STOP_INSTRUMENTATION;
}

// Values of a fixed linear congruential sequence in [-1, 1), as `dtype`.
std::vector<std::byte> Values(DType dtype, uint32_t seed) {
  const size_t item = msprobe::ItemSize(dtype);
  std::vector<std::byte> out(kElements * item);
  uint32_t state = seed;
  for (size_t i = 0; i < kElements; ++i) {
    state = state * 1664525U + 1013904223U;
    const float value = static_cast<float>(static_cast<int32_t>(state)) / 2147483648.0F;
    const auto put = [at = out.data() + i * item](auto x) { std::memcpy(at, &x, sizeof(x)); };
    if (dtype == DType::kF32) put(value);
    if (dtype == DType::kBF16) put(msprobe::FloatToBFloat16(value));
    if (dtype == DType::kF16) put(msprobe::FloatToHalf(value));
    if (dtype == DType::kF64) put(static_cast<double>(value));
    if (dtype == DType::kI64) put(static_cast<int64_t>(state));
  }
  return out;
}

void CountKernels() {
  volatile uint64_t sink = 0;
  for (const DType t : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    const auto a = Values(t, 1), b = Values(t, 2);
    const std::string name(msprobe::ShortName(t));
    const auto work = t == DType::kF64 ? kernels::WorkType::kF64 : kernels::WorkType::kF32;
    Count(("stats_" + name).c_str(),
          [&] { sink = sink + kernels::FloatStatsOf(a.data(), kElements, 1, t).count; });
    Count(("pairs_" + name).c_str(), [&] {
      sink = sink + kernels::PairErrorsOf(a.data(), t, b.data(), t, kElements, work).count;
    });
  }
  const auto x = Values(DType::kF32, 1), n = Values(DType::kI64, 1);
  auto masked = x;  // as a causal mask leaves it: every other element is -inf
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < kElements; i += 2) std::memcpy(masked.data() + 4 * i, &kMasked, 4);
  Count("stats_masked_f32", [&] {
    sink = sink + kernels::FloatStatsOf(masked.data(), kElements, 1, DType::kF32).count;
  });
  Count("pairs_masked_f32", [&] {
    sink = sink + kernels::PairErrorsOf(masked.data(), DType::kF32, masked.data(), DType::kF32,
                                        kElements, kernels::WorkType::kF32)
                      .count;
  });
  Count("stats_i64",
        [&] { sink = sink + kernels::IntStatsOf(n.data(), kElements, 1, DType::kI64).count; });
  Count("hash64_f32", [&] { sink = sink + kernels::Hash64(x.data(), kElements, 4, 0); });
  Count("crc32", [&] { sink = sink + kernels::Crc32(0, x.data(), x.size()); });
  Count("xor64", [&] { sink = sink + kernels::Xor64(x.data(), x.size()); });
}

class Silent final : public msprobe::LogSink {
 public:
  void Log(msprobe::LogLevel, std::string_view) override {}
};

// torch.add of 64 float32 and a scalar, as the interception describes it: kEntries entries.
bool CountEntries(const std::string& folder) {
  Silent log;
  msprobe::config::CollectConfig config;
  config.dump_path = folder + "/dump";
  auto made = collect::Collector::Create(config, log);
  if (!made.ok()) return false;
  collect::Collector& collector = **made;
  if (!collector.Start({}).ok()) return false;
  const uint32_t add = collector.RegisterApi("Torch", "add", collect::Risk::kFocus);
  const auto bytes = Values(DType::kF32, 1);
  const std::vector<int64_t> shape{64};
  msprobe::TensorView view;
  view.data = bytes.data();
  view.dtype = DType::kF32;
  view.shape = shape;
  collect::TensorLeaf leaf;
  leaf.dtype_text = "torch.float32";
  leaf.shape = shape;
  leaf.view = &view;
  Count("record_1000_entries", [&] {
    for (int i = 0; i < kEntries; ++i) {
      int64_t number = 0;
      auto entry = collector.BeginApi(add, collect::kNoStack, &number);
      entry->BeginPart(collect::Part::kInputArgs);
      entry->OpenList();
      entry->Tensor(leaf);
      entry->Scalar("float", "1.0");
      entry->CloseList();
      entry->EndPart();
      entry->BeginPart(collect::Part::kInputKwargs);
      entry->OpenObject();
      entry->CloseObject();
      entry->EndPart();
      entry->BeginPart(collect::Part::kOutput);
      entry->OpenList();
      entry->Tensor(leaf);
      entry->CloseList();
      entry->EndPart();
      entry->Commit();
    }
  });
  const std::string dump = collector.rank_dir() + "/dump.json";
  collector.EndStep();
  uint64_t entries = 0;
  Count("read_2000_entries", [&] {
    const auto info = msprobe::dump::ReadDump(
        dump, [](std::string_view, const msprobe::json::Value&) { return true; });
    entries = info.ok() ? info->entries : 0;
  });
  return entries == 2 * kEntries;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  CountKernels();
  return CountEntries(argv[1]) ? 0 : 1;
}
