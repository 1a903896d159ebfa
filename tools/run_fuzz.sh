#!/usr/bin/env bash
# Build the fuzzers and let them look: tools/run_fuzz.sh SECONDS [--until CPU_SECONDS] [TARGET ...]; without names, all
# targets, one after the other.  tools/run_fuzz.py says what comes out.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/${VENV:-.venv}/bin:$PATH
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
mkdir -p build/fuzz
printf '== building the fuzzer; see build/fuzz/build.log\n'
{ cmake --preset fuzz && cmake --build --preset fuzz; } >build/fuzz/build.log 2>&1 || {
  tail -n 60 build/fuzz/build.log >&2
  exit 1
}
exec python3 tools/run_fuzz.py "$@"
