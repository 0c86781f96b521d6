//! The script through which Wireshark starts `weir extcap`.
//!
//! Wireshark passes no subcommand, so a file in its folder of extcap programs has to add one. A script does this without
//! a rule for the program's own name, survives a program that is moved back, and keeps the options that name a node.

use super::ExtcapError;
use crate::cmd::node::args::NodeAddressArgs;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_units::Escape as _;

/// The name of the script.
const NAME: &str = "weir-extcap";
/// The first two lines of the script. Only a file that begins with them is replaced or removed.
const HEAD: &[u8] = b"#!/bin/sh\n# Made by `weir extcap --install`; `weir extcap --uninstall` removes it.\n";

/// Writes the script into a folder, which is made if necessary.
pub fn install(
    out: &mut impl Write,
    folder: Option<&Path>,
    address: &NodeAddressArgs,
) -> Result<(), ExtcapError> {
    let folder = folder_or_default(folder)?;
    let path = folder.join(NAME);
    let failed = |source| ExtcapError::Install { path: path.clone(), source };
    check_ours(&path)?;
    let program = std::env::current_exe().and_then(fs::canonicalize).map_err(failed)?;
    let script = script(&program, address).map_err(failed)?;
    fs::create_dir_all(&folder).map_err(failed)?;
    // The file appears whole: Wireshark may start at any time.
    let mut part = tempfile::NamedTempFile::new_in(&folder).map_err(failed)?;
    part.write_all(&script).map_err(failed)?;
    part.as_file().set_permissions(fs::Permissions::from_mode(0o755)).map_err(failed)?;
    part.persist(&path).map_err(|error| failed(error.error))?;
    writeln!(out, "{}: Wireshark and tshark find weir's sources now", path.escaped())?;
    Ok(())
}

/// Removes the script.
pub fn uninstall(out: &mut impl Write, folder: Option<&Path>) -> Result<(), ExtcapError> {
    let path = folder_or_default(folder)?.join(NAME);
    check_ours(&path)?;
    fs::remove_file(&path).map_err(|source| ExtcapError::Install { path: path.clone(), source })?;
    writeln!(out, "{}: removed", path.escaped())?;
    Ok(())
}

/// Refuses a file that `install` has not made. There may be no file.
fn check_ours(path: &Path) -> Result<(), ExtcapError> {
    match fs::read(path) {
        Ok(bytes) if bytes.starts_with(HEAD) => Ok(()),
        Ok(_) => Err(ExtcapError::NotOurs(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(ExtcapError::Install { path: path.to_owned(), source }),
    }
}

fn script(program: &Path, address: &NodeAddressArgs) -> io::Result<Vec<u8>> {
    let mut words = vec![program.as_os_str().to_owned(), "extcap".into()];
    let node = address.node.as_ref().map(|node| node.to_text());
    let mut option = |name: &str, value: Option<OsString>| {
        words.extend(value.into_iter().flat_map(|value| [name.into(), value]));
    };
    // Wireshark has another working directory.
    let absolute = |path: &Option<PathBuf>| {
        let path = path.as_ref().filter(|path| !path.as_os_str().is_empty());
        path.map(std::path::absolute).transpose().map(|path| path.map(PathBuf::into_os_string))
    };
    option("--socket", absolute(&address.socket)?);
    option("--node", node.map(Into::into));
    option("--credential", absolute(&address.credential)?);
    option("--key", absolute(&address.key)?);
    option("--passphrase-file", absolute(&address.passphrase_file)?);
    let mut script = [HEAD, b"exec"].concat();
    for word in &words {
        script.push(b' ');
        script.extend(quoted(word));
    }
    script.extend(b" \"$@\"\n");
    Ok(script)
}

/// Returns a word in single quotes, for a shell.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for &byte in word.as_bytes() {
        if byte == b'\'' {
            quoted.extend(br"'\''");
        } else {
            quoted.push(byte);
        }
    }
    quoted.push(b'\'');
    quoted
}

/// Returns the folder, or the personal one that tshark names.
fn folder_or_default(folder: Option<&Path>) -> Result<PathBuf, ExtcapError> {
    if let Some(folder) = folder {
        return Ok(folder.to_owned());
    }
    let output =
        Command::new("tshark").args(["-G", "folders"]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    output.ok().and_then(|output| folder_of(&output.stdout)).ok_or(ExtcapError::NoFolder)
}

/// Returns the personal folder of extcap programs in tshark's list of folders. Before Wireshark 4.2 the list does not have it:
/// it is the folder `extcap` in that of the personal configuration.
fn folder_of(list: &[u8]) -> Option<PathBuf> {
    let folder = |name: &[u8]| {
        let value = list.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?.trim_ascii();
        (!value.is_empty()).then(|| PathBuf::from(OsString::from_vec(value.to_vec())))
    };
    let personal = folder(b"Personal Extcap path:");
    personal.or_else(|| Some(folder(b"Personal configuration:")?.join("extcap")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_personal_folder_is_found_in_the_lists_of_old_and_new_versions() {
        let old = "Personal configuration:\t/home/a: b/.config/wireshark\nExtcap path:         \t/usr/lib/wireshark/extcap\n";
        assert_eq!(folder_of(old.as_bytes()).unwrap(), Path::new("/home/a: b/.config/wireshark/extcap"));
        let new = format!("{old}Personal Extcap path:\t/home/a/.local/lib/wireshark/extcap\n");
        assert_eq!(folder_of(new.as_bytes()).unwrap(), Path::new("/home/a/.local/lib/wireshark/extcap"));
        assert_eq!(folder_of(b"Personal Extcap path:\t\nno colon\n"), None);
    }

    #[test]
    fn no_character_of_a_path_ends_its_quotes() {
        let word = "it's $HOME `x` \"\\\n";
        let mut command = b"printf %s ".to_vec();
        command.extend(quoted(OsStr::new(word)));
        let output = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&command)).output().unwrap();
        assert_eq!(output.stdout, word.as_bytes());
    }
}
