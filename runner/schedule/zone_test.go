package schedule

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// tzif makes a zone file, version 1: one change at that moment between two
// offsets from UTC, in seconds (RFC 9636, section 3).
func tzif(change, before, after int32) []byte {
	b := append([]byte("TZif"), make([]byte, 16)...)
	for _, n := range []uint32{0, 0, 0, 1, 2, 4} { // isut, isstd, leap, time, type, char counts
		b = binary.BigEndian.AppendUint32(b, n)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(change))
	b = append(b, 1)
	for _, offset := range []int32{before, after} {
		b = binary.BigEndian.AppendUint32(b, uint32(offset))
		b = append(b, 0, 0)
	}
	return append(b, "ODD\x00"...)
}

// oddZone is UTC until 2000-01-02 00:00, when its clock is set 48 s forward.
func oddZone(t *testing.T) *time.Location {
	t.Helper()
	at := instant(t, "2000-01-02T00:00:00Z")
	loc, err := time.LoadLocationFromTZData("Odd", tzif(int32(at.Unix()), 0, 48))
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestParse_WhenTheZoneIsUnknown_SaysSoInOneLine(t *testing.T) {
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte("not a zone"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tz := range []string{"Europe/Atlantis", "CEST", "+02:00", "CET-1CEST,M3.5.0,M10.5.0/3", "../etc/passwd", "Europe", "zone.tab",
		"\x00", "a\nb", junk, "/", "/no/such/file", "/dev/zero", strings.Repeat("x", 1e5)} {
		_, err := Parse("0 3 * * *", tz)
		if !errors.Is(err, runner.ErrInvalid) {
			t.Errorf("Parse with zone %.40q = %v, want ErrInvalid", tz, err)
			continue
		}
		if msg := err.Error(); !strings.Contains(msg, "Europe/Berlin") || strings.Contains(msg, "\n") || len(msg) > 250 {
			t.Errorf("Parse with zone %.40q says %q", tz, msg)
		}
	}
}

func TestParse_WhenTheZoneIsGivenAsInTZ_ReadsIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "odd")
	if err := os.WriteFile(file, tzif(0, 3600, 3600), 0o600); err != nil {
		t.Fatal(err)
	}
	for tz, want := range map[string]string{
		"UTC": "2026-06-01T03:00:00Z", "Etc/UTC": "2026-06-01T03:00:00Z",
		"Europe/Berlin": "2026-06-01T01:00:00Z", ":Europe/Berlin": "2026-06-01T01:00:00Z",
		file: "2026-06-01T02:00:00Z", ":" + file: "2026-06-01T02:00:00Z",
	} {
		got, _ := mustParse(t, "0 3 * * *", tz).Tick(instant(t, "2026-06-01T12:00:00Z"))
		if got.Key() != want {
			t.Errorf("3 o'clock in %q is %s, want %s", tz, got.Key(), want)
		}
	}
	for _, tz := range []string{"", "Local", ":"} {
		if got := mustParse(t, "0 3 * * *", tz).zone.loc; got != time.Local {
			t.Errorf("zone %q is %v, want the host's", tz, got)
		}
	}
}

// The environment that makes this test's own binary, started again, print the
// tick of its zone rather than run tests.
const printZone = "SCHEDULE_TEST_PRINT_ZONE"

func TestMain(m *testing.M) {
	zone, ok := os.LookupEnv(printZone)
	if !ok {
		os.Exit(m.Run())
	}
	s, err := Parse("0 3 * * *", zone)
	if err != nil {
		os.Stdout.WriteString(err.Error())
		os.Exit(1)
	}
	tick, _ := s.Tick(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
	os.Stdout.WriteString(tick.Key())
	os.Exit(0)
}

func TestParse_WhenTheHostHasNoTzdata_KnowsNames(t *testing.T) {
	for _, c := range []struct {
		name, zone string
		env        []string
	}{
		{"by name", "Europe/Berlin", nil},
		{"by TZ", "", []string{"TZ=Europe/Berlin"}},
		{"by TZ with a colon", "", []string{"TZ=:Europe/Berlin"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := withoutTzdata(t)
			cmd.Env = append([]string{printZone + "=" + c.zone, "GOROOT=/nonexistent", "ZONEINFO=" + t.TempDir()}, c.env...)
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != "2026-06-01T01:00:00Z" {
				t.Errorf("the tick is %q, %v; want 2026-06-01T01:00:00Z", out, err)
			}
		})
	}
}

// withoutTzdata is this test's binary in a mount namespace in which the places
// that package time looks at are empty.
func withoutTzdata(t *testing.T) *exec.Cmd {
	t.Helper()
	const hide = `for d in /usr/share/zoneinfo /usr/share/lib/zoneinfo /usr/lib/locale/TZ /etc/zoneinfo "$0"; do
		if [ -d "$d" ]; then mount -t tmpfs none "$d" || exit 77; fi
	done
	test -z "$(ls /usr/share/zoneinfo 2>/dev/null)" || exit 77
	exec "$1"`
	cmd := exec.Command("unshare", "-m", "sh", "-c", hide)
	if err := exec.Command("unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt").Run(); err != nil {
		t.Skip("needs root and unshare(1) to hide the host's tzdata")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args = append(cmd.Args, filepath.Join(strings.TrimSpace(string(goroot)), "lib/time"), exe)
	return cmd
}
