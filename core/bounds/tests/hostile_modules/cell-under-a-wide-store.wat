;; weir_packet: unbounded
;; A store of eight bytes begins four bytes before the cell.
(data (i32.const 64) "\09\00\00\00")
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32)
  (i64.store (i32.const 60) (i64.const -1))
  (loop $l
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br_if $l (i32.lt_u (local.get $i) (i32.load (i32.const 64)))))
  (i32.const 0))
