#!/usr/bin/env bash
# Install what is missing and build.  tools/setup.sh PART...
#
#   build   Debian packages, the environment, PyTorch, msprobe itself
#   demo    the demo's models and data
#   test    what the tests need, and the C++ tests themselves
#   lint    format, lint and type checkers
#   bench   what the benchmarks need
#   wheel   what the wheel is mended with
#   docs    what the site of the documents is made with
#   fuzz    the compiler with the fuzzer's run-time library
#   arm64   the cross compiler for aarch64 and what runs its programs here
#
# Everything is kept under a stamp made of the hash of what it was made from: run again, this takes a second.
# Debian packages are installed only when missing; without root the command to run is printed (exit status 2).
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${VENV:-.venv}
# One compiler cache serves every clone on this machine.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
stamps=$venv/stamps
torch_version=2.13.0
parts=" $* "
wants() { [[ $parts == *" $1 "* ]]; }
say() { printf '== %s\n' "$*"; }
listed() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$@"; }

debian_packages() {
  local files=() package
  wants build && files+=(tools/packages/apt-build.txt)
  wants test && files+=(tools/packages/apt-test.txt)
  wants bench && files+=(tools/packages/apt-bench.txt)
  wants fuzz && files+=(tools/packages/apt-fuzz.txt)
  wants arm64 && files+=(tools/packages/apt-arm64.txt)
  [[ ${#files[@]} -gt 0 ]] || return 0
  local missing=()
  for package in $(listed "${files[@]}"); do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if [[ $(id -u) -ne 0 ]]; then
    printf 'These Debian packages are missing. Please run this once, then try again:\n\n' >&2
    printf '  sudo apt-get update && sudo apt-get install --no-install-recommends %s\n\n' "${missing[*]}" >&2
    exit 2
  fi
  say "installing Debian packages: ${missing[*]}"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "${missing[@]}" >/dev/null
}

# step NAME HASH COMMAND...: run the command unless it already ran for this hash.
step() {
  local name=$1 hash=$2
  shift 2
  [[ -f $stamps/$name && $(<"$stamps/$name") == "$hash" ]] && return 0
  "$@"
  mkdir -p "$stamps"
  printf '%s\n' "$hash" >"$stamps/$name"
}

environment() {
  if [[ ! -x $venv/bin/python ]]; then
    say "making a private Python environment in $venv"
    python3 -m venv "$venv"
  fi
}

pip_install() { "$venv/bin/python" -m pip install -q --disable-pip-version-check "$@"; }

pip_list() {
  local name=$1
  say "installing Python packages: $(listed "tools/packages/pip-$name.txt" | tr '\n' ' ')"
  pip_install -r "tools/packages/pip-$name.txt"
}

torch() {
  say "installing PyTorch $torch_version"
  pip_install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==$torch_version"
}

hash_of() { cat "$@" | sha256sum | cut -c1-16; }

# Everything a build is made from, and the options it is made with.
source_hash() {
  { printf '%s\n' "$venv" "${WERROR:-OFF}" "$@"
    find src bindings python cmake CMakeLists.txt pyproject.toml VERSION tools/embed_assets.py -type f \
      ! -name '*.so' ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  } | sha256sum | cut -c1-16
}

build() {
  local tests=$1 log=build/build.log
  say "building msprobe (C++ tests: $tests) and installing it into $venv; the first time takes minutes, see $log"
  if [[ -n ${JOBS:-} ]]; then export CMAKE_BUILD_PARALLEL_LEVEL=$JOBS; fi
  mkdir -p build
  if ! PATH=$PWD/$venv/bin:$PATH "$venv/bin/python" -m pip install -v --disable-pip-version-check \
    --no-build-isolation --no-deps --force-reinstall -C build-dir=build/release \
    -C "cmake.define.MSPROBE_TESTS=$tests" -C "cmake.define.MSPROBE_WERROR=${WERROR:-OFF}" . >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    say "the build failed; all of its output is in $log" >&2
    exit 1
  fi
}

debian_packages
environment
if wants build; then
  step pip-build "$(hash_of tools/packages/pip-build.txt)" pip_list build
  step torch "$torch_version" torch
  step pip-run "$(hash_of tools/packages/pip-run.txt)" pip_list run
fi
for part in demo test lint wheel docs; do
  if wants $part; then step pip-$part "$(hash_of "tools/packages/pip-$part.txt")" pip_list $part; fi
done
if wants build; then
  # Once a tree builds its tests it keeps doing so: switching back and forth would relink for nothing.
  tests=OFF
  if wants test || grep -qs '^MSPROBE_TESTS:BOOL=ON' build/release/CMakeCache.txt; then tests=ON; fi
  step build "$(source_hash "$tests")" build "$tests"
fi
