#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Makes dns-sizes.wasm, or the file that is named. Needs weir in PATH, and the compiler: npm ci
set -eu
out=$(realpath -m "${1:-$(dirname "$0")/dns-sizes.wasm}")
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# stub: the other runtimes collect garbage, for which weir finds no bound. --debug keeps the names of functions.
node_modules/.bin/asc dns-sizes.ts --runtime stub --use abort=weir/abort --exportStart _initialize \
    --debug -O3 --converge --outFile "$work/dns-sizes.wasm"
"${WEIR:-weir}" pack "$work/dns-sizes.wasm" weir.toml -o "$out"
