package delivery

import (
	"net/http"
	"slices"
)

// verdict is what one try tells about the message.
type verdict int

const (
	// delivered: the receiver confirmed it (2xx, answer read to its end).
	delivered verdict = iota
	// unsent: surely not processed, since nothing of the request was written.
	unsent
	// refused: surely not processed, since the receiver says so, and worth
	// another try.
	refused
	// rejected: the receiver decided against it; another try is no use.
	rejected
	// doubtful: it may have been processed.
	doubtful
)

// classifyStatus judges an answer by its status. Every 5xx is doubtful, 501
// and 505 too: it says that the server, or a gateway before it, has erred, and
// not what was done before. retryOn is the user's knowledge of statuses that
// mean "not processed", and goes before all but success.
func classifyStatus(status int, retryOn []int) verdict {
	switch {
	case status >= 200 && status <= 299:
		return delivered
	case slices.Contains(retryOn, status):
		return refused
	case status == http.StatusRequestTimeout:
		return doubtful
	case status >= 300 && status <= 499:
		return rejected
	}
	return doubtful // 5xx; 101 and 6xx to 9xx, which mean nothing here
}

// again reports whether a try that ended so is repeated.
func (v verdict) again(idempotent bool) bool {
	switch v {
	case unsent, refused:
		return true
	case doubtful:
		return idempotent
	}
	return false
}
