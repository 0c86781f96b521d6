;; weir_packet: unbounded: walk (byte ..): this loop has no way out: add one, remove the loop, or count it with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust
(func $walk (export "weir_packet") (param $d i32) (result i32)
  (loop $l (br $l))
  (i32.const 0))
