#!/usr/bin/env bash
# Run every C++ and Python test of the release build.  Arguments go to pytest; without any, tests marked slow are left
# out (`make test-slow`).
# Counts are left in build/results/*.xml for tools/count_tests.py.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/${VENV:-.venv}/bin:$PATH
results=$PWD/build/results
mkdir -p "$results"
status=0

ctest --test-dir build/release -j "${JOBS:-$(nproc)}" --timeout 300 --output-on-failure --no-tests=error \
  --output-junit "$results/ctest.xml" >build/ctest.log 2>&1 || status=1
if [[ $status -eq 0 ]]; then tail -n 4 build/ctest.log; else grep -vE ' Passed |^ *Start ' build/ctest.log; fi
[[ $# -gt 0 ]] || set -- -m 'not slow'
python -m pytest --junitxml "$results/pytest.xml" "$@" || status=1
python tools/count_tests.py "$results/ctest.xml" "$results/pytest.xml"
exit $status
