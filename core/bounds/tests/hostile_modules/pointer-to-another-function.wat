;; weir_packet: bounded, at most 200
(type $f (func (param i32) (result i32)))
(table funcref (elem $other))
(func $other (type $f) (i32.const 0))
(func (export "weir_packet") (type $f)
  (call_indirect (type $f) (local.get 0) (i32.const 0)))
