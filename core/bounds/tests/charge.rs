//! Where charges stand, and how much they take.

use weir_abi::host::HostFunction;
use weir_bounds::charge::{ChargeAmount, ChargePlan, ChargeRules, ChargeSide, FunctionPlan, plan};
use weir_bounds::{
    Analysis, CostClass, CostTable, Environment, InjectedValue, Length, ParamBound, ParsedModule, analyse,
};

const IMPORTS: &str = r#"
    (import "weir" "emit" (func $emit (param i32 i32 i32) (result i32)))
    (import "weir" "hash" (func $hash (param i32 i32 i64) (result i64)))
    (import "weir" "log" (func $log (param i32 i32 i32) (result i32)))
    (import "weir" "param_int" (func $param_int (param i32) (result i64)))
    (import "weir" "param_bytes" (func $param_bytes (param i32 i32 i32) (result i32)))
    (memory (export "memory") 1)"#;

fn rules() -> ChargeRules {
    ChargeRules { exact: false, ahead: 10_000, piece: 10_000, dear: u64::MAX }
}

fn environment() -> Environment {
    Environment {
        parameters: vec![ParamBound::Int { min: 7, max: 7 }, ParamBound::Bytes { min: 5, max: 5 }],
        string_bytes: vec![0, 100],
        packet_max: 1500,
        pages_max: 2,
    }
}

fn none() -> Analysis {
    Analysis { entries: Vec::new(), loops: Vec::new(), calls: Vec::new(), host_calls: Vec::new() }
}

fn planned(body: &str, costs: &CostTable, rules: ChargeRules, is_analysed: bool) -> ChargePlan {
    let bytes = wat::parse_str(format!("(module {IMPORTS} {body})")).unwrap_or_else(|e| panic!("{e}"));
    let (module, environment) = (ParsedModule::parse(bytes).unwrap(), environment());
    let analysis = if is_analysed { analyse(&module, &environment, costs).unwrap() } else { none() };
    plan(&module, &analysis, costs, &environment, rules).unwrap()
}

/// The plan of a packet function with this body, and `more` functions after it. Nothing is known about its loops.
fn packet(body: &str, more: &str) -> ChargePlan {
    let body =
        format!(r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32) {body}) {more}"#);
    planned(&body, &CostTable::standard(), rules(), false)
}

fn first(plan: &ChargePlan) -> &FunctionPlan {
    &plan.functions[0]
}

/// The constant charges of a function, in the order of its code, after that of its entry.
fn constants(plan: &FunctionPlan) -> Vec<u64> {
    let all = plan.charges.iter().map(|charge| match charge.amount {
        ChargeAmount::Constant(amount) => Some(amount),
        _ => None,
    });
    all.flatten().collect()
}

fn cost(class: CostClass) -> u64 {
    CostTable::standard().class(class).into()
}

#[test]
fn straight_code_is_charged_for_at_the_entry() {
    let plan = packet("(i32.add (i32.const 1) (i32.mul (i32.const 2) (i32.const 3)))", "");
    assert_eq!(
        first(&plan).entry,
        3 * cost(CostClass::Move) + cost(CostClass::Plain) + cost(CostClass::Multiply)
    );
    assert!(first(&plan).charges.is_empty() && first(&plan).is_silent);
}

#[test]
fn of_several_ways_the_dearest_counts() {
    let (branch, load, one) = (cost(CostClass::Branch), cost(CostClass::Memory), cost(CostClass::Move));
    let division = 2 * one + cost(CostClass::Divide);
    let either = "(if (result i32) (local.get $d) (then (i32.load (i32.const 0))) (else (i32.div_u (local.get $d) (i32.const 3))))";
    assert!(division > load + one);
    assert_eq!(first(&packet(either, "")).entry, one + branch + division);
    // A way out of the middle, past the dear part.
    let out =
        "(block (br_if 0 (local.get $d)) (drop (i32.div_u (local.get $d) (i32.const 3)))) (i32.const 0)";
    assert_eq!(first(&packet(out, "")).entry, one + branch + division + one);
    // Behind a jump there is nothing.
    let dead = "(return (i32.const 0)) (i32.div_u (local.get $d) (i32.const 3))";
    assert_eq!(first(&packet(dead, "")).entry, one + branch);
    // A table of ways.
    let table = "(block $a (block $b (br_table $a $b (local.get $d))) (drop (i32.div_u (local.get $d) (i32.const 3)))) (i32.const 0)";
    assert_eq!(first(&packet(table, "")).entry, one + cost(CostClass::Table) + division + one);
}

