//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// host is a machine as oncectl sees one: a process id namespace of its own, a
// name, and a cable to the server, that can be cut or pulled out silently.
type host struct {
	w         *world
	n         int
	near, far string // addresses of the cable's ends

	mu       sync.RWMutex // processes are started under its read lock
	t        *bench       // what ends with this boot
	init     *exec.Cmd
	ns       []int // the namespaces' descriptors
	proxy    *pgtest.Proxy
	proxyURL string

	silent atomic.Bool
}

func (h *host) name() string { return fmt.Sprintf("host%d", h.n) }
func (h *host) dir() string  { return filepath.Join(h.w.dir, h.name()) }

func newHost(w *world, n int) *host {
	h := &host{w: w, n: n, near: fmt.Sprintf("10.77.%d.1", n), far: fmt.Sprintf("10.77.%d.2", n)}
	h.boot()
	return h
}

// boot starts the host. Whoever calls it again has called crash.
func (h *host) boot() {
	h.t = &bench{}
	check(os.RemoveAll(h.dir())) // /tmp is empty after a boot
	check(os.MkdirAll(h.dir(), 0o755))
	h.init = exec.Command(h.w.self, "init", h.name())
	h.init.Stderr = os.Stderr
	h.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS,
		Setpgid:    true,
	}
	out, err := h.init.StdoutPipe()
	check(err)
	check(h.init.Start())
	_, err = out.Read(make([]byte, 1)) // it is ready
	check(err)
	h.ns = nil
	for _, kind := range []string{"uts", "net", "pid", "mnt"} {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", h.init.Process.Pid, kind), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		check(err)
		h.ns = append(h.ns, fd)
	}
	near, far := h.cable()
	ip("link", "add", near, "address", nearMAC, "type", "veth", "peer", "name", far, "address", farMAC, "netns", fmt.Sprint(h.init.Process.Pid))
	ip("addr", "add", h.near+"/30", "dev", near)
	ip("link", "set", near, "up")
	h.ip("link", "set", "lo", "up")
	h.ip("addr", "add", h.far+"/30", "dev", far)
	h.ip("link", "set", far, "up")
	h.ip("route", "add", "default", "via", h.near)
	h.address(nearMAC, farMAC)
	check(h.inside(func() error {
		h.proxy, h.proxyURL = pgtest.NewProxy(h.t, h.w.server.URL())
		return nil
	}))
}

func (h *host) cable() (near, far string) {
	return fmt.Sprintf("near%d", h.n), fmt.Sprintf("far%d", h.n)
}

// crash is the power cut: the network says nothing more, and all processes are
// gone.
func (h *host) crash() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.address(wrongMAC, wrongMAC)
	_ = h.init.Process.Kill()
	_ = h.init.Wait() // it was killed
	h.t.cleanUp()
	for _, fd := range h.ns {
		unix.Close(fd)
	}
	near, _ := h.cable()
	ip("link", "del", near)
	h.boot()
}

// The cable's ends are addressed by hand: what goes to a wrong hardware address
// is dropped by the other end, so that neither end notices.
const (
	nearMAC  = "02:00:00:00:00:01"
	farMAC   = "02:00:00:00:00:02"
	wrongMAC = "02:00:00:00:00:03"
)

func (h *host) silence() { h.address(wrongMAC, wrongMAC) }
func (h *host) speak()   { h.address(nearMAC, farMAC) }

func (h *host) address(nearIs, farIs string) {
	near, far := h.cable()
	ip("neigh", "replace", h.far, "lladdr", farIs, "dev", near, "nud", "permanent")
	h.ip("neigh", "replace", h.near, "lladdr", nearIs, "dev", far, "nud", "permanent")
}

func ip(args ...string) {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		panic(gaveUp(fmt.Sprintf("ip %v: %v %s", args, err, out)))
	}
}

func (h *host) ip(args ...string) {
	var out []byte
	err := h.inside(func() (err error) {
		out, err = exec.Command("ip", args...).CombinedOutput()
		return err
	})
	if err != nil {
		panic(gaveUp(fmt.Sprintf("ip %v: %v %s", args, err, out)))
	}
}

// inside calls f in a thread that has moved to the host: what it starts runs
// there, and the sockets it opens are there.
func (h *host) inside(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		result <- func() error {
			if err := unix.Unshare(unix.CLONE_FS); err != nil { // else no other mounts
				return err
			}
			for _, fd := range h.ns {
				if err := unix.Setns(fd, 0); err != nil {
					return err
				}
			}
			return f()
		}()
	}()
	return <-result
}

// processes are those on the host, but for the first.
func (h *host) processes() (all []string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var own unix.Stat_t
	check(unix.Fstat(h.ns[2], &own))
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Stat(dir+"/ns/pid", &st) != nil || st.Ino != own.Ino || dir == fmt.Sprintf("/proc/%d", h.init.Process.Pid) {
			continue
		}
		line, _ := os.ReadFile(dir + "/cmdline")
		all = append(all, dir[len("/proc/"):]+" "+strings.ReplaceAll(string(line), "\x00", " "))
	}
	return all
}

// initMain is the first process of a host: it reaps.
func initMain(name string) error {
	if err := unix.Sethostname([]byte(name)); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if _, err := os.Stdout.WriteString("ready\n"); err != nil {
		return err
	}
	for range ended {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

func check(err error) {
	if err != nil {
		panic(gaveUp(err.Error()))
	}
}
