//! The page can be used by keyboard, with assistive technology and on small screens: rules that its elements show, WCAG
//! contrast of its colours, and the rules of axe in a browser where one is installed.

use super::fabricated::run;
use super::html::{Element, elements};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Asserts the rules of axe that a page shows without a browser.
pub fn assert_accessible(elements: &[Element]) {
    let with = |tag: &'static str| elements.iter().filter(move |element| element.tag == tag);
    assert_eq!(with("html").next().and_then(|html| html.attribute("lang")), Some("en"));
    for landmark in ["header", "main", "footer", "h1", "title"] {
        let found =
            with(landmark).filter(|e| landmark != "title" || e.around.last().unwrap() == "head").count();
        assert_eq!(found, 1, "<{landmark}>");
    }
    // Headings have a text, and skip no level.
    let mut level = 0;
    for heading in elements.iter().filter(|e| matches!(e.tag.as_str(), "h1" | "h2" | "h3" | "h4" | "h5")) {
        let this = heading.tag[1..].parse::<u32>().unwrap();
        assert!(this <= level + 1 && !heading.text.trim().is_empty(), "{heading:?} after h{level}");
        level = this;
    }
    let ids: Vec<&str> = elements.iter().filter_map(|element| element.attribute("id")).collect();
    let unique: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), unique.len(), "ids: {ids:?}");
    for element in elements {
        if let Some(label) = element.attribute("aria-labelledby") {
            assert!(unique.contains(label), "{label}");
        }
        if element.tag == "th" {
            assert!(matches!(element.attribute("scope"), Some("col" | "row")), "{element:?}");
            assert!(!element.text.trim().is_empty(), "{element:?}");
        }
        if element.tag == "a" {
            let target = element.attribute("href").unwrap().strip_prefix('#').unwrap();
            assert!(unique.contains(target) && !element.name().is_empty(), "{element:?}");
        }
        if element.tag == "svg" {
            assert_eq!(element.attribute("role"), Some("img"), "{element:?}");
            assert!(element.attribute("aria-label").is_some_and(|label| !label.is_empty()), "{element:?}");
        }
        let parent = element.around.last().map_or("", String::as_str);
        match element.tag.as_str() {
            "li" => assert!(matches!(parent, "ul" | "ol"), "<li> in <{parent}>"),
            "dt" | "dd" => assert!(element.around.iter().any(|tag| tag == "dl"), "<dt> without <dl>"),
            "summary" => assert_eq!(parent, "details"),
            "figcaption" => assert_eq!(parent, "figure"),
            "table" => assert_eq!(parent, "div", "a table scrolls in a container"),
            _ => {}
        }
        // Elements outside of landmarks are not found with assistive technology.
        if matches!(element.tag.as_str(), "p" | "h1" | "h2" | "table" | "ul" | "ol" | "dl" | "figure") {
            let landmarks = ["header", "main", "footer"];
            assert!(element.around.iter().any(|tag| landmarks.contains(&tag.as_str())), "{element:?}");
        }
    }
    // Containers that scroll can be focused, and their names differ.
    let regions: Vec<&Element> = elements.iter().filter(|e| e.attribute("class") == Some("scroll")).collect();
    for region in &regions {
        assert_eq!((region.attribute("role"), region.attribute("tabindex")), (Some("region"), Some("0")));
    }
    let headings = with("h2").map(|heading| heading.text.trim().to_owned());
    let names: Vec<String> = headings.chain(regions.iter().map(|region| region.name().to_owned())).collect();
    let unique: BTreeSet<&String> = names.iter().collect();
    assert!(names.len() == unique.len() && names.iter().all(|name| !name.is_empty()), "{names:?}");
}

#[test]
fn a_full_page_is_accessible_and_shows_values_on_hover() {
    let (report, capture, modules) = run();
    let elements = elements(&report.render(&capture, &modules));
    assert_accessible(&elements);
    let hover: Vec<&Element> = elements.iter().filter(|e| e.attribute("class") == Some("hover")).collect();
    assert!(hover.len() > 500 && hover.iter().all(|area| area.tag == "rect" && !area.text.is_empty()));
    for area in &hover {
        // Four drawing pixels are one CSS pixel.
        let [width, height] =
            ["width", "height"].map(|name| area.attribute(name).unwrap().parse::<u32>().unwrap());
        assert!(width >= 12 && height >= 60, "{area:?}");
    }
    for text in ["cumulative sum", "handshakes", "% at or below", "packets/s", "bit/s", "octave 4", "H = 0."]
    {
        assert!(hover.iter().any(|area| area.text.contains(text)), "{text}");
    }
}

/// The colours of a mode: the custom properties of its `:root` rule.
fn colours(css: &str) -> BTreeMap<&str, [f64; 3]> {
    let rule = css.split_once(":root{").unwrap().1.split_once('}').unwrap().0;
    let channels = |hex: &str| {
        let long = if hex.len() == 3 { hex.chars().flat_map(|c| [c, c]).collect() } else { hex.to_owned() };
        [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&long[at..at + 2], 16).unwrap()) / 255.0)
    };
    rule.split(';').filter_map(|p| p.split_once(":#")).map(|(name, hex)| (name, channels(hex))).collect()
}

