#!/usr/bin/env bash
# Build with the address and undefined-behaviour sanitizers in build/asan, run the C++ tests, then the Python tests
# that drive the extension, with the sanitizer preloaded into Python.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/${VENV:-.venv}/bin:$PATH
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
results=$PWD/build/results
python_tests=${ASAN_PYTHON:-ON}  # OFF: the C++ tests alone, which need no extension
mkdir -p "$results" build/asan
status=0

printf '== building with sanitizers; see build/asan/build.log\n'
if ! { cmake --preset asan -DMSPROBE_PYTHON=$python_tests -DPython_EXECUTABLE="$PWD/${VENV:-.venv}/bin/python" \
  -DMSPROBE_WERROR="${WERROR:-OFF}" && cmake --build --preset asan; } >build/asan/build.log 2>&1; then
  tail -n 60 build/asan/build.log >&2
  exit 1
fi
export UBSAN_OPTIONS=print_stacktrace=1
ctest --test-dir build/asan -j "${JOBS:-$(nproc)}" --timeout 600 --output-on-failure --no-tests=error \
  --output-junit "$results/asan-ctest.xml" >build/asan/ctest.log 2>&1 || status=1
if [[ $status -eq 0 ]]; then tail -n 4 build/asan/ctest.log; else grep -vE ' Passed |^ *Start ' build/asan/ctest.log; fi

if [[ $python_tests == OFF ]]; then
  python tools/count_tests.py "$results/asan-ctest.xml"
  exit $status
fi

# The package as it is in the tree, beside the extension that carries the sanitizers.
package=build/asan/py/msprobe
rm -rf "$package"
mkdir -p "$package"
cp -r python/msprobe/. "$package"
rm -f "$package"/_core*.so
cp build/asan/bindings/_core*.so "$package"
# CPython and PyTorch leak on purpose at exit, and Python's own allocator would hide overruns.
MSPROBE_BIN=$PWD/build/asan/src/cli/msprobe \
  LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)" PYTHONMALLOC=malloc \
  ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$PWD/build/asan/py \
  python -m pytest -m 'not slow and not no_sanitizer' --junitxml "$results/asan-pytest.xml" tests/python tests/cli || status=1
python tools/count_tests.py "$results/asan-ctest.xml" "$results/asan-pytest.xml"
exit $status
