package report

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/oncectl/oncectl/runner"
)

// hostile are texts that others chose.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onfocus='alert(1)`, `&lt;b&gt;`, `</title><svg onload=alert(1)>`,
	"\u202egnp.exe", "\u2066\u2069\u202a", "تقارير", "%s%d%n", "bad \xff utf-8", "nul \x00, line\nfeed", strings.Repeat("very-long-", 102), "日本語 😀",
}

func hostilePage(t *testing.T) string {
	t.Helper()
	var runs []runner.PastRun
	for i, text := range hostile {
		run := ran(int64(100-i), text, time.Duration(i)*time.Hour, outcomes[i%len(outcomes)], time.Second)
		run.Host, run.Key = text, text
		runs = append(runs, run)
	}
	s := statusOf(runs...)
	for i := range s.Locks {
		s.Locks[i].Held, s.Locks[i].Holder = true, hostile[i]
	}
	r := reportOf(t, s, runs...)
	r.Store, r.Version = hostile[0], hostile[0]
	for _, text := range hostile {
		r.Needs = append(r.Needs, Need{text, text})
		_ = r.AddDeadLetter(runner.DeadLetter{
			Kind: runner.Kind(text), Name: text, EventID: runner.EventID(text), Certainty: runner.Outcome(text), FailedAt: at,
			LastError: text + "; stderr ends:\nTOPSECRET", Payload: []byte("TOPSECRET"), Request: []byte(`"TOPSECRET"`), PayloadHash: "TOPSECRET",
		})
		_ = r.AddDoubt(runner.Claim{ID: runner.EventID(text), Owner: text, Target: text, Token: "TOPSECRET", PayloadHash: "TOPSECRET"})
	}
	return pageOf(t, r)
}

// The page is read as a browser does: no text becomes an element or an
// attribute, and nothing leads out of the page.
func TestPage_WhenTextsAreHostile_TheyStayTexts(t *testing.T) {
	page := hostilePage(t)
	if !utf8.ValidString(page) || strings.ContainsAny(page, "\x00") {
		t.Error("the page is no valid UTF-8")
	}
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta", "link", "br"}, xml.HTMLEntity
	elements := 0
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("element %d: %v", elements, err)
		}
		if e, ok := tok.(xml.StartElement); ok {
			elements++
			checkElement(t, e)
		}
	}
	if elements < 1000 {
		t.Errorf("only %d elements", elements)
	}
	for _, want := range []string{"&lt;script&gt;alert(1)&lt;/script&gt;", "&amp;lt;b&amp;gt;", "%s%d%n", "日本語 😀", "line\ufffdfeed"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func checkElement(t *testing.T, e xml.StartElement) {
	t.Helper()
	switch e.Name.Local {
	case "script", "img", "iframe", "object", "embed", "form", "base", "foreignObject", "animate":
		t.Errorf("there is an element %s", e.Name.Local)
	}
	for _, a := range e.Attr {
		switch name := strings.ToLower(a.Name.Local); {
		case strings.HasPrefix(name, "on"), name == "style", name == "src", name == "srcset":
			t.Errorf("%s has %s=%q", e.Name.Local, name, a.Value)
		case name == "href" && !strings.HasPrefix(a.Value, "#") && !strings.HasPrefix(a.Value, "data:image/svg+xml,"):
			t.Errorf("%s leads to %q", e.Name.Local, a.Value)
		}
	}
}

func TestPage_WhenThereAreSecrets_ShowsNone(t *testing.T) {
	if strings.Contains(hostilePage(t), "TOPSECRET") {
		t.Error("a payload, a request, a token, a hash or a command's output is on the page")
	}
}

// Every id is there once, and what refers to one finds it.
func TestPage_IDsAreUniqueAndReferencesHaveTargets(t *testing.T) {
	page := hostilePage(t)
	ids := map[string]int{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if ids[m[1]]++; ids[m[1]] > 1 {
			t.Errorf("id %s is there twice", m[1])
		}
	}
	for _, m := range regexp.MustCompile(` (?:href="#|aria-labelledby=")([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if ids[m[1]] == 0 {
			t.Errorf("there is no id %s", m[1])
		}
	}
}

// Colours are told apart from what is behind them as WCAG 2.2 asks for: 4.5 to 1
// for all that is text or the shape of an outcome.
func TestStyle_ColoursHaveContrast(t *testing.T) {
	for _, theme := range regexp.MustCompile(`:root\{([^}]*)\}`).FindAllStringSubmatch(style, -1) {
		light := map[string]float64{}
		for _, m := range regexp.MustCompile(`--(\w+):#(\w+)`).FindAllStringSubmatch(theme[1], -1) {
			light[m[1]] = luminance(t, m[2])
		}
		for _, over := range []string{"bg", "panel"} {
			for _, name := range []string{"text", "soft", "o0", "o1", "o2", "o3", "o4", "o5", "o6", "good", "look", "bad", "link"} {
				a, b := light[name]+.05, light[over]+.05
				if ratio := max(a/b, b/a); ratio < 4.5 {
					t.Errorf("%s on %s: %.2f to 1 in %s", name, over, ratio, theme[1])
				}
			}
		}
		if a, b := light["m"]+.05, light["bg"]+.05; max(a/b, b/a) < 3 {
			t.Errorf("durations cannot be seen in %s", theme[1])
		}
	}
}

// luminance is that of WCAG 2.2, "relative luminance".
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = strings.Repeat(hex[:1], 2) + strings.Repeat(hex[1:2], 2) + strings.Repeat(hex[2:], 2)
	}
	sum := 0.0
	for i, weight := range []float64{.2126, .7152, .0722} {
		v, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatalf("colour %s: %v", hex, err)
		}
		sum += weight * linear(float64(v)/255)
	}
	return sum
}
