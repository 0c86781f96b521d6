//! The places and amounts of charges.

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
    ChargeRules { exact: false, ahead_max: 10_000, loop_max: 10_000, expensive_min: u64::MAX }
}

fn environment() -> Environment {
    Environment {
        parameters: vec![ParamBound::Int { min: 7, max: 7 }, ParamBound::Bytes { min: 5, max: 5 }],
        string_bytes: vec![0, 100],
        packet_max: 1500,
        pages_max: 2,
    }
}

/// An analysis without results.
fn no_analysis() -> Analysis {
    Analysis { entries: Vec::new(), loops: Vec::new(), calls: Vec::new(), host_calls: Vec::new() }
}

fn planned(body: &str, costs: &CostTable, rules: ChargeRules, is_analysed: bool) -> ChargePlan {
    let bytes = wat::parse_str(format!("(module {IMPORTS} {body})")).unwrap_or_else(|e| panic!("{e}"));
    let (module, environment) = (ParsedModule::parse(bytes).unwrap(), environment());
    let analysis = if is_analysed { analyse(&module, &environment, costs).unwrap() } else { no_analysis() };
    plan(&module, &analysis, costs, &environment, rules).unwrap()
}

/// The plan of a packet function with this body, followed by the functions `more`. No loop has a known bound.
fn packet(body: &str, more: &str) -> ChargePlan {
    let body =
        format!(r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32) {body}) {more}"#);
    planned(&body, &CostTable::standard(), rules(), false)
}

fn first(plan: &ChargePlan) -> &FunctionPlan {
    &plan.functions[0]
}

/// The constant charges of a function in code order, after that of its entry.
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
fn straight_line_code_is_charged_at_the_entry() {
    let plan = packet("(i32.add (i32.const 1) (i32.mul (i32.const 2) (i32.const 3)))", "");
    assert_eq!(
        first(&plan).entry,
        3 * cost(CostClass::Move) + cost(CostClass::Plain) + cost(CostClass::Multiply)
    );
    assert!(first(&plan).charges.is_empty() && first(&plan).has_only_entry_charge);
}

#[test]
fn the_most_expensive_of_several_paths_counts() {
    let (branch, load, one) = (cost(CostClass::Branch), cost(CostClass::Memory), cost(CostClass::Move));
    let division = 2 * one + cost(CostClass::Divide);
    let either = "(if (result i32) (local.get $d) (then (i32.load (i32.const 0))) (else (i32.div_u (local.get $d) (i32.const 3))))";
    assert!(division > load + one);
    assert_eq!(first(&packet(either, "")).entry, one + branch + division);
    // An exit from the middle, past the expensive part.
    let out =
        "(block (br_if 0 (local.get $d)) (drop (i32.div_u (local.get $d) (i32.const 3)))) (i32.const 0)";
    assert_eq!(first(&packet(out, "")).entry, one + branch + division + one);
    // Code after a jump is unreachable.
    let dead = "(return (i32.const 0)) (i32.div_u (local.get $d) (i32.const 3))";
    assert_eq!(first(&packet(dead, "")).entry, one + branch);
    // A branch table.
    let table = "(block $a (block $b (br_table $a $b (local.get $d))) (drop (i32.div_u (local.get $d) (i32.const 3)))) (i32.const 0)";
    assert_eq!(first(&packet(table, "")).entry, one + cost(CostClass::Table) + division + one);
}

#[test]
fn a_loop_is_charged_at_its_header_and_the_code_after_it_with_the_code_before() {
    let (one, branch, division) = (cost(CostClass::Move), cost(CostClass::Branch), cost(CostClass::Divide));
    let plan = packet("(loop $l (br_if $l (local.get $n))) (i32.div_u (local.get $d) (i32.const 3))", "");
    let function = first(&plan);
    assert_eq!(function.entry, 2 * one + division);
    assert_eq!(constants(function), [one + branch]);
    assert!(function.has_hot_loop && function.charges[0].side == ChargeSide::After);
    // Nested loops: each is charged at its header, and a branch out of both carries no charge of either along.
    let plan = packet(
        "(block $out (loop $l (loop $m (br_if $out (local.get $n)) (br_if $m (local.get $d))) (drop (i32.div_u (local.get $d) (i32.const 3))) (br $l))) (i32.const 0)",
        "",
    );
    assert_eq!(first(&plan).entry, one);
    assert_eq!(constants(first(&plan)), [2 * one + division + branch, 2 * (one + branch)]);
}

