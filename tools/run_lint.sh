#!/usr/bin/env bash
# Every check that reads the sources.  All of them run; the exit status is 1 when one failed.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/${VENV:-.venv}/bin:$PATH
failed=()

check() {
  local name=$1
  shift
  printf '== %s\n' "$name"
  "$@" || failed+=("$name")
}
format() { git ls-files '*.h' '*.cc' | xargs clang-format --dry-run -Werror; }
scripts() { local file; for file in tools/*.sh .ci/run; do bash -n "$file" || return 1; done; }

check clang-format format
check clang-tidy python tools/run_tidy.py --seconds 120
check ruff ruff check -q .
check ruff-format ruff format -q --check .
check mypy mypy
check stub python tools/make_stub.py --check
check scripts scripts
check layers python tools/check_layers.py
check promises python tools/check_promises.py
check docs python tools/check_docs.py
check hygiene python tools/check_hygiene.py

if [[ ${#failed[@]} -gt 0 ]]; then
  printf '== lint failed: %s\n' "${failed[*]}"
  exit 1
fi
printf '== lint passed\n'