/// The contrast ratio of two colours (WCAG 2.2, definition "contrast ratio").
fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let luminance = |colour: [f64; 3]| {
        let linear = |c: f64| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        let [red, green, blue] = colour.map(linear);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    };
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn colours_have_the_contrast_of_wcag_aa_in_light_and_dark_mode() {
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9);
    let css = include_str!("../../src/style.css");
    let (light, dark) = css.split_once("@media (prefers-color-scheme:dark)").unwrap();
    let (light, dark) = (colours(light), colours(dark));
    assert_eq!(light.keys().collect::<Vec<_>>(), dark.keys().collect::<Vec<_>>());
    for mode in [&light, &dark] {
        // Texts and links, also in plots, on each background.
        for text in ["--ink", "--soft", "--c1", "--c2", "--c3", "--c4"] {
            for background in ["--bg", "--card"] {
                let ratio = contrast(mode[text], mode[background]);
                assert!(ratio >= 4.5, "{text} on {background}: {ratio:.2}");
            }
        }
        for text in ["--ink", "--soft"] {
            assert!(contrast(mode[text], mode["--warn"]) >= 4.5, "{text} in a warning");
        }
    }
    // All colours of the page are these: others would not be checked.
    let rules =
        css.lines().skip(2).filter(|line| !line.starts_with("svg") && !line.starts_with("@media print"));
    for rule in rules {
        assert!(!rule.contains('#') && !rule.contains("rgb"), "{rule}");
    }
}

#[test]
fn nothing_is_wider_than_a_small_phone() {
    let css = include_str!("../../src/style.css");
    for (property, most) in
        [("min-width:", 343.0), ("}width:", 343.0), (";width:", 343.0), ("minmax(", 343.0)]
    {
        for (at, _) in css.match_indices(property) {
            let value = &css[at + property.len()..];
            let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
            if value[digits.len()..].starts_with("px") {
                assert!(digits.parse::<f64>().unwrap() <= most, "{property}{digits}px");
            }
        }
    }
    assert!(
        css.contains("svg{display:block;width:100%;height:auto}") && css.contains(".scroll{overflow:auto;")
    );
}

/// Runs axe and measures the width of the page, in a frame of 375 and one of 1,400 pixels, in light and dark mode.
#[test]
fn axe_finds_nothing_and_the_page_fits_in_a_browser() {
    let axe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/npm/node_modules/axe-core/axe.min.js");
    let Ok(axe) = std::fs::read_to_string(axe) else { return skip("axe-core is not in target/npm") };
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    }) else {
        return skip("Chromium is not installed");
    };
    let (report, capture, modules) = run();
    let page = report.render(&capture, &modules);
    let policy = page.find("<meta http-equiv").unwrap();
    let policy = &page[policy..=policy + page[policy..].find('>').unwrap()];
    // The page itself allows no script, so this copy does without its policy.
    let probe = format!(
        "<script>{axe}</script><script>onload = async () => {{ \
         document.querySelectorAll('details').forEach(details => details.open = true); \
         const found = await axe.run(document, {{ resultTypes: ['violations'] }}); \
         const violations = found.violations.map(v => v.id + ': ' + v.nodes[0].html); \
         const {{ scrollWidth, clientWidth }} = document.documentElement; \
         parent.postMessage({{ violations, passes: found.passes.length, scrollWidth, clientWidth }}, '*'); }}</script></body>"
    );
    let page = page.replace(policy, "").replace("</body>", &probe);
    let folder = tempfile::tempdir().unwrap();
    for (width, is_dark) in [(375, false), (1_400, false), (375, true), (1_400, true)] {
        let mode = if is_dark { "@media all" } else { "@media not all" };
        let inner = page.replace("@media (prefers-color-scheme:dark)", mode);
        let outer = format!(
            "<iframe src='inner.html' style='width:{width}px;height:2000px'></iframe>\
             <script>onmessage = event => {{ document.title = JSON.stringify(event.data) }}</script>"
        );
        std::fs::write(folder.path().join("inner.html"), inner).unwrap();
        std::fs::write(folder.path().join("outer.html"), outer).unwrap();
        let output = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--virtual-time-budget=600000",
                "--dump-dom",
            ])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(format!("file://{}", folder.path().join("outer.html").display()))
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&output.stdout);
        let title = dom.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
        let Some((title, _)) = title else { panic!("{dom}\n{}", String::from_utf8_lossy(&output.stderr)) };
        let text =
            title.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
        let result: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(result["violations"], serde_json::json!([]), "{width} pixels, dark: {is_dark}");
        assert!(result["passes"].as_u64().unwrap() > 10, "{result}");
        assert_eq!(result["scrollWidth"], result["clientWidth"], "{width} pixels: the page scrolls sideways");
    }
}

fn skip(reason: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {reason} (lab/setup --tests installs it)");
}