#[test]
fn functions_that_are_only_called_directly_are_charged_with_their_callers() {
    let leaf = "(func $leaf (drop (i32.div_u (i32.const 1) (i32.const 3))))";
    let own = 2 * cost(CostClass::Move) + cost(CostClass::Divide);
    let call = cost(CostClass::Call);
    let plan = packet("(call $leaf) (call $leaf) (i32.const 0)", leaf);
    assert_eq!((first(&plan).entry, plan.functions[1].entry), (2 * (call + own) + cost(CostClass::Move), 0));
    assert!(first(&plan).has_only_entry_charge && plan.functions[1].is_called && !first(&plan).is_called);
    // A function in a table has unknown callers.
    let plan = packet("(call $leaf) (i32.const 0)", &format!("{leaf} (table funcref (elem $leaf))"));
    assert_eq!((first(&plan).entry, plan.functions[1].entry), (call + cost(CostClass::Move), own));
    assert!(!first(&plan).has_only_entry_charge);
    // A recursive function is charged in each call.
    let plan = packet("(call $f) (i32.const 0)", "(func $f (call $g)) (func $g (call $f))");
    assert_eq!(
        plan.functions.iter().map(|f| f.entry).collect::<Vec<_>>(),
        [call + cost(CostClass::Move), call, call]
    );
}

#[test]
fn no_more_is_charged_in_advance_than_the_rules_allow() {
    let division = "(drop (i32.div_u (local.get $d) (i32.const 3)))";
    let each = 2 * cost(CostClass::Move) + cost(CostClass::Divide);
    let body = format!("{} (i32.const 0)", division.repeat(1000));
    let plan = packet(&body, "");
    let all: Vec<u64> = [first(&plan).entry].into_iter().chain(constants(first(&plan))).collect();
    assert!(all.len() > 3 && all.iter().all(|amount| *amount <= rules().ahead_max), "{all:?}");
    assert_eq!(all.iter().sum::<u64>(), 1000 * each + cost(CostClass::Move));
    // Where paths with different charges meet, all of these charges cover the code that follows: never less than what
    // runs.
    let body =
        format!("(if (local.get $d) (then {})) {} (i32.const 0)", division.repeat(300), division.repeat(10));
    let plan = packet(&body, "");
    let inside = constants(first(&plan));
    let most = first(&plan).entry + inside.iter().sum::<u64>();
    assert!(most >= 310 * each + cost(CostClass::Branch) && first(&plan).entry >= 10 * each, "{inside:?}");
}

#[test]
fn lengths_are_charged_where_they_are_on_the_stack() {
    let costs = CostTable::standard();
    let [emit, hash, log] =
        [HostFunction::Emit, HostFunction::Hash, HostFunction::Log].map(|function| costs.host(function));
    let call = cost(CostClass::Call);
    let entry =
        |body: &str| first(&packet(&format!("{body} (i32.const 0)"), "")).entry - cost(CostClass::Move);
    // Constant lengths, also below other operands; limited where the host truncates, 0 where it refuses.
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
    // The strings of a stream cost their most bytes.
    let stream =
        |stream: u32| entry(&format!("(drop (call $emit (i32.const {stream}) (i32.const 0) (i32.const 8)))"));
    assert_eq!(stream(1) - stream(0), 100 * u64::from(emit.per_byte));
    // A length that is known only at run time.
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
    assert!(matches!(fill.amount, ChargeAmount::Length(Length { above: None, units_max: 131_072, .. }, 1)));
    assert_eq!((&grow.amount, grow.side), (&ChargeAmount::Grown(costs.page().into()), ChargeSide::After));
}