#[test]
fn a_loop_is_charged_for_at_its_header_and_what_follows_it_with_what_is_before() {
    let (one, branch, division) = (cost(CostClass::Move), cost(CostClass::Branch), cost(CostClass::Divide));
    let plan = packet("(loop $l (br_if $l (local.get $n))) (i32.div_u (local.get $d) (i32.const 3))", "");
    let function = first(&plan);
    assert_eq!(function.entry, 2 * one + division);
    assert_eq!(constants(function), [one + branch]);
    assert!(function.has_hot_loop && function.charges[0].side == ChargeSide::After);
    // A loop in a loop: each pays for itself, and a branch out of both brings nothing of them along.
    let plan = packet(
        "(block $out (loop $l (loop $m (br_if $out (local.get $n)) (br_if $m (local.get $d))) (drop (i32.div_u (local.get $d) (i32.const 3))) (br $l))) (i32.const 0)",
        "",
    );
    assert_eq!(first(&plan).entry, one);
    assert_eq!(constants(first(&plan)), [2 * one + division + branch, 2 * (one + branch)]);
}

#[test]
fn functions_are_charged_for_with_their_callers_where_that_is_known() {
    let leaf = "(func $leaf (drop (i32.div_u (i32.const 1) (i32.const 3))))";
    let own = 2 * cost(CostClass::Move) + cost(CostClass::Divide);
    let call = cost(CostClass::Call);
    let plan = packet("(call $leaf) (call $leaf) (i32.const 0)", leaf);
    assert_eq!((first(&plan).entry, plan.functions[1].entry), (2 * (call + own) + cost(CostClass::Move), 0));
    assert!(first(&plan).is_silent && plan.functions[1].is_called && !first(&plan).is_called);
    // In a table it can be called by anybody.
    let plan = packet("(call $leaf) (i32.const 0)", &format!("{leaf} (table funcref (elem $leaf))"));
    assert_eq!((first(&plan).entry, plan.functions[1].entry), (call + cost(CostClass::Move), own));
    assert!(!first(&plan).is_silent);
    // What calls itself is charged for each time.
    let plan = packet("(call $f) (i32.const 0)", "(func $f (call $g)) (func $g (call $f))");
    assert_eq!(
        plan.functions.iter().map(|f| f.entry).collect::<Vec<_>>(),
        [call + cost(CostClass::Move), call, call]
    );
}

#[test]
fn no_more_is_charged_beforehand_than_the_rules_say() {
    let division = "(drop (i32.div_u (local.get $d) (i32.const 3)))";
    let each = 2 * cost(CostClass::Move) + cost(CostClass::Divide);
    let body = format!("{} (i32.const 0)", division.repeat(1000));
    let plan = packet(&body, "");
    let all: Vec<u64> = [first(&plan).entry].into_iter().chain(constants(first(&plan))).collect();
    assert!(all.len() > 3 && all.iter().all(|amount| *amount <= rules().ahead), "{all:?}");
    assert_eq!(all.iter().sum::<u64>(), 1000 * each + cost(CostClass::Move));
    // Where ways meet that are covered by different charges, all of them pay for what follows: never less than what runs.
    let body =
        format!("(if (local.get $d) (then {})) {} (i32.const 0)", division.repeat(300), division.repeat(10));
    let plan = packet(&body, "");
    let inside = constants(first(&plan));
    let most = first(&plan).entry + inside.iter().sum::<u64>();
    assert!(most >= 310 * each + cost(CostClass::Branch) && first(&plan).entry >= 10 * each, "{inside:?}");
}

