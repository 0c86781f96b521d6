//! Tests of pictures: boxes do not overlap, lines do not go through boxes, and hostile texts stay texts.

use super::try_parse;
use proptest::prelude::*;
use weir_graph::drawing::{BOXES_MAX, DrawingError, DrawingFormat, DrawingOptions, GraphDrawing, draw};
use weir_graph::engine::{ElementClass, ElementClasses};

/// No class is known: all ports are agnostic.
struct NoClasses;

impl ElementClasses for NoClasses {
    fn find(&self, _: &str) -> Option<&'static ElementClass> {
        None
    }

    fn names(&self) -> Vec<&'static str> {
        Vec::new()
    }
}

fn try_draw(text: &str, options: &DrawingOptions) -> Result<GraphDrawing, DrawingError> {
    draw(&try_parse(text).unwrap(), &NoClasses, options)
}

fn svg(text: &str) -> String {
    try_draw(text, &DrawingOptions::default()).unwrap().text
}

/// A rectangle: left, top, right and lower side.
type Rectangle = [i64; 4];

/// The shapes of a picture, in the coordinates of the whole.
#[derive(Debug, Default)]
struct Shapes {
    /// The boxes of elements, and of compound elements that are drawn as single boxes.
    boxes: Vec<Rectangle>,
    /// The boxes around components.
    compounds: Vec<Rectangle>,
    lines: Vec<Vec<(i64, i64)>>,
    texts: Vec<String>,
}

fn attribute<'t>(tag: &'t str, name: &str) -> &'t str {
    let from = tag.find(&format!(" {name}=\"")).unwrap_or_else(|| panic!("{name} in {tag}"));
    tag[from..].split('"').nth(1).unwrap()
}

fn number(tag: &str, name: &str) -> i64 {
    attribute(tag, name).parse().unwrap()
}

fn unescaped(text: &str) -> String {
    assert!(!text.contains(['<', '>', '"', '\'']), "{text}");
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}

/// Reads a picture as a sequence of tags, and checks that they are nested.
fn shapes(svg: &str) -> Shapes {
    let mut shapes = Shapes::default();
    // The open tags, with the place of their coordinates, and true for a compound element.
    let mut open: Vec<(&str, (i64, i64))> = vec![("", (0, 0))];
    let mut group_has_lines = vec![false];
    let mut pending: Vec<Option<Rectangle>> = vec![None];
    for part in svg.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap();
        let name = tag.split(|c: char| c.is_whitespace() || c == '/').find(|it| !it.is_empty()).unwrap();
        let (x, y) = open.last().unwrap().1;
        if !text.trim().is_empty() && open.last().unwrap().0 != "style" && name != "style" {
            shapes.texts.push(unescaped(text.trim()));
        }
        if tag.starts_with('/') {
            assert_eq!(open.pop().unwrap().0, name, "{tag}");
            if name == "g" {
                let is_compound = group_has_lines.pop().unwrap();
                if let Some(rectangle) = pending.pop().unwrap() {
                    if is_compound { &mut shapes.compounds } else { &mut shapes.boxes }.push(rectangle);
                }
            }
            continue;
        }
        let mut place = (x, y);
        match name {
            "g" => {
                let shift =
                    attribute(tag, "transform").trim_start_matches("translate(").trim_end_matches(')');
                let (a, b) = shift.split_once(',').unwrap();
                place = (x + a.parse::<i64>().unwrap(), y + b.parse::<i64>().unwrap());
                *group_has_lines.last_mut().unwrap() = true;
                group_has_lines.push(false);
                pending.push(None);
            }
            "rect" if !tag.contains(" x=") && !tag.contains("\"page\"") => {
                let (width, height) = (number(tag, "width"), number(tag, "height"));
                *pending.last_mut().unwrap() = Some([x, y, x + width, y + height]);
            }
            "path" if attribute(tag, "class").starts_with("line") => {
                let numbers: Vec<i64> = attribute(tag, "d")
                    .split(['M', 'L', 'Q', ' '])
                    .filter(|it| !it.is_empty())
                    .map(|it| it.parse().unwrap())
                    .collect();
                shapes.lines.push(numbers.chunks(2).map(|point| (x + point[0], y + point[1])).collect());
            }
            _ => {}
        }
        if !tag.ends_with('/') {
            open.push((name, place));
        }
    }
    assert_eq!(open.len(), 1, "a tag is not closed");
    shapes
}

