package runner

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// CheckJSONText refuses JSON whose strings encoding/json would silently change:
// it replaces invalid UTF-8 and halves of surrogate pairs by U+FFFD, so that two
// broken ids could become the same one. It also refuses NUL, which no store's
// text can hold, unless nul is set. The errors wrap ErrInvalid; b is otherwise
// taken to be valid JSON, in which a backslash stands in strings only.
func CheckJSONText(b []byte, nul bool) error {
	if !utf8.Valid(b) {
		return fmt.Errorf("%w: it is not valid UTF-8", ErrInvalid)
	}
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 || i+1 >= len(b) {
			return nil
		}
		if b[i+1] != 'u' {
			b = b[i+2:]
			continue
		}
		u, ok := escaped(b[i:])
		if !ok {
			return fmt.Errorf("%w: it has a broken escape", ErrInvalid)
		}
		b = b[i+6:]
		switch {
		case u == 0 && !nul:
			return fmt.Errorf("%w: it has the control character U+0000", ErrInvalid)
		case u >= 0xD800 && u < 0xDC00:
			low, ok := escaped(b)
			if !ok || low < 0xDC00 || low > 0xDFFF {
				return errHalfPair
			}
			b = b[6:]
		case u >= 0xDC00 && u < 0xE000:
			return errHalfPair
		}
	}
}

var errHalfPair = fmt.Errorf("%w: it has half a surrogate pair, which is no character", ErrInvalid)

// escaped is the code unit of the \uXXXX that b begins with.
func escaped(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	u, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(u), err == nil
}
