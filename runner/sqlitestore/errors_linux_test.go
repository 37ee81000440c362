package sqlitestore

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner"
)

// mountTmpfs mounts a file system in memory, where root may.
func mountTmpfs(t *testing.T, flags uintptr, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("oncectl-test", dir, "tmpfs", flags, options); err != nil {
		t.Skipf("mounting a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestErrors_WhenTheFileSystemIsReadOnly_SaySo(t *testing.T) {
	dir := mountTmpfs(t, 0, "size=4m")
	path := filepath.Join(dir, "oncectl.db")
	s := open(t, Config{Path: path})
	mustWin(t, s, "a")
	s.Close()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skipf("making a file system read-only: %v", err)
	}
	s = open(t, Config{Path: path})
	_, err := s.Claim(t.Context(), claimOf("a"))
	wantError(t, err, runner.ErrUnavailable, "read-only file system: set ONCECTL_STATE_DIR")
	_, err = s.TryLock(t.Context(), nightly)
	wantError(t, err, runner.ErrUnavailable, "read-only file system: set ONCECTL_STATE_DIR")
	wantError(t, claimErr(t, filepath.Join(dir, "other", "x.db")), runner.ErrUnavailable, "read-only file system: set ONCECTL_STATE_DIR")
}

func TestErrors_WhenTheDiskIsFull_SaySo(t *testing.T) {
	path := filepath.Join(mountTmpfs(t, 0, "size=400k"), "oncectl.db")
	s := open(t, Config{Path: path})
	mustWin(t, s, "first")
	for range 1000 {
		ids := make([]runner.EventID, 20)
		for i := range ids {
			ids[i] = runner.EventID(runner.NewToken())
		}
		_, err := s.Claim(t.Context(), claimOf(ids...))
		if err == nil {
			continue
		}
		wantError(t, err, runner.ErrUnavailable, "full")
		if got, err := s.Lookup(t.Context(), ids); err != nil || len(got) != 0 {
			t.Errorf("after the error there are %d of its claims, %v", len(got), err)
		}
		return
	}
	t.Fatal("the disk was never full")
}
