// Package sqlitestore is the store in one SQLite file: the default where no
// database is set. It guards whoever shares the file, on one machine.
//
// What belongs to a store at PATH:
//   - PATH, PATH-wal: the rows. A backup needs both, taken at one moment:
//     `sqlite3 PATH ".backup FILE"` or `vacuum into` does that, cp does not.
//     PATH-wal stays when nothing runs; it is not a leftover.
//   - PATH-shm: SQLite's index of PATH-wal. No part of a backup.
//   - PATH-locks/: one file a lock, held by flock(2), and the one under which
//     the tables are made. They are empty, are never removed, and are no part
//     of a backup. Removing them while a job runs loses its lock.
//
// Times come from SQLite's clock, which is this machine's. Writers are serial:
// a transaction that begins immediate sees all that was committed before it
// and nothing changes under it, which is what makes every fence and every take
// over here right without further locks.
package sqlitestore
