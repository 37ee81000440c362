package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// awkward has what a line reader would spoil: NUL, a carriage return, invalid
// UTF-8, no newline at the end. For printf(1) it is awkwardOctal.
const (
	awkward      = "a\x00b\rc\n\xff\xfe\xc3(\r\n\n\x1b[0m d"
	awkwardOctal = `a\000b\rc\n\377\376\303(\r\n\n\033[0m d`
)

func TestOutput_WhenItIsBinary_PassesUnchangedAndApart(t *testing.T) {
	t.Parallel()
	for name, quietOK := range map[string]bool{"passed on": false, "kept back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := script("printf '" + awkwardOctal + "'; printf 'e" + awkwardOctal + "' >&2; exit 1")
			p.QuietOK = quietOK
			j := start(t, p).ends(1)
			if got := j.out.all(t); got != awkward {
				t.Errorf("stdout is %q", got)
			}
			if got := j.err.all(t); got != "e"+awkward {
				t.Errorf("stderr is %q", got)
			}
			if got, want := j.hears("tail"), fmt.Sprintf("%q", "e"+awkward); got != want {
				t.Errorf("the tail is %s, not %s", got, want)
			}
		})
	}
}

// Under cron both are one pipe, and what is written first is read first.
func TestOutput_WhenBothAreOneFile_KeepsItsOrder(t *testing.T) {
	t.Parallel()
	const lines = 300
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
	}
	text := fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo o$i; echo e$i >&2; i=$((i+1)); done; exit 1", lines)
	for name, quietOK := range map[string]bool{"passed on": false, "kept back": true} {
		t.Run(name+", a pipe", func(t *testing.T) {
			t.Parallel()
			p := script(text)
			p.QuietOK = quietOK
			j := newJob(t, p)
			j.Stderr = j.Stdout
			j.begin().ends(1)
			if got := j.out.all(t); got != want.String() {
				t.Errorf("out of order: %q", got)
			}
		})
		t.Run(name+", a file", func(t *testing.T) {
			t.Parallel()
			p := script(text)
			p.QuietOK = quietOK
			j := newJob(t, p)
			name := filepath.Join(t.TempDir(), "log")
			log, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			j.Stdout, j.Stderr = log, log
			j.begin().ends(1)
			if got, _ := os.ReadFile(name); string(got) != want.String() {
				t.Errorf("out of order: %q", got)
			}
		})
	}
}

// A line of any length passes, and so does output without a line.
func TestOutput_WhenThereIsNoNewline_IsSeenAtOnce(t *testing.T) {
	t.Parallel()
	j := newJob(t, script("printf x; printf y >&2; read line; exit 7"))
	goOn := j.input()
	j.begin().says("x")
	await(t, "the error output", func() bool { return j.err.String() == "y" })
	goOn()
	j.ends(7)
}

func TestOutput_WhenADescendantKeepsIt_DoesNotHang(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"silent":     "sleep 300 & echo ok; echo ok >&2; exit 1",
		"of its own": "setsid sh -c 'sleep 300; true' & echo ok; echo ok >&2; exit 1",
		"talkative":  "yes >&2 & echo ok; echo ok >&2; exit 1",
	} {
		for mode, quietOK := range map[string]bool{"passed on": false, "kept back": true} {
			if name == "talkative" && quietOK {
				continue // it would fill the disk
			}
			t.Run(name+", "+mode, func(t *testing.T) {
				t.Parallel()
				p := script(text)
				p.QuietOK = quietOK
				j := start(t, p)
				j.ends(1).says("ok\n")
				await(t, "the error output", func() bool { return strings.Contains(j.err.String(), "ok\n") })
			})
		}
	}
}

// A job whose reader has gone ends as it would without oncectl.
func TestOutput_WhenTheReaderIsGone_TheJobLearnsIt(t *testing.T) {
	t.Parallel()
	j := newJob(t, script("exec yes >&2"))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	j.Stderr, j.stdio = w, append(j.stdio, w)
	j.begin().ends(128 + int(syscall.SIGPIPE))
}

// A reader that takes nothing holds the job up, but not its end.
func TestKill_WhenTheReaderTakesNothing_StillEnds(t *testing.T) {
	t.Parallel()
	j := newJob(t, script("exec yes >&2"))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j.Stderr, j.stdio = w, append(j.stdio, w)
	j.begin().hears("started")
	await(t, "the pipe is full", func() bool {
		n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ) // FIONREAD
		return err == nil && n == 1<<16
	})
	j.asks("kill")
	j.ends(137)
}

func TestQuietOK_WhenTheJobSucceeds_ShowsNothing(t *testing.T) {
	t.Parallel()
	p := script("echo out; echo err >&2")
	p.QuietOK = true
	j := start(t, p).ends(0)
	if out, err := j.out.all(t), j.err.all(t); out+err != "" {
		t.Errorf("it shows %q and %q", out, err)
	}
}

// Both ways of keeping back, an unlinked file and memory, and their limits.
func TestQuietOK_WhenThereIsMuchOutput_MemoryStaysFlat(t *testing.T) {
	t.Parallel()
	const size = 200 << 20
	for name, dir := range map[string]string{"file": "", "no file can be made": "/no/such/folder"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := script(fmt.Sprintf("head -c %d /dev/zero; echo end; echo err >&2; exit 1", size))
			p.QuietOK, p.Options.TempDir = true, dir
			j := newJob(t, p)
			log := filepath.Join(t.TempDir(), "log")
			f, err := os.Create(log)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			j.Stdout = f
			j.begin().ends(1)
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			want := int64(size + len("end\n"))
			if dir != "" {
				want = 1 << 20
				lost := fmt.Sprintf("the first %d bytes of the job's output are lost", size+len("end\n")-1<<20)
				if got := j.err.all(t); !strings.Contains(got, lost) || !strings.HasSuffix(got, "err\n") {
					t.Errorf("stderr is %q", got)
				}
			}
			if info.Size() != want {
				t.Errorf("%d bytes were shown, not %d", info.Size(), want)
			}
			// The race detector alone takes some 40 MiB.
			if rss := j.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; rss > 100<<10 {
				t.Errorf("it took %d KiB", rss)
			}
		})
	}
}

func TestTail_WhenThereIsMuch_IsTheEnd(t *testing.T) {
	t.Parallel()
	for name, quietOK := range map[string]bool{"passed on": false, "kept back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := script("seq 100000 >&2; exit 1")
			p.QuietOK = quietOK
			j := start(t, p).ends(1)
			tail := j.hears("tail")
			if n := len(j.err.all(t)); n != 588895 {
				t.Errorf("%d bytes came through", n)
			}
			if text := fmt.Sprintf("%q", j.err.String()[588895-4096:]); tail != text {
				t.Errorf("the tail is not the last 4 KiB: %q", tail)
			}
		})
	}
}
