package broker

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

// The requests of README.md, as a shell script makes them: the status decides.
func TestCurl_WhenAScriptUsesTheSocket_TheStatusIsTheAnswer(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("needs curl")
	}
	s := serving(t, whole{newMemory()})
	run := func(args ...string) string {
		t.Helper()
		all := append([]string{"-q", "-sS", "--max-time", "60", "--unix-socket", s.Path(), "-w", "%{http_code}"}, args...)
		out, err := exec.Command(curl, all...).CombinedOutput()
		if err != nil {
			t.Fatalf("curl %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-X", "POST", "http://oncectl/claim/invoice/4711"}, `{"won":true,"token":"[0-9a-f-]{36}"}` + "\n200"},
		{[]string{"-X", "POST", "http://oncectl/claim/invoice/4711"}, `{"code":"conflict","message":"the event is already claimed"}` + "\n409"},
		{[]string{"-X", "POST", "http://oncectl/claim/export?expires=10m"}, `{"won":true,"token":"[0-9a-f-]{36}"}` + "\n200"},
		{[]string{"-X", "POST", "http://oncectl/done/export"}, `{"answers":\["settled"\]}` + "\n200"},
		{[]string{"-X", "POST", "http://oncectl/release/invoice/4711"}, `{"answers":\["settled"\]}` + "\n200"},
		{[]string{"-d", `{"ids":["a","b","export"]}`, "http://oncectl/claim"}, `{"won":\[true,true,false\],"token":"[0-9a-f-]{36}"}` + "\n200"},
		{[]string{"-d", `{"ids":["a","never"]}`, "http://oncectl/release"}, `{"answers":\["settled","not_claimed"\]}` + "\n200"},
		{[]string{"http://oncectl/run"}, `{"run_id":7,"lock":"nightly".*}` + "\n200"},
		{[]string{"-d", "a", "http://oncectl/claim"}, `{"code":"invalid","message":".*"}` + "\n400"},
	} {
		if got := run(c.args...); !regexp.MustCompile("^" + c.want + "$").MatchString(got) {
			t.Errorf("curl %q: %s, want %s", c.args, got, c.want)
		}
	}
	s.Refuse(runner.ErrLockLost)
	if got := run("-X", "POST", "http://oncectl/claim/other"); !strings.HasSuffix(got, "\n403") || !strings.Contains(got, `"code":"lock_lost"`) {
		t.Errorf("after the loss of the lock: %s", got)
	}
	s.Close()
	// What curl prints for a run that is gone: 000, which is not 409.
	out, err := exec.Command(curl, "-q", "-sS", "--unix-socket", s.Path(), "-w", "%{http_code}", "-X", "POST", "http://oncectl/claim/x").Output()
	if err == nil || string(out) != "000" {
		t.Errorf("with the run gone: %s, %v", out, err)
	}
}

// A body of more than 1 MiB: curl asks first whether it may send it.
func TestCurl_WhenTheBodyIsLarge_ItIsTaken(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("needs curl")
	}
	m := newMemory()
	s := serving(t, m)
	cmd := exec.Command(curl, "-q", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket", s.Path(), "--data-binary", "@-", "http://oncectl/claim")
	cmd.Stdin = strings.NewReader(`{"ids":["a"` + strings.Repeat(`,"`+strings.Repeat("x", 1000)+`"`, 3000) + `]}`)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "200" {
		t.Errorf("%s, %v", out, err)
	}
	if req := m.requests()[0].(runner.ClaimRequest); len(req.IDs) != 3001 {
		t.Errorf("%d ids arrived", len(req.IDs))
	}
}