#[test]
fn a_read_of_a_parameter_with_a_constant_index_is_replaced() {
    let plan = packet(
        "(drop (call $param_int (i32.const 0))) (call $param_bytes (i32.const 1) (local.get $d) (i32.const 0))",
        "",
    );
    assert_eq!(first(&plan).entry, 2 * cost(CostClass::Move));
    let replaced: Vec<_> =
        first(&plan).replaced.iter().map(|r| (r.injected.parameter, r.injected.kind)).collect();
    assert_eq!(replaced, [(0, InjectedValue::Int), (1, InjectedValue::Length)]);
    let plan = packet(
        "(drop (call $param_int (local.get $d))) (call $param_bytes (i32.const 1) (i32.const 0) (i32.const 4))",
        "",
    );
    assert!(first(&plan).replaced.is_empty());
}

#[test]
fn a_loop_with_a_small_bound_is_charged_before_it_begins() {
    let counted = |limit: &str| {
        format!(
            r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32)
                (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) {limit}))) (i32.const 0))"#
        )
    };
    let trip = 4 * cost(CostClass::Move) + 2 * cost(CostClass::Plain) + cost(CostClass::Branch);
    let plan_of =
        |limit: &str, rules: ChargeRules| planned(&counted(limit), &CostTable::standard(), rules, true);
    let plan = plan_of("(i32.const 10)", rules());
    assert!(constants(first(&plan)).is_empty() && first(&plan).entry >= 10 * trip, "{plan:?}");
    // Too much to be charged in advance.
    let plan = plan_of("(i32.const 10)", ChargeRules { ahead_max: 5 * trip, loop_max: 5 * trip, ..rules() });
    assert_eq!(constants(first(&plan)), [trip]);
    // The loop has no bound.
    let plan = plan_of("(i32.load (i32.const 0))", rules());
    assert_eq!(constants(first(&plan)).len(), 1);
}

#[test]
fn expensive_instructions_are_charged_where_they_stand() {
    let emit = u64::from(CostTable::standard().host(HostFunction::Emit).call);
    let rules = ChargeRules { expensive_min: emit, ahead_max: 1 << 40, loop_max: 1 << 40, ..rules() };
    // Charged only where it runs: neither the loop's header nor the known trip count includes it.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32)
        (local.set $n (i32.const 1000))
        (loop $l
            (if (i32.load (local.get $d)) (then (drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8)))))
            (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (i32.const 0))"#;
    let plan = planned(body, &CostTable::standard(), rules, true);
    let [header, call] = constants(first(&plan))[..] else { panic!("{plan:?}") };
    assert!(first(&plan).entry < emit && header < emit && call >= emit, "{plan:?}");
    // Without the rule, all of it is charged before the loop.
    let plan = planned(body, &CostTable::standard(), ChargeRules { expensive_min: u64::MAX, ..rules }, true);
    assert!(constants(first(&plan)).is_empty());
    let taken = first(&plan).charges.iter().map(|charge| match &charge.amount {
        ChargeAmount::Trips(_, each) => *each,
        _ => 0,
    });
    assert!(first(&plan).entry.max(taken.max().unwrap_or(0)) >= emit, "{plan:?}");
}

#[test]
fn all_charges_come_from_one_cost_table() {
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
        let rules =
            ChargeRules { ahead_max: u64::MAX, loop_max: u64::MAX, exact: false, expensive_min: u64::MAX };
        planned(body, costs, rules, false).functions[1].entry
    };
    let standard = taken(&CostTable::standard());
    for class in classes {
        let costs = CostTable::standard().with_class_cost(class, CostTable::standard().class(class) + 1);
        assert!(taken(&costs) > standard, "{class:?} is not charged by the table");
    }
    assert!(taken(&CostTable::unit()) < standard);
}

#[test]
fn with_exact_charges_every_basic_block_has_its_own() {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32)
        (if (local.get $d) (then (local.set $n (i32.const 1))) (else (local.set $n (i32.mul (local.get $d) (local.get $d)))))
        (loop $l (br_if $l (local.get $n)) (local.set $n (i32.const 5)))
        (i32.const 0))"#;
    let plan = planned(
        body,
        &CostTable::standard(),
        ChargeRules { exact: true, ahead_max: 1, loop_max: 0, expensive_min: 0 },
        false,
    );
    let (one, branch) = (cost(CostClass::Move), cost(CostClass::Branch));
    assert_eq!(first(&plan).entry, one + branch);
    assert_eq!(
        constants(first(&plan)),
        [2 * one, 3 * one + cost(CostClass::Multiply), one + branch, 2 * one, one]
    );
}
