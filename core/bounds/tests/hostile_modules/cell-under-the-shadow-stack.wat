;; weir_packet: unbounded
;; The stack grows down over the cell; its frames are written without a check.
(func $deep (param $n i32)
  (local $frame i32)
  (global.set $__stack_pointer (local.tee $frame (i32.sub (global.get $__stack_pointer) (i32.const 2032))))
  (i32.store (local.get $frame) (i32.const -1))
  (i32.store offset=2000 (local.get $frame) (i32.const -1))
  (global.set $__stack_pointer (i32.add (local.get $frame) (i32.const 2032))))
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32) (local $frame i32)
  (i32.store (i32.const 64) (i32.const 9))
  (global.set $__stack_pointer (local.tee $frame (i32.sub (global.get $__stack_pointer) (i32.const 2000))))
  (call $deep (i32.const 0))
  (loop $l
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br_if $l (i32.lt_u (local.get $i) (i32.load (i32.const 64)))))
  (global.set $__stack_pointer (i32.add (local.get $frame) (i32.const 2000)))
  (i32.const 0))
