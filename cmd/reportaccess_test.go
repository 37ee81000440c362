package cmd_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// checkAccess looks at the page as a screen reader, a keyboard and a telephone
// have it.
func checkAccess(t *testing.T, b *browser) {
	t.Helper()
	checkNames(t, b)
	var focus string
	for _, want := range []string{"A Skip to the verdict", "A Now", "A Timelines"} {
		for _, kind := range []string{"keyDown", "keyUp"} {
			b.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}, nil)
		}
		b.eval("document.activeElement.tagName + ' ' + document.activeElement.textContent", &focus)
		if focus != want {
			t.Errorf("the tab key led to %q, not to %q", focus, want)
		}
	}
	// A mark that has the focus shows its label.
	var tip string
	b.eval(`(m => { m.focus(); return getComputedStyle(m.querySelector('.tip')).display })(document.querySelector('[role=listitem][tabindex]'))`, &tip)
	if tip == "none" {
		t.Error("a mark with the focus does not show its label")
	}
	for _, width := range []int{1280, 400, 320} {
		b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false}, nil)
		var wide int
		if b.eval("document.documentElement.scrollWidth", &wide); wide > width {
			t.Errorf("at %d pixels the page is %d wide", width, wide)
		}
	}
}

// checkNames finds the charts in the tree that assistive technology gets: a list
// for each lock with runs, with a name, and in it an item for each mark, with one.
func checkNames(t *testing.T, b *browser) {
	t.Helper()
	type value struct{ Value json.RawMessage }
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name value
		}
	}
	b.call("Accessibility.getFullAXTree", nil, &tree)
	text := func(v value) (s string) {
		_ = json.Unmarshal(v.Value, &s) // not of a string: no name
		return s
	}
	lists, items := 0, map[string]int{}
	for _, n := range tree.Nodes {
		name := text(n.Name)
		switch role := text(n.Role); {
		case n.Ignored:
		case role == "list" && strings.HasPrefix(name, "Timeline of "):
			lists++
		case role == "listitem" && strings.Contains(name, "run"):
			for _, outcome := range []string{"succeeded", "failed", "timed out", "stopped", "lost", "running", "unknown"} {
				if strings.Contains(name, outcome) {
					items[outcome]++
				}
			}
		case (role == "link" || role == "table" || role == "heading" || role == "region") && name == "":
			t.Errorf("a %s has no name", role)
		}
	}
	if lists != 7 || len(items) != 7 {
		t.Errorf("%d lists; marks by outcome %v", lists, items)
	}
}
