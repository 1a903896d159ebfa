#!/usr/bin/env bash
# Cross-build for aarch64 in build/arm64 and run the C++ tests there under qemu: tools/run_arm64.sh [TEST_PROGRAM ...];
# without names, all of them (kernels_test, tensor_test, ...).
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/${VENV:-.venv}/bin:$PATH
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
results=$PWD/build/results
mkdir -p "$results" build/arm64
tools/arm64_libraries.sh || exit 1
printf '== building for aarch64; see build/arm64/build.log\n'
if ! { cmake --preset arm64 -DMSPROBE_WERROR="${WERROR:-OFF}" &&
  cmake --build --preset arm64 ${JOBS:+-j "$JOBS"} ${1:+--target "$@"}; } >build/arm64/build.log 2>&1; then
  grep -E 'error|FAILED' build/arm64/build.log | head -n 40 >&2
  exit 1
fi
# Without names: every test. Names of programs are "kernels_test", of their tests "kernels.Suite.Name".
filter=()
if [[ $# -gt 0 ]]; then filter=(-R "^($(IFS='|'; names="$*"; printf '%s' "${names//_test/}" | tr ' ' '|'))\\."); fi
status=0
ctest --test-dir build/arm64 -j "${JOBS:-$(nproc)}" --timeout 900 --output-on-failure --no-tests=error "${filter[@]}" \
  --output-junit "$results/arm64-ctest.xml" >build/arm64/ctest.log 2>&1 || status=1
if [[ $status -ne 0 ]]; then grep -vE ' Passed |^ *Start ' build/arm64/ctest.log; fi
python3 tools/count_tests.py "$results/arm64-ctest.xml"
exit $status
