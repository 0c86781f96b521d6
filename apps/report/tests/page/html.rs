//! A reader of the elements of a page, strict enough to find an element that is not closed.

/// An element of the page.
#[derive(Debug)]
pub struct Element {
    pub tag: String,
    pub attributes: Vec<(String, String)>,
    /// The text in the element and in those inside it.
    pub text: String,
    /// The tags of the elements around it, outermost first.
    pub around: Vec<String>,
}

impl Element {
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The name by which assistive technology announces the element: its label, or its text.
    pub fn name(&self) -> &str {
        self.attribute("aria-label").unwrap_or(self.text.trim())
    }
}

/// Reads all elements in the order of the page.
pub fn elements(page: &str) -> Vec<Element> {
    const WITHOUT_CONTENT: [&str; 2] = ["meta", "link"];
    let mut elements: Vec<Element> = Vec::new();
    // The indices of the open elements.
    let mut open: Vec<usize> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("the page begins with its document type");
    while let Some((text, after)) = rest.split_once('<') {
        for index in &open {
            elements[*index].text += text;
        }
        let (tag, after) = after.split_once('>').expect("a tag has an end");
        rest = after;
        if let Some(closed) = tag.strip_prefix('/') {
            let last = open.pop().map(|index| elements[index].tag.as_str());
            assert_eq!(last, Some(closed), "a closing tag without its opening tag");
            continue;
        }
        let is_closed = tag.ends_with('/');
        let (tag, attributes) = read_tag(tag.trim_end_matches('/'));
        let around = open.iter().map(|index| elements[*index].tag.clone()).collect();
        if tag == "style" {
            // The text of a style sheet is not markup.
            rest = &rest[rest.find("</style>").expect("the style sheet has an end")..];
        }
        if !is_closed && !WITHOUT_CONTENT.contains(&tag.as_str()) {
            open.push(elements.len());
        }
        elements.push(Element { tag, attributes, text: String::new(), around });
    }
    assert!(
        open.is_empty(),
        "{:?} are not closed",
        open.iter().map(|i| &elements[*i].tag).collect::<Vec<_>>()
    );
    elements
}

fn read_tag(tag: &str) -> (String, Vec<(String, String)>) {
    let (name, mut rest) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
    assert!(!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()), "<{tag}>");
    let mut attributes = Vec::new();
    while let Some((attribute, after)) = rest.trim_start().split_once("=\"") {
        let (value, after) = after.split_once('"').expect("a value has an end");
        attributes.push((attribute.trim().to_owned(), value.to_owned()));
        rest = after;
    }
    assert!(rest.trim().is_empty(), "<{tag}>: {rest}");
    (name.to_owned(), attributes)
}
