package delivery

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/oncectl/oncectl/runner"
)

// Signer signs as the Standard Webhooks specification 1.0.0 says, with its
// symmetric scheme (v1, HMAC-SHA256).
type Signer struct {
	keys [][]byte
}

// ParseSecrets reads one or more secrets separated by white space, each
// `whsec_` and base64. With several, all of them sign: that is how a secret is
// changed without downtime. The error wraps runner.ErrInvalid and does not
// repeat the secret.
func ParseSecrets(text string) (*Signer, error) {
	s := &Signer{}
	for i, secret := range strings.Fields(text) {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			return nil, fmt.Errorf("webhook secret %d: %w: it is not whsec_ and base64", i+1, runner.ErrInvalid)
		}
		s.keys = append(s.keys, key)
	}
	if len(s.keys) == 0 {
		return nil, fmt.Errorf("webhook secret: %w: there is none", runner.ErrInvalid)
	}
	return s, nil
}

// sign sets the three headers. The time is that of the try, as the
// specification wants, so that receivers can refuse replays.
func (s *Signer) sign(h http.Header, id runner.EventID, now time.Time, body []byte) {
	stamp := strconv.FormatInt(now.Unix(), 10)
	signatures := make([]string, len(s.keys))
	for i, key := range s.keys {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.", id, stamp)
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	h.Set("Webhook-Id", string(id))
	h.Set("Webhook-Timestamp", stamp)
	h.Set("Webhook-Signature", strings.Join(signatures, " "))
}
