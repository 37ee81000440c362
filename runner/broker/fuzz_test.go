package broker

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

// Whatever a job asks, the answer is one JSON object with a status that the
// documentation names, an error is short, and nothing reaches the store that
// breaks its rules.
func FuzzRequest(f *testing.F) {
	for _, c := range [][3]string{
		{"POST", "/claim/a//b", ""}, {"POST", "/claim/%C3%A4+?expires=10m&owner=me", ""}, {"POST", "/claim", `{"ids":["a","b"],"expires":"10m","take":["expired"]}`}, {"POST", "/done", `{"ids":["a"],"outcome":"failed"}`},
		{"POST", "/release/a", ""}, {"POST", "/renew", `{"ids":["x"],"token":"` + string(aToken) + `","expires":"10m"}`}, {"POST", "/lookup", `{"ids":["a"]}`}, {"POST", "/settle", `{"settlements":[{"id":"b","outcome":"in_doubt"}]}`},
		{"POST", "/turn", `{"settle":{"settlements":[]},"claim":{"ids":["z"]}}`}, {"GET", "/run", ""}, {"POST", "/slot/1/done", `{}`}, {"PUT", "/done", "{}"}, {"POST", "/claim", `{"ids":["a"],"targets":["x"],"payload_hashes":["x"]}`},
		{"POST", "/outbox", `{"topic":"t","payload":{}}`}, {"POST", "/claim/a?token=mine", ""}, {"POST", "/claim", `{"ids":["\ud800"]}`}, {"POST", "/claim/%ff", ""}, {"POST", "/done/%ff", ""}, {"POST", "/release/a%00", ""}, {"POST", "/claim", `{"ids":["a"],"payload_hashes":[],"targets":[]}`}, {"POST", "//", ""}, {"GET", "/ru" + strings.Repeat("u", 3000), ""},
		{"POST", "/settle", `{"settlements":[{"id":"a","outcome":"failed","dead_letter":{"kind":"send","certainty":"failed","last_error":"x"}}]}`},
	} {
		f.Add(c[0], c[1], c[2])
	}
	statuses := map[int]bool{200: true, 400: true, 404: true, 405: true, 409: true, 413: true, 501: true}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || strings.HasPrefix(u.Path, "/slot") && !strings.Contains(u.Path[1:], "/") || !isMethod(method) {
			return // net/http refuses it; and a slot is waited for
		}
		m := newMemory()
		s := silent()
		s.Serve(theRun, whole{m})
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "/", strings.NewReader(body))
		r.URL = u
		s.handle(w, r)
		if !statuses[w.Code] || !json.Valid(w.Body.Bytes()) || !strings.HasPrefix(w.Body.String(), "{") {
			t.Errorf("answered %d %q", w.Code, w.Body)
		}
		var said errorBody
		if w.Code >= 400 && w.Code != http.StatusConflict {
			if json.Unmarshal(w.Body.Bytes(), &said) != nil || said.Code == "" || said.Message == "" || len(said.Message) > 2003 {
				t.Errorf("answered %d %.2000q", w.Code, w.Body)
			}
			if asked := m.requests(); len(asked) > 0 && w.Code < 500 {
				t.Errorf("answered %d, and asked the store for %v", w.Code, asked)
			}
		}
		for _, asked := range m.requests() {
			wantRules(t, asked)
		}
	})
}

// silent is a Server without a socket.
func silent() *Server {
	s := &Server{gate: newGate(), slots: newSlots(nil)}
	s.closing, s.beginClosing = context.WithCancelCause(context.Background())
	s.working, s.endWorking = context.WithCancelCause(context.Background())
	return s
}

// wantRules checks what a store may rely on.
func wantRules(t *testing.T, asked any) {
	t.Helper()
	var ids []runner.EventID
	var token runner.Token
	switch req := asked.(type) {
	case runner.ClaimRequest:
		ids, token = req.IDs, req.Token
		if token == "" || req.Run == nil || req.Expires < 0 || len(req.Targets) > 0 && len(req.Targets) != len(ids) ||
			len(req.PayloadHashes) > 0 && len(req.PayloadHashes) != len(ids) {
			t.Errorf("the store was asked for %+v", req)
		}
	case runner.SettleRequest:
		token = req.Token
		for _, st := range req.Settlements {
			ids = append(ids, st.ID)
			if checkOutcome(st.Outcome) != nil {
				t.Errorf("the store was asked to record %+v", st)
			}
		}
	case runner.GiveBackRequest:
		ids, token = req.IDs, req.Token
	}
	if err := checkIDs(ids); err != nil {
		t.Error(err)
	}
	if err := checkToken(token); err != nil {
		t.Error(err)
	}
}

func isMethod(s string) bool {
	for _, r := range s {
		if r < 'A' || r > 'Z' {
			return false
		}
	}
	return s != ""
}
