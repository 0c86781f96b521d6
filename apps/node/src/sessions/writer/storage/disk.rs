//! Record files on the disk: listing, deletion, and the files that name holders. Only files with the name of a record
//! file in a folder with the name of a module folder are touched, and no symbolic link is followed.

use super::ClosedFile;
use crate::control::authority::SessionOwner;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::{Duration, SystemTime};
use weir_admission::Name;
use weir_export_files::ExportFormat;
use weir_os::private::{self, PrivateError, PrivateFolder};
use weir_trust::credential::DelegationId;
use weir_trust::grant::Resource;

/// Minimum number of bytes that a file counts for, one disk block, so that many small files are limited as well.
pub(super) const FILE_BYTES_MIN: u64 = 4096;
/// Name of the file in a session's folder that contains the delegation chain of the session's holder: an identifier on
/// each line, root first.
pub(super) const HOLDER: &str = "holder";
/// Maximum number of bytes that are read of a holder file, several times the length of the longest chain.
const HOLDER_BYTES_MAX: u64 = 8192;

/// Limit on the record bytes of all sessions under a delegation together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorageQuota {
    /// The ceiling that the grant states, in bytes.
    Stated(u64),
    /// Without a stated ceiling: the sum of the limits of the open sessions, but at least the default limit of one
    /// session.
    OfSessions,
}

/// The holder of a session's record files: the delegation chain, root first, with the limit of each delegation; `None`
/// for a delegation without a limit. Empty for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StorageHolder(pub(super) Vec<(DelegationId, Option<StorageQuota>)>);

