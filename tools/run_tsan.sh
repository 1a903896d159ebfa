#!/usr/bin/env bash
# Build with the thread sanitizer in build/tsan and run the C++ tests that use several threads.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/${VENV:-.venv}/bin:$PATH
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
results=$PWD/build/results
mkdir -p "$results" build/tsan
programs=(base_test collect_test compare_test formats_test app_test)
printf '== building with the thread sanitizer; see build/tsan/build.log\n'
if ! { cmake --preset tsan -DMSPROBE_WERROR="${WERROR:-OFF}" &&
  cmake --build --preset tsan ${JOBS:+-j "$JOBS"} --target "${programs[@]}"; } >build/tsan/build.log 2>&1; then
  grep -E 'error|FAILED' build/tsan/build.log | head -n 40 >&2
  exit 1
fi
status=0
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
ctest --test-dir build/tsan -j "${JOBS:-$(nproc)}" --timeout 900 --output-on-failure --no-tests=error \
  -R "^($(printf '%s|' "${programs[@]/%_test/}")none)\\." \
  --output-junit "$results/tsan-ctest.xml" >build/tsan/ctest.log 2>&1 || status=1
if [[ $status -ne 0 ]]; then grep -vE ' Passed |^ *Start ' build/tsan/ctest.log; fi
python3 tools/count_tests.py "$results/tsan-ctest.xml"
exit $status
