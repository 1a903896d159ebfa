#!/usr/bin/env bash
# Install a wheel into an empty environment outside of the tree, without compilers, Debian packages or PyTorch, and use
# it.  tools/test_wheel.sh WHEEL
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$(realpath "$1")
data=$PWD/tests/data/compare/r_llama_stats_mix
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  printf 'wheel test failed: %s\n' "$*" >&2
  exit 1
}

python3 -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install -q --disable-pip-version-check --no-index "$wheel"
cd "$scratch"
# Only the environment's own programs can be found: no compiler, no cmake.
alone() { env -i HOME="$scratch" PATH="$scratch/venv/bin" "$@"; }

version=$(alone msprobe --version | head -n 1)
[[ $version == "msprobe "* ]] || fail "--version says '$version'"
[[ $(alone python -m msprobe --version | head -n 1) == "$version" ]] || fail "python -m msprobe --version"
[[ "msprobe $(alone python -c 'import msprobe; print(msprobe.__version__)')" == "$version" ]] || fail "import msprobe"
alone msprobe --version | grep -q 'commit  *[0-9a-f]' || fail "--version names no commit"

# All four libraries that are grafted are used here: vectors, YAML, xlsx, expat.
alone msprobe compare -tp "$data/target/step0/proc1/dump.json" -gp "$data/golden/step0/proc1/dump.json" -o csv >csv.log 2>&1 || fail "compare"
alone msprobe compare -tp "$data/target/step0/proc1/dump.json" -gp "$data/golden/step0/proc1/dump.json" -o xlsx --xlsx >xlsx.log 2>&1 || fail "compare --xlsx"
for file in csv/*.csv csv/*.html csv/*.json xlsx/*.xlsx; do [[ -s $file ]] || fail "no $file"; done
alone python -c 'import csv, glob; rows = list(csv.reader(open(glob.glob("csv/*.csv")[0]))); assert len(rows) > 100' ||
  fail "the report has few rows"
mkdir ranks
for rank in 0 1; do cp xlsx/*.xlsx "ranks/$(basename xlsx/*.xlsx | sed "s/result_/result_rank${rank}_/")"; done
printf 'api: [Functional]\n' >merge.yaml
alone msprobe merge_result -i ranks -o merged -config merge.yaml >merge.log 2>&1 || fail "merge_result: $(cat merge.log)"
alone msprobe init first-difference >/dev/null 2>&1 || fail init
alone msprobe completion bash >complete.sh && bash -n complete.sh || fail completion
alone msprobe doctor >doctor.log 2>&1 || grep -qi torch doctor.log || fail "doctor: $(cat doctor.log)"
alone msprobe acc_check -api_info "$data/target/step0/proc1/dump.json" --device cpu 2>check.log && fail "acc_check without PyTorch"
grep -qi torch check.log || fail "acc_check does not say that PyTorch is missing: $(cat check.log)"
grep -l Traceback ./*.log && fail "a traceback: $(cat $(grep -l Traceback ./*.log))"

# Whatever else is loaded comes from the wheel itself.
libs=$scratch/venv/lib/python3*/site-packages
for module in $libs/msprobe/*.so $libs/msprobe_native.libs/*; do
  ldd "$module" | awk '/=>/ {print $1, $3}' | while read -r name path; do
    case $path in "$scratch"/*) continue ;; esac
    case $name in
      libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | libgcc_s.so.1 | libstdc++.so.6 | libz.so.1) ;;
      *) fail "$(basename "$module") needs $name from $path" ;;
    esac
  done
done
for notice in nanobind django-js-lib-tabulator libhwy-dev libyaml-cpp-dev libxlsxwriter-dev; do
  [[ -s $(echo $libs/msprobe_native-*.dist-info/licenses/third-party/$notice.txt) ]] || fail "no licence of $notice"
done
printf '== wheel test passed: %s, installed %s KB\n' "$version" "$(du -ck $libs/msprobe $libs/msprobe_native.libs | tail -n 1 | cut -f 1)"
