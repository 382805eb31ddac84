//! Error numbers of the kernel, by number and name.

use std::{fmt, io};

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            /// Its name in errno(3), such as `"ENOENT"`; `None` for a number that has none here.
            pub fn name(self) -> Option<&'static str> {
                // Aliases (EWOULDBLOCK, EDEADLOCK, ENOTSUP) are left out of the list: one name a number.
                $(if self.0 == libc::$name { return Some(stringify!($name)); })*
                None
            }

            /// The one of this name.
            pub fn from_name(name: &str) -> Option<Errno> {
                match name {
                    $(stringify!($name) => Some(Errno(libc::$name)),)*
                    _ => None,
                }
            }
        }
    };
}

/// An error number of the kernel (errno(3)).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub(crate) i32);

errnos! {
    EPERM, ENOENT, ESRCH, EINTR, EIO, ENXIO, E2BIG, ENOEXEC, EBADF, ECHILD, EAGAIN, ENOMEM, EACCES, EFAULT, ENOTBLK, EBUSY,
    EEXIST, EXDEV, ENODEV, ENOTDIR, EISDIR, EINVAL, ENFILE, EMFILE, ENOTTY, ETXTBSY, EFBIG, ENOSPC, ESPIPE, EROFS, EMLINK,
    EPIPE, EDOM, ERANGE, EDEADLK, ENAMETOOLONG, ENOLCK, ENOSYS, ENOTEMPTY, ELOOP, ENODATA, ETIME, EPROTO, EOVERFLOW, ELIBACC,
    ELIBBAD, EUSERS, EOPNOTSUPP, ETIMEDOUT, EALREADY, EINPROGRESS, ESTALE, EDQUOT, ECANCELED, EKEYEXPIRED, ERFKILL,
}

impl Errno {
    /// From the kernel's number.
    pub const fn from_raw(number: i32) -> Errno {
        Errno(number)
    }

    /// The kernel's number.
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

/// What strerror(3) says, with the name: `No such file or directory (ENOENT)`.
impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = io::Error::from_raw_os_error(self.0).to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        write!(f, "{text} ({self:?})")
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(e: rustix::io::Errno) -> Errno {
        Errno(e.raw_os_error())
    }
}

impl From<Errno> for io::Error {
    fn from(e: Errno) -> io::Error {
        io::Error::from_raw_os_error(e.0)
    }
}

impl From<&io::Error> for Errno {
    fn from(e: &io::Error) -> Errno {
        Errno(e.raw_os_error().unwrap_or(libc::EIO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_says_its_text_and_its_name() {
        assert_eq!(
            Errno(libc::ENOENT).to_string(),
            "No such file or directory (ENOENT)"
        );
        assert_eq!(format!("{:?}", Errno(4095)), "errno 4095");
        assert_eq!(
            (Errno::from_name("EMFILE"), Errno::from_name("EWHAT")),
            (Some(Errno(libc::EMFILE)), None)
        );
    }
}