/// Returns true if a segment goes through the inside of a rectangle.
fn goes_through(a: (i64, i64), b: (i64, i64), of: &Rectangle) -> bool {
    let [left, top, right, bottom] = of;
    a.0.max(b.0) > *left && a.0.min(b.0) < *right && a.1.max(b.1) > *top && a.1.min(b.1) < *bottom
}

fn check_shapes(svg: &str) -> Shapes {
    let shapes = shapes(svg);
    for (index, a) in shapes.boxes.iter().enumerate() {
        for b in &shapes.boxes[..index] {
            assert!(!goes_through((a[0], a[1]), (a[2], a[3]), b), "{a:?} overlaps {b:?}\n{svg}");
        }
        for line in &shapes.lines {
            for ends in line.windows(2) {
                assert!(!goes_through(ends[0], ends[1], a), "{ends:?} goes through {a:?}\n{svg}");
            }
        }
    }
    shapes
}

#[test]
fn a_compound_element_is_a_box_around_its_components() {
    let svg = svg("a :: A -> c :: { input -> b :: B -> { -> d :: D -> } -> output } -> e :: E -> a");
    let shapes = check_shapes(&svg);
    assert_eq!((shapes.boxes.len(), shapes.compounds.len()), (4, 2));
    let inside = |inner: &Rectangle, outer: &Rectangle| {
        inner[0] > outer[0] && inner[1] > outer[1] && inner[2] < outer[2] && inner[3] < outer[3]
    };
    // The inner compound element ends first.
    let [inner, outer] = shapes.compounds.as_slice() else { panic!("{shapes:?}") };
    assert!(inside(inner, outer));
    assert_eq!(shapes.boxes.iter().filter(|it| inside(it, outer)).count(), 2);
    assert_eq!(shapes.boxes.iter().filter(|it| inside(it, inner)).count(), 1);
    // Five connections; two lead into the outer compound element, two lead out of the inner one.
    assert!(svg.contains("b [0] -&gt; [0] c/@2/d"), "{svg}");
}

#[test]
fn compound_elements_below_the_depth_are_single_boxes() {
    let text = "a :: A -> c :: { input -> b :: B -> { -> d :: D -> } -> output } -> e :: E";
    let at = |depth| try_draw(text, &DrawingOptions { depth: Some(depth), ..Default::default() }).unwrap();
    let (closed, open, all) = (at(0), at(1), at(2));
    assert_eq!(check_shapes(&closed.text).boxes.len(), 3);
    assert!(closed.text.contains(">2 elements<") && !closed.text.contains(">B<"));
    assert_eq!(check_shapes(&open.text).compounds.len(), 1);
    assert!(open.text.contains(">1 element<") && open.text.contains(">B<") && !open.text.contains(">D<"));
    assert_eq!(all.text, svg(text));
    assert_eq!((closed.collapsed, open.collapsed, all.collapsed), (0, 0, 0), "as it was asked for");
}

#[test]
fn hostile_texts_stay_texts() {
    let hostile = "\"</title><script>alert(1)</script>&amp;]]>\u{202e}\u{1}\u{ffff}'\"";
    let text = format!("a :: A({hostile}) -> B(\"{}\")", "<&>".repeat(100_000));
    let svg = svg(&text);
    let shapes = check_shapes(&svg);
    assert!(!svg.contains("<script"));
    let tooltip = shapes.texts.iter().find(|text| text.contains("a :: A")).unwrap();
    assert!(tooltip.contains("</title><script>alert(1)</script>&amp;]]>\\u{202e}"), "{tooltip}");
    assert!(!svg.contains(['\u{202e}', '\u{1}', '\u{ffff}']));
    assert!(shapes.texts.iter().any(|text| text.ends_with("more characters)")));
    assert!(svg.len() < 60_000, "{} bytes", svg.len());
    let dot = DrawingOptions { format: DrawingFormat::Dot, depth: None };
    let dot = try_draw("a :: A(\"x\\\"];evil\") -> c :: { -> B -> } -> D", &dot).unwrap().text;
    assert!(dot.contains("tooltip=\"test:1\\na :: A(\\\"x\\\\\\\"];evil\\\")\""), "{dot}");
    assert!(dot.contains("subgraph cluster_") && dot.matches(" -> b").count() == 2, "{dot}");
}

