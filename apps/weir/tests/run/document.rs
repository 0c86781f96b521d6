//! Runs the commands of documents in temporary namespaces.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The arguments of unshare(1) for namespaces in which an ordinary user has the rights of root.
pub const UNSHARE: &str = "--user --map-root-user --net --mount --pid --fork --kill-child --mount-proc";

/// Returns true if `probe` succeeds in new namespaces. Otherwise reports that the test is skipped, and what it needs.
pub fn can_unshare(probe: &str, needs: &str) -> bool {
    let output = Command::new("unshare")
        .args(UNSHARE.split(' '))
        .args(["sh", "-c", probe])
        .stdin(Stdio::null())
        .output();
    let can = output.is_ok_and(|output| output.status.success());
    if !can {
        _ = writeln!(std::io::stderr(), "skipped: needs user namespaces, unshare(1), {needs}");
    }
    can
}

/// Returns the value of `PATH` in which the tested program comes first.
pub fn path_with_weir() -> OsString {
    let mut places = vec![Path::new(super::process::PROGRAM).parent().expect("it is in a folder").to_owned()];
    places.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    std::env::join_paths(places).expect("no folder has a colon")
}

/// Runs a script in `folder`, in new namespaces, as a user with the home folder `home`. Returns what it printed.
///
/// # Panics
///
/// The script fails.
pub fn run_script(folder: &Path, script: &str, home: &Path) -> String {
    std::fs::write(folder.join("script"), script).unwrap();
    let output = Command::new("unshare")
        .args(UNSHARE.split(' '))
        .args(["bash", "script"])
        .stdin(Stdio::null())
        .current_dir(folder)
        .env("PATH", path_with_weir())
        .envs(["HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"].map(|name| (name, home)))
        .output()
        .unwrap();
    let [printed, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{printed}\n---\n{errors}");
    printed
}
