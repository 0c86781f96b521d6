#!/bin/sh
# Compiles module.c for both levels of CPU features. For each level it writes the code with its constants (.bin) and the
# functions (.txt: offset in hexadecimal, and name). Needs clang-19, GNU ld, objcopy and nm.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cat > "$work/image.ld" <<'SCRIPT'
thunk0 = 0 - 16;
thunk1_stack16 = 0 - 32;
SECTIONS {
  . = 0;
  .text : { *(.text .text.*) }
  code_end = .;
  . = ALIGN(4096);
  .rodata : { *(.rodata .rodata.*) }
  /DISCARD/ : { *(*) }
}
SCRIPT
for level in v2 v3; do
  clang-19 -O3 -march=x86-64-$level -c module.c -o "$work/module.o" -ffreestanding -fno-builtin -fno-jump-tables \
    -fno-optimize-sibling-calls -mno-red-zone -fno-stack-protector -fno-asynchronous-unwind-tables -fcf-protection=none \
    -ffp-contract=off -fno-math-errno -fomit-frame-pointer -fpie -fvisibility=hidden -mno-fma -mno-f16c
  ld -static -nostdlib -e 0 -T "$work/image.ld" "$work/module.o" -o "$work/module.elf"
  objcopy -O binary "$work/module.elf" "module-$level.bin"
  nm -n "$work/module.elf" | awk '$2 ~ /^[tT]$/ { print $1, $3 }' > "module-$level.txt"
done
