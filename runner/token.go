package runner

import (
	"crypto/rand"
	"fmt"
)

// Token is a random UUID (RFC 9562, version 4) in its text form. Its owner
// chooses it before the statement that stores it, so that a statement whose
// answer was lost can be sent again and recognise its own row.
type Token string

// NewToken returns a token that nobody else has.
func NewToken() Token {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return Token(fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]))
}
