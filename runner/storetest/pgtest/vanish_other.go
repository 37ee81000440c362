//go:build !linux

package pgtest

import "errors"

// Vanish is for Linux only.
func (p *Proxy) Vanish() error { return errors.ErrUnsupported }
