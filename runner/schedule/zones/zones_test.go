package zones

import (
	"archive/zip"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Each zone that Go knows is here, and package time can read it. A newer Go may
// have newer ones, which is good to know and no fault of what is here.
func TestLoad_HasEveryZoneOfGo(t *testing.T) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(goroot)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	zones, changed := 0, 0
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		zones++
		got, err := load(f.Name)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		if _, err := time.LoadLocationFromTZData(f.Name, []byte(got)); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if want, err := io.ReadAll(r); err != nil || got != string(want) {
			changed++
		}
	}
	if zones < 500 {
		t.Errorf("Go has only %d zones", zones)
	}
	if changed > 0 {
		t.Logf("%d zones are others than Go's: go run ./scripts/genzones runner/schedule/zones/zones.gz", changed)
	}
}

func TestLoad_WhenThereIsNoSuchZone_IsNotFound(t *testing.T) {
	for _, name := range []string{"Europe/Atlantis", "", "Europe", "Europe/", "\n"} {
		if _, err := load(name); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
