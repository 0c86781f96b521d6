//! A natively built module, loaded into this process.

use super::Space;
use super::host::{Host, HostTable, Phase};
use crate::comparison::{ModuleBuild, PassResult};
use crate::error::{Context, LabError};
use crate::module::Module;
use crate::packets::Tick;
use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use weir_abi::Descriptor;
use weir_sandbox::BatchInput;
use weir_session::Records;
use weir_units::Timestamp;

/// A natively built module that runs in this process.
pub struct Native<'a> {
    host: NonNull<Host<'a>>,
    run: extern "C" fn(*const Descriptor, u64) -> u64,
    tick: extern "C" fn(u64, u64),
    stop: extern "C" fn(u64),
    library: *mut c_void,
}

impl<'a> Native<'a> {
    /// Loads a shared object that [`super::Build`] made, and starts its module.
    pub fn load(path: &Path, module: &Module, space: &'a Space) -> Result<Self, LabError> {
        let refused = |why: String| LabError::failed(path.display(), why);
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| refused(e.to_string()))?;
        // SAFETY: a C string that outlives the call.
        let loaded = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        if !loaded.is_null() {
            return Err(refused("the shared object is already loaded".to_owned()));
        }
        // SAFETY: as above. Loading runs the object's initialisers: it is built from this repository, and trusted like this
        // program.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(refused(last_error()));
        }
        let symbol = |name: &CStr| {
            // SAFETY: `library` was just opened; a C string that outlives the call.
            let at = unsafe { libc::dlsym(library, name.as_ptr()) };
            if at.is_null() { Err(refused(last_error())) } else { Ok(at) }
        };
        // SAFETY: these are the functions of lab/native/host.c, with these types there, and the object is loaded until `library` is closed.
        let (start, run, tick, stop) = unsafe {
            (
                std::mem::transmute::<*mut c_void, extern "C" fn(*const HostTable) -> i32>(symbol(
                    c"lab_start",
                )?),
                std::mem::transmute::<*mut c_void, extern "C" fn(*const Descriptor, u64) -> u64>(symbol(
                    c"lab_run",
                )?),
                std::mem::transmute::<*mut c_void, extern "C" fn(u64, u64)>(symbol(c"lab_tick")?),
                std::mem::transmute::<*mut c_void, extern "C" fn(u64)>(symbol(c"lab_stop")?),
            )
        };
        let admitted = module.admit()?;
        for (index, bytes) in &module.tables {
            if let Some(window) =
                admitted.manifest().tables.get(*index).and_then(weir_admission::DeclaredTable::window)
            {
                space.map_table(window, bytes).context("a table")?;
            }
        }
        let host = Box::new(Host::new(space, &admitted));
        let host = NonNull::from(Box::leak(host));
        let this = Self { host, run, tick, stop, library };
        let table = Host::table(host);
        match start(&raw const table) {
            0 => Ok(this),
            code => Err(refused(format!("weir_start returned {code}"))),
        }
    }
}

impl<'a> Native<'a> {
    /// The host, while the module is not running.
    fn host(&mut self) -> &mut Host<'a> {
        // SAFETY: from a box in `load`, freed in `drop`. The module reaches it too, but only during calls that take `&mut self`, and no
        // reference from here lasts into one.
        unsafe { self.host.as_mut() }
    }
}

impl ModuleBuild for Native<'_> {
    fn run(&mut self, batch: BatchInput) -> u64 {
        let host = self.host();
        let descriptors = host.space.base().wrapping_add(batch.descriptors as usize).cast::<Descriptor>();
        host.first = batch.first;
        host.descriptors = descriptors;
        host.phase = Phase::Packets;
        (self.run)(descriptors, batch.mask)
    }

    fn tick(&mut self, tick: Tick) {
        self.host().phase = Phase::Periodic;
        (self.tick)(tick.now.0, tick.periods);
    }

    fn stop(&mut self, now: Timestamp) {
        self.begin_block();
        self.host().phase = Phase::Periodic;
        (self.stop)(now.0);
    }

    fn begin_block(&mut self) {
        self.host().begin_block();
    }

    fn take_output(&mut self, empty: Records) -> PassResult {
        let host = self.host();
        PassResult {
            records: std::mem::replace(&mut host.records, empty),
            frames: std::mem::take(&mut host.frames),
            patches: std::mem::take(&mut host.patches),
            published: std::mem::take(&mut host.published),
        }
    }

    fn fault(&self) -> Option<String> {
        None
    }
}

impl Drop for Native<'_> {
    fn drop(&mut self) {
        // SAFETY: opened in `load`, closed only here; the functions taken from it are not called any more.
        unsafe { libc::dlclose(self.library) };
        // SAFETY: from a box in `load`; the module, which also had a pointer to it, is unloaded.
        drop(unsafe { Box::from_raw(self.host.as_ptr()) });
    }
}

/// The message of the last failed call of dlopen(3) or dlsym(3).
fn last_error() -> String {
    // SAFETY: has no preconditions; the result is a C string or null.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "dlerror has no message".to_owned();
    }
    // SAFETY: not null, so a C string; it is copied before the next call.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
