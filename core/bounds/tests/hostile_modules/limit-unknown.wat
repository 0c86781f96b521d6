;; weir_packet: unbounded: walk (byte ..): the loop's limit can be any number: cut it to a constant before the loop, as in n < MAX ? n : MAX, or take the limit from a parameter whose largest value is set in the manifest, and read the parameter right at the loop
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (local $i i32) (local $n i32)
  (local.set $n (i32.load (i32.const 64)))
  (loop $l
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br_if $l (i32.lt_u (local.get $i) (local.get $n))))
  (i32.const 0))
