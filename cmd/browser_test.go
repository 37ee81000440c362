package cmd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner/storetest/pgtest"
)

// browser is a headless Chromium with one page, driven by the DevTools protocol
// over a pipe: JSON objects that end with NUL.
type browser struct {
	t       testing.TB
	to      *os.File
	from    *bufio.Reader
	id      int
	session string
	events  []devMessage
}

type devMessage struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct{ Message string }
}

// openBrowser starts one whose page reports requests, console and log. It could
// reach no host by name, and none is meant to be asked for.
func openBrowser(t testing.TB) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		pgtest.Skip(t, "chromium, of the Debian package chromium")
	}
	theirIn, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: Chromium's helpers write there until the very end.
	profile, err := os.MkdirTemp("", "oncectl-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-extensions",
		"--host-resolver-rules=MAP * ~NOTFOUND", "--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	c.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4, as the protocol has it
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	stop := time.AfterFunc(2*patience, func() { _ = c.Process.Kill() }) // a read that waits for it ends then
	t.Cleanup(func() {
		stop.Stop()
		to.Close() // which ends it
		_ = c.Wait()
		from.Close()
		_ = os.RemoveAll(profile)
	})
	b := &browser{t: t, to: to, from: bufio.NewReader(from)}
	var target struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Network", "Log", "Runtime", "Page", "Accessibility"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// call sends a command and reads its answer.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.id++
	m := map[string]any{"id": b.id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	for {
		m := b.read(method)
		if m.ID != b.id {
			continue
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
		return
	}
}

// read reads a message, and keeps it if it is an event.
func (b *browser) read(waiting string) (m devMessage) {
	b.t.Helper()
	text, err := b.from.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("%s: the browser ended: %v", waiting, err)
	}
	if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
		b.t.Fatal(err)
	}
	if m.Method != "" {
		b.events = append(b.events, m)
	}
	return m
}

// open loads a page and waits until it is whole.
func (b *browser) open(url string) {
	b.t.Helper()
	b.events = nil
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	for !b.saw("Page.loadEventFired") {
		b.read("loading the page")
	}
}

func (b *browser) saw(method string) bool {
	for _, e := range b.events {
		if e.Method == method {
			return true
		}
	}
	return false
}

// eval is the value of an expression in the page.
func (b *browser) eval(expression string, value any) {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
	if answer.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, answer.ExceptionDetails)
	}
	if err := json.Unmarshal(answer.Result.Value, value); err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
}

// troubles are what the page has asked for beside itself, and what it had to say.
func (b *browser) troubles(url string) (out []string) {
	for _, e := range b.events {
		var p struct {
			Request struct{ URL string }
		}
		switch e.Method {
		case "Network.requestWillBeSent":
			if err := json.Unmarshal(e.Params, &p); err != nil {
				b.t.Fatal(err)
			}
			if p.Request.URL != url && !strings.HasPrefix(p.Request.URL, "data:") {
				out = append(out, "a request for "+p.Request.URL)
			}
		case "Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown":
			out = append(out, fmt.Sprintf("%s: %s", e.Method, e.Params))
		}
	}
	return out
}
