//! The five lock levels of a database, among the connections of this process. Other processes are refused when the
//! database is opened.

use sqlite_plugin::flags::LockLevel;
use sqlite_plugin::vars::SQLITE_BUSY;
use sqlite_plugin::vfs::VfsResult;

/// The locks of all connections to a database.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// Connections with any lock.
    readers: usize,
    /// The connection with a lock above `Shared`: its number, and whether it waits for the readers, or excludes them.
    writer: Option<Writer>,
}

#[derive(Debug)]
struct Writer {
    connection: u64,
    level: LockLevel,
}

impl Locks {
    /// Raises the lock of a connection from `held` to `wanted`. On `Err`, the connection has the level in `held`.
    pub(crate) fn raise(
        &mut self,
        connection: u64,
        held: &mut LockLevel,
        wanted: LockLevel,
    ) -> VfsResult<()> {
        if *held >= wanted {
            return Ok(());
        }
        let others_write = self.writer.as_ref().is_some_and(|writer| writer.connection != connection);
        if wanted == LockLevel::Shared {
            if self.writer.as_ref().is_some_and(|writer| writer.level >= LockLevel::Pending) {
                return Err(SQLITE_BUSY);
            }
            self.readers += 1;
            *held = LockLevel::Shared;
            return Ok(());
        }
        if others_write {
            return Err(SQLITE_BUSY);
        }
        // An exclusive lock stops new readers first, then waits for those that are left.
        let level = if wanted == LockLevel::Exclusive { LockLevel::Pending } else { wanted };
        self.set_writer(connection, held, level);
        if wanted == LockLevel::Exclusive {
            if self.readers > 1 {
                return Err(SQLITE_BUSY);
            }
            self.set_writer(connection, held, LockLevel::Exclusive);
        }
        Ok(())
    }

    /// Lowers the lock of a connection from `held` to `wanted`.
    pub(crate) fn lower(&mut self, connection: u64, held: &mut LockLevel, wanted: LockLevel) {
        if *held <= wanted {
            return;
        }
        if self.writer.as_ref().is_some_and(|writer| writer.connection == connection) {
            self.writer = None;
        }
        if wanted == LockLevel::Unlocked {
            self.readers -= 1;
        }
        *held = wanted;
    }

    /// Whether a connection intends to write.
    pub(crate) fn is_reserved(&self) -> bool {
        self.writer.is_some()
    }

    fn set_writer(&mut self, connection: u64, held: &mut LockLevel, level: LockLevel) {
        let level = level.max(*held);
        self.writer = Some(Writer { connection, level });
        *held = level;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LockLevel::{Exclusive, Pending, Reserved, Shared, Unlocked};

    #[test]
    fn one_writer_waits_for_readers_and_stops_new_ones() {
        let mut locks = Locks::default();
        let (mut first, mut second, mut third) = (Unlocked, Unlocked, Unlocked);
        locks.raise(1, &mut first, Shared).unwrap();
        locks.raise(2, &mut second, Shared).unwrap();
        locks.raise(1, &mut first, Reserved).unwrap();
        assert!(locks.is_reserved());
        assert_eq!(locks.raise(2, &mut second, Reserved), Err(SQLITE_BUSY));
        assert_eq!((locks.raise(1, &mut first, Exclusive), first), (Err(SQLITE_BUSY), Pending));
        assert_eq!((locks.raise(3, &mut third, Shared), third), (Err(SQLITE_BUSY), Unlocked));
        locks.lower(2, &mut second, Unlocked);
        locks.raise(1, &mut first, Exclusive).unwrap();
        assert_eq!(locks.raise(3, &mut third, Shared), Err(SQLITE_BUSY));
        locks.lower(1, &mut first, Shared);
        locks.raise(3, &mut third, Shared).unwrap();
        assert_eq!(locks.raise(3, &mut third, Exclusive), Err(SQLITE_BUSY));
        locks.lower(1, &mut first, Unlocked);
        locks.raise(3, &mut third, Exclusive).unwrap();
        locks.lower(3, &mut third, Unlocked);
        assert!(!locks.is_reserved() && locks.readers == 0);
    }
}
