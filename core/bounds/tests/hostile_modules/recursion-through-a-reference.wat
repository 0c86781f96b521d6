;; weir_packet: unbounded: calls itself: write it as a loop over a stack with the arguments of its calls, WEIR_STACK in C or containers::Stack in Rust
(type $f (func (param i32) (result i32)))
(table 1 funcref)
(func $packet (export "weir_packet") (type $f)
  (table.set (i32.const 0) (ref.func $packet))
  (call_indirect (type $f) (local.get 0) (i32.const 0)))
