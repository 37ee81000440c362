package delivery

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// The test vector of the Standard Webhooks repository (TestWebhookSign in its
// libraries).
func TestSign_WithThePublishedVector_MakesItsSignature(t *testing.T) {
	s, err := ParseSecrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	s.sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 999), []byte(`{"test": 2432232314}`))
	for name, want := range map[string]string{
		"webhook-id":        "msg_p5jXN8AQM9LWM0D4loKWxJek",
		"webhook-timestamp": "1614265330",
		"webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestSign_WhenASecretIsBeingChanged_SignsWithBoth(t *testing.T) {
	s, err := ParseSecrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw whsec_AAAA")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	s.sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	got := strings.Fields(h.Get("webhook-signature"))
	if len(got) != 2 || got[0] != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" || !strings.HasPrefix(got[1], "v1,") {
		t.Errorf("got signatures %q", got)
	}
}

func TestParseSecrets_WhenUnreadable_FailsWithoutRepeatingIt(t *testing.T) {
	for _, text := range []string{"", " \n", "whsec_", "whsec_hunter2!", "hunter2*"} {
		_, err := ParseSecrets(text)
		if !errors.Is(err, runner.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got error %v", text, err)
		}
	}
}

// A file of secrets is read as what it says or refused without repeating it.
func FuzzParseSecrets(f *testing.F) {
	for _, s := range []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", "whsec_", "", "a b", "whsec_====", "YWJj\r\nwhsec_ZGVm", "YW Jj", "YWJjZGVmZ2hpamts!"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSecrets(text)
		fields := strings.Fields(text)
		if err != nil {
			if !errors.Is(err, runner.ErrInvalid) || len(err.Error()) > 120 {
				t.Errorf("the error is %v", err)
			}
			for _, secret := range fields {
				if len(secret) > 12 && strings.Contains(err.Error(), secret) {
					t.Errorf("the error repeats %q", secret)
				}
			}
			return
		}
		h := http.Header{}
		s.sign(h, "a", time.Unix(0, 0), nil)
		if n := len(strings.Fields(h.Get("Webhook-Signature"))); n != len(fields) {
			t.Errorf("%d secrets made %d signatures", len(fields), n)
		}
	})
}
