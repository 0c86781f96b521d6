//! How many descriptors a process may have: arenas, rings, sockets and files each take some.

use std::io;

/// The number of descriptors that this process may have, raised to what the system allows it.
///
/// # Errors
///
/// What the system said; the limit is as it was.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let most = limit()?.rlim_max;
    let raised = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the pointer is to a live local.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The number of descriptors that this process may have now; each is below it.
///
/// # Errors
///
/// What the system said.
pub fn descriptor_limit() -> io::Result<u64> {
    Ok(limit()?.rlim_cur)
}

fn limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live local.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        let before = descriptor_limit().unwrap();
        raise_descriptor_limit().unwrap();
        let after = descriptor_limit().unwrap();
        assert!(before <= after && after == limit().unwrap().rlim_max);
    }
}