#[test]
fn a_large_configuration_is_drawn_with_compound_elements_as_single_boxes() {
    // 100,000 elements in 1,000 compound elements.
    let inner = "X -> ".repeat(99);
    let text =
        format!("elementclass C {{ input -> {inner} X -> output }} s :: S -> {} T", "C -> ".repeat(1_000));
    let drawing = try_draw(&text, &DrawingOptions::default()).unwrap();
    assert_eq!(drawing.collapsed, 1_000);
    assert_eq!(check_shapes(&drawing.text).boxes.len(), 1_002);
    // With all of them on the first level, there is no picture.
    let flat = format!("s :: S -> {} T", "X -> ".repeat(100_000));
    let error = try_draw(&flat, &DrawingOptions::default()).unwrap_err();
    assert_eq!(error, DrawingError::Limit { what: "boxes", count: 100_002, max: BOXES_MAX });
    assert!(error.to_string().contains("compound elements"), "{error}");
}

#[test]
fn the_work_for_hostile_graphs_is_bounded() {
    let options = DrawingOptions::default();
    let limit = |text: &str| match try_draw(text, &options) {
        Err(DrawingError::Limit { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    // Each element is connected to all later ones.
    let mut all: String = (0..300).map(|index| format!("e{index} :: E;")).collect();
    for from in 0..300 {
        for to in from + 1..300 {
            all += &format!("e{from}[{}] -> [{from}]e{to};", to - from - 1);
        }
    }
    assert_eq!(limit(&all), "ports");
    // Lines of 2,000 lengths pass through 4,000 layers.
    let mut long: String = (0..4_000).map(|index| format!("e{index} :: E;")).collect();
    for index in 0..3_999 {
        long += &format!("e{index}[0] -> [0]e{};", index + 1);
    }
    for index in 0..1_000 {
        long += &format!("e{index}[1] -> [1]e{};", 3_999 - index);
    }
    assert_eq!(limit(&long), "bends of lines");
}

#[test]
fn graphs_without_connections_are_packed_into_rows() {
    let shapes = check_shapes(&svg(&(0..100).map(|index| format!("e{index} :: E;")).collect::<String>()));
    let (width, height) = shapes.boxes.iter().fold((0, 0), |(w, h), it| (w.max(it[2]), h.max(it[3])));
    assert!(width < 3 * height && height < 3 * width, "{width} x {height}");
    assert_eq!(shapes.boxes.len(), 100);
    assert_eq!(check_shapes(&svg("")).boxes.len(), 0);
}

proptest! {
    #[test]
    fn lines_of_any_graph_go_around_all_boxes(
        ends in prop::collection::vec((0..14usize, 0..14usize, any::<bool>()), 1..40),
        cut in 0..14usize,
        is_nested in any::<bool>(),
    ) {
        // The elements from `cut` on are components of a compound element.
        let mut ports = [[0; 2]; 14];
        let mut next = |element: usize, side: usize| {
            ports[element][side] += 1;
            ports[element][side] - 1
        };
        let is_inner = |element: usize| is_nested && element >= cut;
        let (mut outer, mut inner, mut entering, mut leaving) = (String::new(), String::new(), 0, 0);
        let mut is_used = [false; 14];
        for (from, to, is_shared) in ends {
            let output = next(from, 0);
            // Several lines can lead to one input.
            let input = if is_shared && is_used[to] { 0 } else { next(to, 1) };
            is_used[to] = true;
            match (is_inner(from), is_inner(to)) {
                (false, false) => outer += &format!("e{from} [{output}] -> [{input}] e{to};"),
                (true, true) => inner += &format!("e{from} [{output}] -> [{input}] e{to};"),
                (false, true) => {
                    outer += &format!("e{from} [{output}] -> [{entering}] c;");
                    inner += &format!("input [{entering}] -> [{input}] e{to};");
                    entering += 1;
                }
                (true, false) => {
                    outer += &format!("c [{leaving}] -> [{input}] e{to};");
                    inner += &format!("e{from} [{output}] -> [{leaving}] output;");
                    leaving += 1;
                }
            }
        }
        let declare = |inner| {
            let of = (0..14).filter(|element| is_inner(*element) == inner);
            of.map(|element| format!("e{element} :: E{element};")).collect::<String>()
        };
        let compound = format!("c :: {{ {} {inner} }};", declare(true));
        let text = format!("{} {} {outer}", declare(false), if is_nested { compound } else { String::new() });
        let shapes = check_shapes(&svg(&text));
        prop_assert_eq!(shapes.boxes.len(), 14);
    }
}
