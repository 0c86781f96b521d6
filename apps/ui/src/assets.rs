//! The files of the page, which are part of the program.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Path at which it is served.
    pub path: &'static str,
    /// Content type.
    pub content_type: &'static str,
    /// Contents.
    pub bytes: &'static [u8],
}

/// All files of the page.
pub const ASSETS: &[Asset] = &[
    Asset {
        path: "/",
        content_type: "text/html; charset=utf-8",
        bytes: include_bytes!("../web/dist/index.html"),
    },
    Asset {
        path: "/app.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../web/dist/app.js"),
    },
    Asset {
        path: "/app.css",
        content_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../web/dist/app.css"),
    },
    Asset { path: "/icon.svg", content_type: "image/svg+xml", bytes: include_bytes!("../web/dist/icon.svg") },
];

/// Returns the file at a path.
pub fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}
