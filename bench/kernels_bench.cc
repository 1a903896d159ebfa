// GB/s of the kernels on one core, in L2 (256 KiB of each side) and in DRAM (128 MiB). Read the CPU
// column: bytes_per_second is per second of CPU time. Pair errors count the bytes of both sides.
//   kernels_bench --benchmark_filter=Stats --benchmark_repetitions=5
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/checksum.h"
#include "kernels/pair_errors.h"
#include "kernels/sketch.h"
#include "kernels/stats.h"
#include "metrics/pair_metrics.h"
#include "tensor/convert.h"

namespace {

using msprobe::DType;
namespace kernels = msprobe::kernels;

constexpr size_t kL2 = size_t{256} << 10;
constexpr size_t kDram = size_t{128} << 20;

void Store(float value, DType dtype, std::byte* out) {
  const auto put = [out](auto x) { std::memcpy(out, &x, sizeof(x)); };
  switch (dtype) {
    case DType::kF16:
      return put(msprobe::FloatToHalf(value));
    case DType::kBF16:
      return put(msprobe::FloatToBFloat16(value));
    case DType::kF32:
      return put(value);
    case DType::kF64:
      return put(static_cast<double>(value));
    case DType::kI32:
      return put(static_cast<int32_t>(value * 1000));
    default:
      return put(static_cast<int64_t>(value * 1000));
  }
}

// `bytes` of normal values; `change` is the relative difference from the values of change 0.
std::vector<std::byte> Values(DType dtype, size_t bytes, float change) {
  constexpr size_t kPeriod = 4096;
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> base(kPeriod);
  for (float& x : base) {
    x = normal(generator);
    x *= 1 + change * normal(generator);
  }
  const size_t item = msprobe::ItemSize(dtype);
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes / item; ++i) Store(base[i % kPeriod], dtype, out.data() + i * item);
  return out;
}

// The floor: reads every byte and does nothing else with it.
void Read(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> x = Values(DType::kF32, bytes, 0);
  for (auto _ : state) {
    std::array<uint64_t, 8> sums{};
    for (size_t at = 0; at + sizeof(sums) <= bytes; at += sizeof(sums)) {
      std::array<uint64_t, 8> words;
      std::memcpy(words.data(), x.data() + at, sizeof(words));
      for (size_t i = 0; i < words.size(); ++i) sums[i] += words[i];
    }
    benchmark::DoNotOptimize(sums);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}

void Stats(benchmark::State& state, DType dtype) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> x = Values(dtype, bytes, 0);
  const size_t n = bytes / msprobe::ItemSize(dtype);
  for (auto _ : state) {
    if (msprobe::IsFloat(dtype)) {
      benchmark::DoNotOptimize(kernels::FloatStatsOf(x.data(), n, 1, dtype));
    } else {
      benchmark::DoNotOptimize(kernels::IntStatsOf(x.data(), n, 1, dtype));
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}

void Pairs(benchmark::State& state, DType dtype) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> a = Values(dtype, bytes, 0), b = Values(dtype, bytes, 1e-3f);
  const size_t n = bytes / msprobe::ItemSize(dtype);
  const kernels::WorkType work = msprobe::metrics::WorkTypeOf(dtype, dtype);
  for (auto _ : state) {
    benchmark::DoNotOptimize(kernels::PairErrorsOf(a.data(), dtype, b.data(), dtype, n, work));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0) * 2);
}

void Hash(benchmark::State& state, DType dtype) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> x = Values(dtype, bytes, 0);
  const size_t item = msprobe::ItemSize(dtype);
  for (auto _ : state) benchmark::DoNotOptimize(kernels::Hash64(x.data(), bytes / item, item, 0));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}

void Sketch(benchmark::State& state, DType dtype) {
  constexpr uint32_t kSlots = 256;
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> x = Values(dtype, bytes, 0);
  const size_t n = bytes / msprobe::ItemSize(dtype);
  std::vector<double> sums(2 * kSlots);
  kernels::SketchLeftOut left_out;
  for (auto _ : state) {
    kernels::AddToSketch(x.data(), n, dtype, 0, kSlots, 1, sums.data(), &left_out);
    benchmark::DoNotOptimize(sums.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}

void Crc(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> x = Values(DType::kF32, bytes, 0);
  for (auto _ : state) benchmark::DoNotOptimize(kernels::Crc32(0, x.data(), bytes));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}

void Xor(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> x = Values(DType::kF32, bytes, 0);
  for (auto _ : state) benchmark::DoNotOptimize(kernels::Xor64(x.data(), bytes));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}

void Register() {
  const auto sizes = [](benchmark::internal::Benchmark* b) {
    b->Arg(kL2)->Arg(kDram)->Unit(benchmark::kMicrosecond);
  };
  for (const DType t :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32, DType::kI64}) {
    const std::string name(msprobe::ShortName(t));
    sizes(benchmark::RegisterBenchmark(("Stats/" + name).c_str(), Stats, t));
    sizes(benchmark::RegisterBenchmark(("Pairs/" + name).c_str(), Pairs, t));
    sizes(benchmark::RegisterBenchmark(("Hash64/" + name).c_str(), Hash, t));
    sizes(benchmark::RegisterBenchmark(("Sketch/" + name).c_str(), Sketch, t));
  }
  sizes(benchmark::RegisterBenchmark("Read", Read));
  sizes(benchmark::RegisterBenchmark("Crc32", Crc));
  sizes(benchmark::RegisterBenchmark("Xor64", Xor));
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::AddCustomContext("vector target", std::string(kernels::ActiveTarget()));
  Register();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
