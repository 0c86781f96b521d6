//! Record files on the disk: listed, deleted, and their holders. Only files with the name and the place of a record file are touched, and no link is followed.

use super::Ended;
use crate::control::authority::SessionOwner;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::{Duration, SystemTime};
use weir_admission::Name;
use weir_os::private::{self, PrivateError, PrivateFolder};
use weir_trust::credential::PrefixId;
use weir_trust::grant::Resource;

/// A file counts as a block of a disk at least: so many small ones are limited, too.
pub(super) const FILE_BYTES_MIN: u64 = 4096;
/// The file in a session's folder that names the delegation chain of its holder, an identifier a line, root first.
pub(super) const HOLDER: &str = "holder";
/// Bytes of such a file that are read: many times those of the longest chain.
const HOLDER_BYTES_MAX: u64 = 8192;

/// The bytes of record files that the holders of a right may keep together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorageQuota {
    /// A ceiling of the grant.
    Stated(u64),
    /// No ceiling is stated: as much as their open sessions may keep together, and at least as much as a session may by default.
    OfSessions,
}

/// The holder of a session's records: their delegation chain, root first, with what each link allows. Empty for a session of the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StorageHolder(pub(super) Vec<(PrefixId, Option<StorageQuota>)>);

impl StorageHolder {
    /// The holder of a session with this owner.
    pub(crate) fn of(owner: Option<&SessionOwner>) -> Self {
        let Some(SessionOwner { credential, .. }) = owner else { return Self::default() };
        let stated = |ceiling: Option<u64>| ceiling.map(StorageQuota::Stated);
        let of_root = credential.limit().ceilings.get(Resource::RecordStorage);
        let mut line = vec![(PrefixId::of_root(credential.root()), stated(of_root))];
        line.extend(
            credential
                .chain()
                .iter()
                .map(|link| (link.id, stated(link.grant.ceilings.get(Resource::RecordStorage)))),
        );
        // Where the operator's grant states nothing, it still does not give more by each new session; what its holder signs below it changes nothing.
        if let Some((_, allowance)) = line.get_mut(1) {
            allowance.get_or_insert(StorageQuota::OfSessions);
        }
        Self(line)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = PrefixId> {
        self.0.iter().map(|(id, _)| *id)
    }

    /// The holder of a session of an earlier life of the node.
    pub(super) fn read(folder: &Path) -> Self {
        let mut text = String::new();
        let file = PrivateFolder::open(folder).and_then(|folder| folder.open_file(HOLDER));
        if let Ok(file) = file {
            // What cannot be read names no holder: then the files are the operator's to delete.
            _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
        }
        Self(text.lines().filter_map(|line| Some((line.parse().ok()?, None))).collect())
    }

    /// Writes the holder into the folder of the session, which is made where it is not there.
    pub(super) fn write(&self, records: &Path, session: &Name) -> Result<(), PrivateError> {
        let folder = private::make_inside(records, session.as_str())?;
        if self.0.is_empty() {
            return match folder.remove(HOLDER) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            };
        }
        let lines: String = self.ids().map(|id| format!("{id}\n")).collect();
        folder.replace(HOLDER, lines.as_bytes())
    }
}

/// Time since 1970, in nanoseconds.
pub(super) fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The sessions with folders of records.
pub(super) fn sessions(records: &Path) -> Vec<Name> {
    let folders = entries(records).filter(|(_, known)| known.is_dir());
    folders.filter_map(|(name, _)| Name::new(&name).ok()).collect()
}

/// The record files in a session's folder, those of each module in the order of their numbers, whatever the clock said when they were written.
pub(super) fn files(session: &Path) -> Vec<Ended> {
    let folders = entries(session).filter(|(_, known)| known.is_dir()).map(|(name, _)| name);
    let label = |label: String| {
        let (module, number) = module_of(&label)?;
        Some((module.to_owned(), number, label))
    };
    let mut labels: Vec<(String, u64, String)> = folders.filter_map(label).collect();
    labels.sort_unstable();
    let (mut all, mut of, mut last) = (Vec::new(), String::new(), 0);
    for (module, _, label) in labels {
        if module != of {
            (of, last) = (module, 0);
        }
        let mut files = files_of(session, &label);
        files.iter_mut().for_each(|file| file.time = file.time.max(last));
        // The next number is later.
        last = files.iter().map(|file| file.time.saturating_add(1)).max().unwrap_or(last);
        all.append(&mut files);
    }
    all
}

/// The record files in a module's folder.
pub(super) fn files_of(session: &Path, label: &str) -> Vec<Ended> {
    let folder = session.join(label);
    let files = entries(&folder).filter(|(_, known)| known.is_file());
    let file = |(name, known): (String, std::fs::Metadata)| {
        Some(Ended {
            is_incomplete: record_file(&name)?,
            failures: 0,
            time: nanos(known.modified().unwrap_or(SystemTime::UNIX_EPOCH)),
            label: label.into(),
            bytes: known.len().max(FILE_BYTES_MIN),
            name,
        })
    };
    files.filter_map(file).collect()
}

/// The bytes of the record files in a module's folder.
pub(super) fn bytes_of(session: &Path, label: &str) -> u64 {
    files_of(session, label).iter().map(|file| file.bytes).fold(0, u64::saturating_add)
}

/// Gives files the time of their end, so that their order survives a restart of the node though the clock was set back.
pub(super) fn set_time(session: &Path, files: &[Ended]) {
    for file in files {
        let folder = PrivateFolder::open(session).and_then(|session| session.open_in(&file.label));
        if let Ok(open) = folder.and_then(|folder| folder.open_file(&file.name)) {
            // A file that keeps the clock's time is deleted too early after a restart, and nothing else.
            _ = open.set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(file.time));
        }
    }
}

/// Deletes a file, and its folder where nothing else is in it. A file that is gone already counts as deleted.
pub(super) fn delete(session: &Path, file: &Ended) -> std::io::Result<()> {
    // Opened without following a link: so the deleted file is in the session's own folder.
    let folder = PrivateFolder::open(session).and_then(|session| session.open_in(&file.label));
    match folder.map_err(std::io::Error::from).and_then(|folder| folder.remove(&file.name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // It refuses a folder that is not empty.
    _ = std::fs::remove_dir(session.join(&*file.label));
    Ok(())
}

/// Removes the folder of a session in which nothing is left but the name of the holder.
pub(super) fn remove_empty(session: &Path) {
    if let Ok(folder) = PrivateFolder::open(session)
        && entries(session).all(|(name, known)| name == HOLDER && known.is_file())
    {
        _ = folder.remove(HOLDER);
        _ = std::fs::remove_dir(session);
    }
}

/// What is in a folder, with its names where they are text. Links are not followed.
pub(super) fn entries(folder: &Path) -> impl Iterator<Item = (String, std::fs::Metadata)> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?)))
}

/// The module's name and the number in the name of a folder with its files.
fn module_of(label: &str) -> Option<(&str, u64)> {
    let (module, number) = label.rsplit_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| number.parse().unwrap_or(u64::MAX))?;
    Name::new(module).ok().map(|_| (module, number))
}

/// Whether a record file is incomplete, by its name; none for other files.
fn record_file(name: &str) -> Option<bool> {
    let (stem, is_incomplete) = match name.strip_suffix(".parquet") {
        Some(stem) => (stem, false),
        None => (name.strip_suffix(".parquet.part").or_else(|| name.strip_suffix(".parquet.wal"))?, true),
    };
    let stream = match stem.rsplit_once(".recovered-") {
        Some((stream, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => stream,
        _ => stem,
    };
    Name::new(stream).ok().map(|_| is_incomplete)
}