#[test]
fn lengths_are_charged_where_they_are_known() {
    let costs = CostTable::standard();
    let [emit, hash, log] =
        [HostFunction::Emit, HostFunction::Hash, HostFunction::Log].map(|function| costs.host(function));
    let call = cost(CostClass::Call);
    let entry =
        |body: &str| first(&packet(&format!("{body} (i32.const 0)"), "")).entry - cost(CostClass::Move);
    // Constants, also with something above them; cut where the host cuts, nothing where it refuses.
    let constant =
        |host: weir_abi::host::CallCost, bytes: u64| u64::from(host.call) + u64::from(host.per_byte) * bytes;
    assert_eq!(
        entry("(drop (call $hash (i32.const 0) (i32.const 64) (i64.const 1)))"),
        call + 3 * cost(CostClass::Move) + constant(hash, 64)
    );
    assert_eq!(
        entry("(drop (call $hash (i32.const 0) (i32.const -1) (i64.const 1)))"),
        call + 3 * cost(CostClass::Move) + constant(hash, 0)
    );
    assert_eq!(
        entry("(drop (call $log (i32.const 0) (i32.const 0) (i32.const -1)))"),
        call + 3 * cost(CostClass::Move) + constant(log, weir_abi::limit::LOG_BYTES.into())
    );
    // A stream with strings costs what its strings can cost.
    let stream =
        |stream: u32| entry(&format!("(drop (call $emit (i32.const {stream}) (i32.const 0) (i32.const 8)))"));
    assert_eq!(stream(1) - stream(0), 100 * u64::from(emit.per_byte));
    // Known only at run time.
    let plan = packet("(drop (call $hash (i32.const 0) (local.get $d) (i64.const 1))) (i32.const 0)", "");
    assert_eq!(first(&plan).entry, call + 4 * cost(CostClass::Move) + constant(hash, 0));
    let [charge] = first(&plan).charges.as_slice() else { panic!("{plan:?}") };
    assert!(
        matches!(charge.amount, ChargeAmount::Length(Length { above: Some(_), .. }, each) if each == u64::from(hash.per_byte))
    );
    let plan =
        packet("(memory.fill (i32.const 0) (i32.const 0) (local.get $d)) (memory.grow (local.get $d))", "");
    let varying: Vec<_> =
        first(&plan).charges.iter().filter(|c| !matches!(c.amount, ChargeAmount::Constant(_))).collect();
    let [fill, grow] = varying.as_slice() else { panic!("{plan:?}") };
    assert!(matches!(fill.amount, ChargeAmount::Length(Length { above: None, most: 131_072, .. }, 1)));
    assert_eq!((&grow.amount, grow.side), (&ChargeAmount::Grown(costs.page().into()), ChargeSide::After));
}

#[test]
fn a_read_of_a_parameter_that_is_known_is_a_constant() {
    let plan = packet(
        "(drop (call $param_int (i32.const 0))) (call $param_bytes (i32.const 1) (local.get $d) (i32.const 0))",
        "",
    );
    assert_eq!(first(&plan).entry, 2 * cost(CostClass::Move));
    let replaced: Vec<_> =
        first(&plan).replaced.iter().map(|r| (r.injected.parameter, r.injected.what)).collect();
    assert_eq!(replaced, [(0, InjectedValue::Int), (1, InjectedValue::Length)]);
    let plan = packet(
        "(drop (call $param_int (local.get $d))) (call $param_bytes (i32.const 1) (i32.const 0) (i32.const 4))",
        "",
    );
    assert!(first(&plan).replaced.is_empty());
}

#[test]
fn a_loop_that_is_known_is_not_charged_for_inside() {
    let counted = |limit: &str| {
        format!(
            r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32)
                (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) {limit}))) (i32.const 0))"#
        )
    };
    let trip = 4 * cost(CostClass::Move) + 2 * cost(CostClass::Plain) + cost(CostClass::Branch);
    let of = |limit: &str, rules: ChargeRules| planned(&counted(limit), &CostTable::standard(), rules, true);
    let plan = of("(i32.const 10)", rules());
    assert!(constants(first(&plan)).is_empty() && first(&plan).entry >= 10 * trip, "{plan:?}");
    // Too much to be charged beforehand.
    let plan = of("(i32.const 10)", ChargeRules { ahead: 5 * trip, piece: 5 * trip, ..rules() });
    assert_eq!(constants(first(&plan)), [trip]);
    // Nothing is known of its end.
    let plan = of("(i32.load (i32.const 0))", rules());
    assert_eq!(constants(first(&plan)).len(), 1);
}

