//! The process' limit of file descriptors. Arenas, rings, sockets and files each take some.

use std::io;

/// Raises the limit of file descriptors to the hard limit of this process.
///
/// # Errors
///
/// The system's error; the limit is unchanged then.
pub fn raise_file_descriptor_limit() -> io::Result<()> {
    let most = limit()?.rlim_max;
    let raised = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the pointer is to a live local.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The present limit of file descriptors. Every descriptor number is below it.
///
/// # Errors
///
/// The system's error.
pub fn file_descriptor_limit() -> io::Result<u64> {
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
    fn the_limit_is_raised_to_the_hard_limit() {
        let before = file_descriptor_limit().unwrap();
        raise_file_descriptor_limit().unwrap();
        let after = file_descriptor_limit().unwrap();
        assert!(before <= after && after == limit().unwrap().rlim_max);
    }
}
