#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Makes dns-sizes.wasm, or the file that is named. Needs weir in PATH, and the compiler: pip install -r requirements.txt
set -eu
out=$(realpath -m "${1:-$(dirname "$0")/dns-sizes.wasm}")
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ZIG_LOCAL_CACHE_DIR="$work/local" ZIG_GLOBAL_CACHE_DIR="$work/global"

# ReleaseSafe: an index out of bounds traps. The stack is what modules in C have; weir resets its pointer after a lost call.
# bulk_memory: copies are single instructions, and no loops. Debug information becomes weir's line table.
"${PYTHON:-python3}" -m ziglang build-exe dns-sizes.zig \
    -target wasm32-freestanding -mcpu generic+bulk_memory+sign_ext+nontrapping_fptoint -O ReleaseSafe \
    -fno-entry -rdynamic --stack 16384 --export=__stack_pointer -femit-bin="$work/dns-sizes.wasm"
"${WEIR:-weir}" pack "$work/dns-sizes.wasm" weir.toml -o "$out"
