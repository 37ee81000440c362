package sqlitestore

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// flocks reads who holds which file's flock from /proc/locks (proc_locks(5)).
// In a container it shows the locks of the container's own processes only.
func flocks() map[fileID]int {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return nil
	}
	defer f.Close()
	return parseLocks(f)
}

// parseLocks reads lines such as
//
//	1: FLOCK  ADVISORY  WRITE 4711 08:01:131105 0 EOF
//
// where those of waiters have an arrow behind the number, and are left out.
func parseLocks(r io.Reader) map[fileID]int {
	out := map[fileID]int{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" {
			continue
		}
		var id fileID
		var pid int
		if n, _ := fmt.Sscanf(fields[5], "%x:%x:%d", &id.major, &id.minor, &id.inode); n != 3 {
			continue
		}
		if _, err := fmt.Sscanf(fields[4], "%d", &pid); err == nil {
			out[id] = pid
		}
	}
	return out
}
