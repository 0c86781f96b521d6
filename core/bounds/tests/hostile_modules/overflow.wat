;; weir_packet: unbounded: walk (byte ..): the loop's trip count times the cost of its body is more than can be counted: make the loop's limit smaller
;; Three nested loops with 2^27 iterations each.
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32) (local $j i32) (local $k i32)
  (loop $a
    (local.set $j (i32.const 0))
    (loop $b
      (local.set $k (i32.const 0))
      (loop $c
        (i32.store (i32.const 0) (local.get $k))
        (br_if $c (i32.lt_u (local.tee $k (i32.add (local.get $k) (i32.const 1))) (i32.const 0x8000000))))
      (br_if $b (i32.lt_u (local.tee $j (i32.add (local.get $j) (i32.const 1))) (i32.const 0x8000000))))
    (br_if $a (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 0x8000000))))
  (i32.const 0))