impl StorageHolder {
    /// Returns the holder for a session with this owner; `None` stands for the operator.
    pub(crate) fn of_owner(owner: Option<&SessionOwner>) -> Self {
        let Some(SessionOwner { credential, .. }) = owner else { return Self::default() };
        let stated = |ceiling: Option<u64>| ceiling.map(StorageQuota::Stated);
        let of_root = credential.limit().ceilings.get(Resource::RecordStorage);
        let mut chain = vec![(DelegationId::of_root(credential.root()), stated(of_root))];
        chain.extend(
            credential
                .chain()
                .iter()
                .map(|block| (block.id, stated(block.grant.ceilings.get(Resource::RecordStorage)))),
        );
        // If the root's grant states no ceiling, a limit still applies to all sessions under the grant together.
        // Delegations below it need no limit of their own.
        if let Some((_, quota)) = chain.get_mut(1) {
            quota.get_or_insert(StorageQuota::OfSessions);
        }
        Self(chain)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = DelegationId> {
        self.0.iter().map(|(id, _)| *id)
    }

    /// Reads the holder of an earlier session from its folder, without limits.
    pub(super) fn read(folder: &Path) -> Self {
        let mut text = String::new();
        let file = PrivateFolder::open(folder).and_then(|folder| folder.open_file(HOLDER));
        if let Ok(file) = file {
            // If the file cannot be read, the session's files count as the operator's.
            _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
        }
        Self(text.lines().filter_map(|line| Some((line.parse().ok()?, None))).collect())
    }

    /// Writes the holder into the session's folder, which is created if it is missing. For the operator, removes the
    /// file.
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

/// Returns a time in nanoseconds since 1970.
pub(super) fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the names of the sessions that have a folder of record files.
pub(super) fn sessions(records: &Path) -> Vec<Name> {
    let folders = entries(records).filter(|(_, known)| known.is_dir());
    folders.filter_map(|(name, _)| Name::new(&name).ok()).collect()
}

/// Returns the record files in a session's folder. If the times of a module's files are not in the order of the files'
/// numbers, times are raised until they are.
pub(super) fn files(session: &Path) -> Vec<ClosedFile> {
    let folders = entries(session).filter(|(_, known)| known.is_dir()).map(|(name, _)| name);
    let label = |label: String| {
        let (module, number) = module_of(&label)?;
        Some((module.to_owned(), number, label))
    };
    let mut labels: Vec<(String, u64, String)> = folders.filter_map(label).collect();
    labels.sort_unstable();
    let (mut all, mut last_module, mut last_time) = (Vec::new(), String::new(), 0);
    for (module, _, label) in labels {
        if module != last_module {
            (last_module, last_time) = (module, 0);
        }
        let mut files = files_of(session, &label);
        files.iter_mut().for_each(|file| file.time = file.time.max(last_time));
        // Files with a higher number were completed later.
        last_time = files.iter().map(|file| file.time.saturating_add(1)).max().unwrap_or(last_time);
        all.append(&mut files);
    }
    all
}

/// Returns the record files in a module's folder.
pub(super) fn files_of(session: &Path, label: &str) -> Vec<ClosedFile> {
    let folder = session.join(label);
    let files = entries(&folder).filter(|(_, known)| known.is_file());
    let file = |(name, known): (String, std::fs::Metadata)| {
        Some(ClosedFile {
            is_incomplete: is_incomplete_record_file(&name)?,
            failures: 0,
            time: nanos(known.modified().unwrap_or(SystemTime::UNIX_EPOCH)),
            label: label.into(),
            bytes: known.len().max(FILE_BYTES_MIN),
            name,
            written_by: 0,
        })
    };
    files.filter_map(file).collect()
}

/// Returns the bytes of the record files in a module's folder.
pub(super) fn bytes_of(session: &Path, label: &str) -> u64 {
    files_of(session, label).iter().map(|file| file.bytes).fold(0, u64::saturating_add)
}

/// Stores the time of completion as the files' modification time, so that the order of files survives a restart.
pub(super) fn set_time(session: &Path, files: &[ClosedFile]) {
    for file in files {
        let folder = PrivateFolder::open(session).and_then(|session| session.open_in(&file.label));
        if let Ok(open) = folder.and_then(|folder| folder.open_file(&file.name)) {
            // After an error, the file may be deleted too early after a restart; there is no other effect.
            _ = open.set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(file.time));
        }
    }
}

/// Deletes a file, and its folder if the folder is then empty. A missing file counts as deleted.
pub(super) fn delete(session: &Path, file: &ClosedFile) -> std::io::Result<()> {
    // The folder is opened without following symbolic links, so the file is in the session's own folder.
    let folder = PrivateFolder::open(session).and_then(|session| session.open_in(&file.label));
    match folder.map_err(std::io::Error::from).and_then(|folder| folder.remove(&file.name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // The removal fails if the folder is not empty.
    _ = std::fs::remove_dir(session.join(&*file.label));
    Ok(())
}

/// Removes the folder of a session, if it contains no file beside the holder file.
pub(super) fn remove_empty(session: &Path) {
    if let Ok(folder) = PrivateFolder::open(session)
        && entries(session).all(|(name, known)| name == HOLDER && known.is_file())
    {
        _ = folder.remove(HOLDER);
        _ = std::fs::remove_dir(session);
    }
}

/// Returns the entries of a folder that have UTF-8 names, with their metadata. Symbolic links are not followed.
pub(super) fn entries(folder: &Path) -> impl Iterator<Item = (String, std::fs::Metadata)> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.metadata().ok()?)))
}

/// Splits the name of a module folder into module name and number; `None` for another name.
fn module_of(label: &str) -> Option<(&str, u64)> {
    let (module, number) = label.rsplit_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| number.parse().unwrap_or(u64::MAX))?;
    Name::new(module).ok().map(|_| (module, number))
}

/// Returns true for the name of an incomplete record file, false for that of a complete one, and `None` for other names.
fn is_incomplete_record_file(name: &str) -> Option<bool> {
    let of_export = |name: &str| ExportFormat::of_file(name).is_some();
    if of_export(name) || name.strip_suffix(".part").is_some_and(of_export) {
        return Some(!of_export(name));
    }
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
