package broker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/oncectl/oncectl/runner"
)

// What a job in any language can rely on. The requests go to one store, in
// order.
func TestHTTP_WhenAJobAsksAsInTheDocumentation_ItIsAnsweredSo(t *testing.T) {
	s := serving(t, whole{newMemory()})
	const uuid = `[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"POST", "/claim/invoice/4711", "", 200, `{"won":true,"token":"` + uuid + `"}`},
		{"POST", "/claim/invoice/4711", "", 409, `{"code":"conflict","message":"the event is already claimed"}`},
		{"POST", "/claim/x?expires=10m&owner=me&token=" + string(aToken), "", 200, `{"won":true,"token":"` + string(aToken) + `"}`},
		{"POST", "/claim", `{"ids":["a","b","x"],"expires":"10m"}`, 200, `{"won":\[true,true,false\],"token":"` + uuid + `"}`},
		{"POST", "/claim", `{"ids":[]}`, 200, `{"won":\[\],"token":"` + uuid + `"}`},
		{"POST", "/done", `{"ids":["a","no"]}`, 200, `{"answers":\["settled","not_claimed"\]}`},
		{"POST", "/done", `{"ids":["b"],"outcome":"failed","token":"` + string(aToken) + `"}`, 200, `{"answers":\["not_owner"\]}`},
		{"POST", "/done/a", "", 200, `{"answers":\["already_settled"\]}`},
		{"POST", "/done/no", "", 409, `{"code":"conflict","message":"the event is not claimed"}`},
		{"POST", "/release/a", "", 409, `{"code":"conflict","message":"the event was delivered, so that it stays claimed"}`},
		{"POST", "/release/no", "", 409, `{"code":"conflict","message":"the event is not claimed"}`},
		{"POST", "/release/b", "", 200, `{"answers":\["settled"\]}`},
		{"POST", "/release", `{"ids":["b","x"],"token":"` + string(aToken) + `"}`, 200, `{"answers":\["not_claimed","settled"\]}`},
		{"POST", "/claim/b", "", 200, `{"won":true.*`},
		{"POST", "/renew", `{"ids":["x","no"],"token":"` + string(aToken) + `","expires":"10m"}`, 200, `{"renewed":0}`},
		{"POST", "/lookup", `{"ids":["no"]}`, 200, `{"claims":\[\]}`},
		{"POST", "/lookup", `{"ids":["a"]}`, 200, `{"claims":\[{"id":"a","state":"delivered","claimed_at":"2026-03-29T01:30:00.123456Z","token":"` + uuid +
			`","run_id":7,"owner":"here/4711","expires_at":"2026-03-29T01:40:00.123456Z","outcome":"delivered","finished_at":"2026-03-29T01:31:00.123456Z"}\]}`},
		{"POST", "/settle", `{"settlements":[{"id":"b","outcome":"in_doubt"}]}`, 200, `{"answers":\["settled"\]}`},
		{"POST", "/turn", `{"settle":{"settlements":[]},"claim":{"ids":["z"]}}`, 200, `{"answers":\[\],"won":\[true\],"token":"` + uuid + `"}`},
		{"GET", "/run", "", 200, `{"run_id":7,"lock":"nightly","lock_key":-42,"key":"2026-03-29","host":"here","pid":4711,` +
			`"scheduled_at":"2026-03-29T01:30:00.123456Z","started_at":"2026-03-29T01:30:01.123456Z"}`},
		// An id is the rest of the path, byte for byte.
		{"POST", "/claim/a//b/%2E%2E/c%2Fd%3F%23%25", "", 200, `{"won":true.*`},
		{"POST", "/lookup", `{"ids":["a//b/../c/d?#%"]}`, 200, `{"claims":\[{"id":"a//b/../c/d\?#%".*`},
		{"POST", "/claim/%C3%A4+", "", 200, `{"won":true.*`},
		{"POST", "/done/ä+", "", 200, `{"answers":\["settled"\]}`},
	} {
		status, answer := ask(t, s, c.method, c.path, c.body)
		if ok, err := regexp.MatchString("^"+c.answer+"\n$", answer); err != nil || !ok || status != c.status {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, status, answer, c.status, c.answer)
		}
	}
}

func TestHTTP_WhenARequestIsWrong_TheErrorIsJSONAndNothingReachesTheStore(t *testing.T) {
	m := newMemory()
	s := serving(t, whole{m})
	for _, c := range []struct {
		method, path, body string
		status             int
		code, text         string
	}{
		{"POST", "/", "", 404, "no_endpoint", "/"},
		{"POST", "/claims", "{}", 404, "no_endpoint", "/claims"},
		{"POST", "/turn/a", "{}", 404, "no_endpoint", "/turn/"},
		{"POST", "/slot/1", "{}", 404, "no_endpoint", "/slot/1"},
		{"GET", "/claim/a", "", 405, "method", "takes POST"},
		{"PUT", "/done", "{}", 405, "method", "takes POST"},
		{"DELETE", "/claim/a", "", 405, "method", "takes POST"},
		{"POST", "/run", "", 405, "method", "takes GET"},
		{"OPTIONS", "/claim", "", 405, "method", "takes POST"},
		{"POST", "/claim/", "", 400, "invalid", "empty"},
		{"POST", "/claim/%ff", "", 400, "invalid", "UTF-8"},
		{"POST", "/claim/a%0A", "", 400, "invalid", "U+000A"},
		{"POST", "/claim/" + strings.Repeat("x", runner.MaxIDBytes+1), "", 400, "invalid", "the limit is 1024"},
		{"POST", "/claim/a", `{"ids":["b"]}`, 400, "invalid", "no place for a body"},
		{"POST", "/claim/a?expire=1m", "", 400, "invalid", "none of expires"},
		{"POST", "/claim/a?expires=1m&expires=2m", "", 400, "invalid", "twice"},
		{"POST", "/claim/a?expires=soon", "", 400, "invalid", "expires"},
		{"POST", "/claim/a?expires=0s", "", 400, "invalid", "more than zero"},
		{"POST", "/claim/a?expires=-1s", "", 400, "invalid", "more than zero"},
		{"POST", "/claim/a?token=mine", "", 400, "invalid", "not a UUID"},
		{"POST", "/claim/a?%zz", "", 400, "invalid", "query"},
		{"POST", "/done/a?token=x", "", 400, "invalid", "no query"},
		{"POST", "/claim", "", 400, "invalid", "empty"},
		{"POST", "/claim", "ids=a", 400, "invalid", "body"},
		{"POST", "/claim", "[]", 400, "invalid", "body"},
		{"POST", "/claim", "{}", 400, "invalid", "no ids"},
		{"POST", "/claim", "null", 400, "invalid", "no ids"},
		{"POST", "/done", `{"token":"` + string(aToken) + `"}`, 400, "invalid", "no ids"},
		{"POST", "/lookup", "{}", 400, "invalid", "no ids"},
		{"POST", "/settle", "{}", 400, "invalid", "no settlements"},
		{"POST", "/turn", "{}", 400, "invalid", "no "},
		{"POST", "/claim", `{"id":"a"}`, 400, "invalid", `"id"`},
		{"POST", "/claim", `{"ids":["a"]}{"ids":["b"]}`, 400, "invalid", "goes on"},
		{"POST", "/claim", `{"ids":["a"],"expires":600}`, 400, "invalid", "expires"},
		{"POST", "/claim", `{"ids":["a"],"expires":"0"}`, 400, "invalid", "more than zero"},
		{"POST", "/claim", `{"ids":["a",""]}`, 400, "invalid", "id 2 of 2"},
		{"POST", "/claim", `{"ids":["a",null]}`, 400, "invalid", "id 2 of 2"},
		{"POST", "/claim", `{"ids":["\ud800"]}`, 400, "invalid", "surrogate"},
		{"POST", "/claim", `{"ids":["\udc00\ud800"]}`, 400, "invalid", "surrogate"},
		{"POST", "/claim", "{\"ids\":[\"\xff\"]}", 400, "invalid", "UTF-8"},
		{"POST", "/claim", `{"ids":["a"],"owner":"\u0000"}`, 400, "invalid", "U+0000"},
		{"POST", "/claim", `{"ids":["a"],"take":["all"]}`, 400, "invalid", "take"},
		{"POST", "/claim", `{"ids":["a"],"targets":["x","y"]}`, 400, "invalid", "2 targets"},
		{"POST", "/claim", `{"ids":["a"],"payload_hashes":["x"]}`, 400, "invalid", "SHA-256"},
		{"POST", "/done", `{"ids":["a"],"outcome":"ok"}`, 400, "invalid", "none of delivered"},
		{"POST", "/release", `{"ids":["a"],"outcome":"failed"}`, 400, "invalid", "no place"},
		{"POST", "/renew", `{"ids":["a"]}`, 400, "invalid", "token"},
		{"POST", "/settle", `{"settlements":[{"id":"a","outcome":"failed","dead_letter":{"kind":"send","certainty":"failed"}}]}`, 400, "invalid", "last_error"},
		{"POST", "/claim", strings.Repeat("[", 1<<20), 400, "invalid", "body"},
		{"POST", "/claim", `{"ids":["a"],"owner":"` + strings.Repeat("x", maxBody) + `"}`, 413, "too_large", "limit"},
	} {
		status, answer := ask(t, s, c.method, c.path, c.body)
		var e errorBody
		if err := json.Unmarshal([]byte(answer), &e); err != nil || status != c.status || e.Code != c.code || !strings.Contains(e.Message, c.text) {
			t.Errorf("%s %.60s %.80s: %d %.200s, want %d, %s and %q", c.method, c.path, c.body, status, answer, c.status, c.code, c.text)
		}
	}
	if got := m.requests(); len(got) > 0 {
		t.Errorf("the store was asked for %v", got)
	}
}

// A body without a length is read up to the limit and no further.
func TestHTTP_WhenABodyNeverEnds_ItIsRefusedAtTheLimit(t *testing.T) {
	s := serving(t, newMemory())
	c := rawDial(t, s)
	written := make(chan int, 1)
	go func() {
		fmt.Fprint(c, "POST /claim HTTP/1.1\r\nHost: oncectl\r\nTransfer-Encoding: chunked\r\n\r\n")
		chunk, n := "100000\r\n"+strings.Repeat(" ", 1<<20)+"\r\n", 0
		for ; n < 1000; n++ {
			if _, err := io.WriteString(c, chunk); err != nil {
				break
			}
		}
		written <- n
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("answered %s", resp.Status)
	}
	c.Close()
	if n := within(t, written, "the writer's end"); n > maxBody>>20+8 {
		t.Errorf("%d MiB were taken", n)
	}
}
