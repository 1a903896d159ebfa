#!/usr/bin/env bash
# Fuzz the targets of fuzz/: tools/run_fuzz.sh SECONDS [TARGET ...]; without names, all of them, one after the other.
# A finding stays in build/fuzz/findings/TARGET; put it into fuzz/corpus/TARGET together with its repair.
# Prints per target: executions, findings, inputs kept. Exit status 1 when something was found.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/${VENV:-.venv}/bin:$PATH
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
seconds=${1:?usage: tools/run_fuzz.sh SECONDS [TARGET ...]}
shift
mkdir -p build/fuzz
printf '== building the fuzzer; see build/fuzz/build.log\n'
{ cmake --preset fuzz && cmake --build --preset fuzz; } >build/fuzz/build.log 2>&1 || {
  tail -n 60 build/fuzz/build.log >&2
  exit 1
}
fuzzer=build/fuzz/fuzz/msprobe_fuzz
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets < <(cd fuzz/corpus && ls)
# yaml-cpp and the C++ library are not instrumented: a container that crosses the border would be a false report.
export ASAN_OPTIONS=detect_container_overflow=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
status=0
printf '%-20s %14s %10s %8s\n' target executions findings corpus
for target in "${targets[@]}"; do
  work=build/fuzz/corpus/$target findings=build/fuzz/findings/$target log=build/fuzz/$target.log
  mkdir -p "$work" "$findings"
  FUZZ_TARGET=$target "$fuzzer" "$work" "fuzz/corpus/$target" -max_total_time="$seconds" -timeout=20 \
    -rss_limit_mb=2048 -malloc_limit_mb=1024 -print_final_stats=1 -artifact_prefix="$findings/" >"$log" 2>&1 || true
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  found=$(find "$findings" -type f | wc -l)
  if [[ -z $runs ]]; then
    printf '%-20s %14s: see %s\n' "$target" 'did not run' "$log"
    status=1
    continue
  fi
  printf '%-20s %14s %10s %8s\n' "$target" "$runs" "$found" "$(find "$work" -type f | wc -l)"
  [[ $found -eq 0 ]] || status=1
done
exit $status
