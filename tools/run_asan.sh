#!/usr/bin/env bash
# Build with the address and undefined-behaviour sanitizers in build/asan and run the C++ tests, then the Python tests
# that drive the extension, with the sanitizer preloaded into Python: tools/run_asan.sh [TEST_FILE ...]
#   ASAN_PYTHON=OFF  the C++ tests alone, which need no extension
#   ASAN_CPP=OFF     the Python tests alone
# Each Python file is a process and a result of its own in build/results/asan, which stays until it is run again: the
# suite can be run in pieces, and the last line adds up all of them.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/${VENV:-.venv}/bin:$PATH
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
results=$PWD/build/results
python_tests=${ASAN_PYTHON:-ON}
cpp_tests=${ASAN_CPP:-ON}
mkdir -p "$results/asan" build/asan
status=0
targets=(all)
[[ $cpp_tests == OFF ]] && targets=(_core msprobe)

printf '== building with sanitizers; see build/asan/build.log\n'
if ! { cmake --preset asan -DMSPROBE_PYTHON=$python_tests -DPython_EXECUTABLE="$PWD/${VENV:-.venv}/bin/python" \
  -DMSPROBE_WERROR="${WERROR:-OFF}" &&
  cmake --build --preset asan ${JOBS:+-j "$JOBS"} --target "${targets[@]}"; } >build/asan/build.log 2>&1; then
  tail -n 60 build/asan/build.log >&2
  exit 1
fi
export UBSAN_OPTIONS=print_stacktrace=1
if [[ $cpp_tests == ON ]]; then
  ctest --test-dir build/asan -j "${JOBS:-$(nproc)}" --timeout 600 --output-on-failure --no-tests=error \
    --output-junit "$results/asan-ctest.xml" >build/asan/ctest.log 2>&1 || status=1
  if [[ $status -eq 0 ]]; then tail -n 4 build/asan/ctest.log; else grep -vE ' Passed |^ *Start ' build/asan/ctest.log; fi
  python tools/count_tests.py "$results/asan-ctest.xml"
fi
[[ $python_tests == OFF ]] && exit $status

# The package as it is in the tree, beside the extension that carries the sanitizers.
package=build/asan/py/msprobe
rm -rf "$package"
mkdir -p "$package"
cp -r python/msprobe/. "$package"
rm -f "$package"/_core*.so
cp build/asan/bindings/_core*.so "$package"
# CPython and PyTorch leak on purpose at exit, and Python's own allocator would hide overruns.
preload="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)"
run() {
  MSPROBE_BIN=$PWD/build/asan/src/cli/msprobe LD_PRELOAD=$preload PYTHONMALLOC=malloc \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONPATH=$PWD/build/asan/py OMP_NUM_THREADS=1 \
    python -m pytest -q -m 'not slow and not no_sanitizer' --junitxml "$2" "$1"
}
files=("$@")
if [[ $# -eq 0 ]]; then files=(tests/python/test_*.py tests/cli/test_*.py tests/attacks/test_*.py); fi
for file in "${files[@]}"; do
  result=$results/asan/$(tr / - <<<"${file%.py}").xml
  run "$file" "$result"
  code=$?
  [[ $code -eq 0 || $code -eq 5 ]] || status=1  # 5: every test of the file is left out here
done
printf '== Python tests under the sanitizers, all files that were run: '
python tools/count_tests.py "$results"/asan/*.xml
exit $status
