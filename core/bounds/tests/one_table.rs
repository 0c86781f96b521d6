//! Bound and meter share one cost table: a change of an entry changes both by the same amount.

use crate::support::{environment, module};
use weir_bounds::charge::{ChargeAmount, ChargePlan, ChargeRules, plan};
use weir_bounds::{CostClass, CostTable, EntryPoint, ParsedModule, analyse};

/// The number of instructions of a class in the code for that class.
const TIMES: u64 = 3;

/// Straight-line code with [`TIMES`] instructions of a class, and others of other classes.
fn code(class: CostClass) -> String {
    let one = match class {
        CostClass::Free => "",
        CostClass::Move => "(drop (i32.const 1))",
        CostClass::Plain => "(drop (i32.eqz (global.get $g)))",
        CostClass::Global => "(drop (global.get $g))",
        CostClass::Memory => "(drop (i32.load (global.get $g)))",
        CostClass::Multiply => "(drop (i32.mul (global.get $g) (global.get $g)))",
        CostClass::Divide => "(drop (i32.div_u (global.get $g) (global.get $g)))",
        CostClass::Float => "(drop (f64.neg (f64.const 1)))",
        CostClass::FloatDivide => "(drop (f64.sqrt (f64.const 1)))",
        CostClass::Vector => "(drop (i8x16.splat (global.get $g)))",
        CostClass::Branch => "(block (br 0))",
        CostClass::Table => "(block (br_table 0 0 (global.get $g)))",
        CostClass::Call => "(call $nothing)",
        CostClass::CallIndirect => "(call_indirect (global.get $g))",
        CostClass::Bulk => "(memory.fill (global.get $g) (global.get $g) (global.get $zero))",
        CostClass::Grow => "(drop (memory.grow (global.get $zero)))",
    };
    one.repeat(usize::try_from(TIMES).unwrap())
}

/// Every class except control structure, which is free in every table.
const ALL: [CostClass; 15] = [
    CostClass::Move,
    CostClass::Plain,
    CostClass::Global,
    CostClass::Memory,
    CostClass::Multiply,
    CostClass::Divide,
    CostClass::Float,
    CostClass::FloatDivide,
    CostClass::Vector,
    CostClass::Branch,
    CostClass::Table,
    CostClass::Call,
    CostClass::CallIndirect,
    CostClass::Bulk,
    CostClass::Grow,
];

fn text(class: CostClass) -> String {
    format!(
        r#"(table funcref (elem $nothing))
        (global $g (mut i32) (i32.const 0))
        (global $zero i32 (i32.const 0))
        (func $nothing)
        (func (export "weir_packet") (param $d i32) (result i32) {} (local.get $d))"#,
        code(class)
    )
}

/// The total charge of a plan for straight-line code.
fn charged(plan: &ChargePlan) -> u64 {
    let constants = |function: &weir_bounds::charge::FunctionPlan| {
        let charges = function.charges.iter().map(|charge| match charge.amount {
            ChargeAmount::Constant(amount) => amount,
            _ => 0,
        });
        function.entry + charges.sum::<u64>()
    };
    plan.functions.iter().map(constants).sum()
}

/// The fuel bound and the total charge of the code for a class.
fn bound_and_charge(class: CostClass, costs: &CostTable, exact: bool) -> (u64, u64) {
    let module = ParsedModule::parse(module(&text(class))).unwrap();
    let environment = environment();
    let analysis = analyse(&module, &environment, costs).unwrap();
    let rules = ChargeRules { exact, ahead_max: 1 << 40, loop_max: 1 << 40, expensive_min: 1 << 40 };
    let plan = plan(&module, &analysis, costs, &environment, rules).unwrap();
    (analysis.entry(EntryPoint::Packet).unwrap().usage.fuel.at(0), charged(&plan))
}

#[test]
fn a_change_of_the_cost_table_changes_bound_and_charge_alike() {
    const MORE: u32 = 1_000_000;
    for class in ALL {
        for exact in [false, true] {
            let standard = CostTable::standard();
            let dearer = standard.clone().with_class_cost(class, standard.class(class) + MORE);
            let (before, after) =
                (bound_and_charge(class, &standard, exact), bound_and_charge(class, &dearer, exact));
            // The packet function's result is a move, and most operands are globals.
            let times = match class {
                CostClass::Move => TIMES + 1,
                CostClass::Global => text(class).matches("global.get").count() as u64,
                _ => TIMES,
            };
            assert_eq!(after.0 - before.0, times * u64::from(MORE), "{class:?}: the bound");
            assert_eq!(after.1 - before.1, times * u64::from(MORE), "{class:?}: the charge, exact: {exact}");
        }
    }
}

#[test]
fn control_structure_is_free() {
    for costs in [CostTable::standard(), CostTable::unit()] {
        assert_eq!(costs.class(CostClass::Free), 0);
    }
}

#[test]
fn bound_and_charge_are_equal_for_straight_line_code() {
    for class in ALL {
        for exact in [false, true] {
            let (bound, charge) = bound_and_charge(class, &CostTable::standard(), exact);
            assert_eq!(bound, charge, "{class:?}, exact: {exact}");
        }
    }
}
