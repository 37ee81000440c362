//go:build linux && (mips || mipsle || mips64 || mips64le)

package guard

const (
	handlerWord = 1
	sigsetSize  = 16
)