#[test]
fn what_is_dear_is_charged_for_where_it_stands() {
    let emit = u64::from(CostTable::standard().host(HostFunction::Emit).call);
    let rules = ChargeRules { dear: emit, ahead: 1 << 40, piece: 1 << 40, ..rules() };
    // Only where the loop comes by: its header does not take it, though it is known how often the loop goes round.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32)
        (local.set $n (i32.const 1000))
        (loop $l
            (if (i32.load (local.get $d)) (then (drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8)))))
            (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (i32.const 0))"#;
    let plan = planned(body, &CostTable::standard(), rules, true);
    let [header, call] = constants(first(&plan))[..] else { panic!("{plan:?}") };
    assert!(first(&plan).entry < emit && header < emit && call >= emit, "{plan:?}");
    // Without the rule all of it is taken before the loop.
    let plan = planned(body, &CostTable::standard(), ChargeRules { dear: u64::MAX, ..rules }, true);
    assert!(constants(first(&plan)).is_empty());
    let taken = first(&plan).charges.iter().map(|charge| match &charge.amount {
        ChargeAmount::Trips(_, each) => *each,
        _ => 0,
    });
    assert!(first(&plan).entry.max(taken.max().unwrap_or(0)) >= emit, "{plan:?}");
}

#[test]
fn there_is_one_table_for_all_charges() {
    let body = r#"(table $t 1 funcref) (global $g (mut i32) (i32.const 0)) (func $f)
        (func (export "weir_packet") (param $d i32) (result i32)
            (block (br_if 0 (local.get $d)))
            (drop (i32.div_u (i32.mul (i32.add (i32.load (i32.const 0)) (global.get $g)) (i32.const 3)) (i32.const 3)))
            (drop (f64.div (f64.add (f64.const 1) (f64.const 2)) (f64.const 3)))
            (drop (i32x4.add (v128.const i64x2 0 0) (v128.const i64x2 0 0)))
            (call $f) (call_indirect $t (i32.const 0))
            (memory.fill (i32.const 0) (i32.const 0) (i32.const 8))
            (drop (memory.grow (i32.const 0)))
            (block (br_table 0 0 (i32.const 0)))
            (i32.const 0))"#;
    use CostClass as C;
    let classes = [
        C::Move,
        C::Plain,
        C::Global,
        C::Memory,
        C::Multiply,
        C::Divide,
        C::Float,
        C::FloatDivide,
        C::Vector,
        C::Branch,
        C::Table,
        C::Call,
        C::CallIndirect,
        C::Bulk,
        C::Grow,
    ];
    let taken = |costs: &CostTable| {
        let rules = ChargeRules { ahead: u64::MAX, piece: u64::MAX, exact: false, dear: u64::MAX };
        planned(body, costs, rules, false).functions[1].entry
    };
    let standard = taken(&CostTable::standard());
    for class in classes {
        let costs = CostTable::standard().with(class, CostTable::standard().class(class) + 1);
        assert!(taken(&costs) > standard, "{class:?} is not charged by the table");
    }
    assert!(taken(&CostTable::unit()) < standard);
}

#[test]
fn where_charges_are_exact_every_block_has_its_own() {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32)
        (if (local.get $d) (then (local.set $n (i32.const 1))) (else (local.set $n (i32.mul (local.get $d) (local.get $d)))))
        (loop $l (br_if $l (local.get $n)) (local.set $n (i32.const 5)))
        (i32.const 0))"#;
    let plan = planned(
        body,
        &CostTable::standard(),
        ChargeRules { exact: true, ahead: 1, piece: 0, dear: 0 },
        false,
    );
    let (one, branch) = (cost(CostClass::Move), cost(CostClass::Branch));
    assert_eq!(first(&plan).entry, one + branch);
    assert_eq!(
        constants(first(&plan)),
        [2 * one, 3 * one + cost(CostClass::Multiply), one + branch, 2 * one, one]
    );
}
