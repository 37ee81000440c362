package guard

import "syscall"

// proc is a line of /proc/PID/stat.
type proc struct {
	ident
	parent, group int
	threads       int
	state         byte
}

// dead: only its parent's wait is missing. A thread group whose leader has
// ended shows as a zombie while its other threads live.
func (p proc) dead() bool { return (p.state == 'Z' || p.state == 'X') && p.threads <= 1 }

// stopped by a signal or by its tracer.
func (p proc) stopped() bool { return p.state == 'T' || p.state == 't' }

// settled: a process that was sent SIGSTOP is as good as stopped while it is
// in an uninterruptible call. The parent in vfork stays in one for as long as
// its stopped child does. The state of a zombie leader's threads is not shown.
func (p proc) settled() bool { return p.state == 'D' || p.state == 'Z' }

// walk calls f for each descendant of root, parents before children except for
// numbers that have come round, each at most once.
func (t *Tree) walk(f func(proc)) {
	below := map[int]bool{t.root: true}
	var later []proc
	eachProc(func(p proc) {
		if !below[p.parent] {
			later = append(later, p)
			return
		}
		below[p.pid] = true
		f(p)
	})
	for found := true; found; {
		found = false
		rest := later[:0]
		for _, p := range later {
			if !below[p.parent] {
				rest = append(rest, p)
				continue
			}
			below[p.pid], found = true, true
			f(p)
		}
		later = rest
	}
}

// eachProc calls f for all processes, in the order of their numbers. Each is
// read just before.
func eachProc(f func(proc)) {
	dir, err := syscall.Open("/proc", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer syscall.Close(dir)
	buf, stat := make([]byte, 16<<10), make([]byte, 1024)
	for {
		n, err := syscall.ReadDirent(dir, buf)
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return
		}
		_, _, names := syscall.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if name[0] < '1' || name[0] > '9' {
				continue
			}
			if p, ok := parseStat(readProc(name, stat)); ok {
				f(p)
			}
		}
	}
}

func readProc(pid string, buf []byte) []byte {
	fd, err := syscall.Open("/proc/"+pid+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	n, err := syscall.Read(fd, buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// parseStat reads a line of /proc/PID/stat (proc_pid_stat(5)). The name in
// parentheses may hold anything, also parentheses, spaces and newlines.
func parseStat(line []byte) (proc, bool) {
	end := len(line) - 1
	for end >= 0 && line[end] != ')' {
		end--
	}
	if end < 0 || len(line) < end+3 {
		return proc{}, false
	}
	pid, ok := number(line)
	p := proc{ident: ident{pid: int(pid)}, state: line[end+2]}
	field := 3
	for i := end + 2; i < len(line) && field < 22; i++ {
		if line[i] != ' ' {
			continue
		}
		field++
		v, valid := number(line[i+1:])
		switch field {
		case 4:
			p.parent = int(v)
		case 5:
			p.group = int(v)
		case 20:
			p.threads = int(v)
		case 22:
			p.start, ok = v, ok && valid
		}
	}
	return p, ok && field == 22
}

// number reads the decimal number that b begins with.
func number(b []byte) (v uint64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		v, ok = v*10+uint64(c-'0'), true
	}
	return v, ok
}
