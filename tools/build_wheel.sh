#!/usr/bin/env bash
# Build a wheel that needs nothing but Python and glibc, and test it.  tools/build_wheel.sh [FOLDER]
#
#   FOLDER     where the wheel goes (dist)
#   VENV=      the environment with the build tools (.venv)
#   BUILD=     the CMake tree (build/release), shared with `make setup`, so that nothing is compiled twice
#
# The libraries of Debian that are no part of glibc or libstdc++ are put into the wheel by auditwheel, which also finds
# the oldest glibc that it runs with and names the wheel after it; their licences go in beside ours.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=${1:-dist}
venv=${VENV:-.venv}
build=${BUILD:-build/release}
bin=$(cd "$venv/bin" && pwd)
export PATH=$bin:$PATH CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

printf '== building\n'
tests=OFF
if grep -qs '^MSPROBE_TESTS:BOOL=ON' "$build/CMakeCache.txt"; then tests=ON; fi
if ! python -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w "$scratch/raw" \
  -C build-dir="$build" -C cmake.define.MSPROBE_TESTS=$tests \
  . >"$scratch/log" 2>&1; then
  tail -n 60 "$scratch/log" >&2
  exit 1
fi

printf '== grafting libraries\n'
python tools/graft_licences.py "$scratch"/raw/*.whl
auditwheel repair -w "$scratch/fixed" "$scratch"/raw/*.whl >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; exit 1; }
mkdir -p "$dist"
rm -f "$dist"/msprobe_native-*.whl
cp "$scratch"/fixed/*.whl "$dist/"
wheel=$(ls "$dist"/msprobe_native-*.whl)
printf '== %s: %d KB\n' "$wheel" $(($(stat -c %s "$wheel") / 1024))
tools/test_wheel.sh "$wheel"
