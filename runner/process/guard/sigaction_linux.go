//go:build linux && !mips && !mipsle && !mips64 && !mips64le

package guard

const (
	handlerWord = 0
	sigsetSize  = 8
)
