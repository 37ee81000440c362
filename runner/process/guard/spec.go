package guard

import "syscall"

// OwnGroup, as Spec.Group, gives the command a process group of its own.
const OwnGroup = 0

// Spec is what the guard needs to start the command. Its descriptors travel in
// Msg.FDs in the order lock, standard output, standard error; those whose bit
// is not set are left out, and then the guard's own are used.
type Spec struct {
	Path string
	Argv []string
	Env  []string
	// Group is the process group that the command joins, or OwnGroup.
	Group int32
	// HasLock says that the lock's descriptor is sent along; HasOut, HasErr
	// the same for the command's output.
	HasLock, HasOut, HasErr bool
	// Closed tells which of the first three descriptors the command starts
	// without.
	Closed [3]bool
}

// Encode is the body of a Start message.
func (s Spec) Encode() []byte {
	bits := [...]bool{s.HasLock, s.HasOut, s.HasErr, s.Closed[0], s.Closed[1], s.Closed[2]}
	p := make([]byte, 5)
	for i, b := range bits {
		if b {
			p[0] |= 1 << i
		}
	}
	put32(p[1:], uint32(s.Group))
	p = appendStrings(p, []string{s.Path})
	p = appendStrings(p, s.Argv)
	return appendStrings(p, s.Env)
}

// DecodeSpec reads what Encode wrote; EBADMSG for anything else.
func DecodeSpec(p []byte) (Spec, error) {
	if len(p) < 5 {
		return Spec{}, syscall.EBADMSG
	}
	var s Spec
	for i, b := range [...]*bool{&s.HasLock, &s.HasOut, &s.HasErr, &s.Closed[0], &s.Closed[1], &s.Closed[2]} {
		*b = p[0]&(1<<i) != 0
	}
	s.Group = int32(get32(p[1:]))
	path, p, ok := takeStrings(p[5:])
	if !ok || len(path) != 1 {
		return Spec{}, syscall.EBADMSG
	}
	s.Path = path[0]
	if s.Argv, p, ok = takeStrings(p); !ok {
		return Spec{}, syscall.EBADMSG
	}
	if s.Env, p, ok = takeStrings(p); !ok || len(p) != 0 {
		return Spec{}, syscall.EBADMSG
	}
	return s, nil
}

// EncodePaths is the body of a Leave message.
func EncodePaths(paths []string) []byte { return appendStrings(nil, paths) }

func appendStrings(p []byte, list []string) []byte {
	p = append32(p, len(list))
	for _, s := range list {
		p = append(append32(p, len(s)), s...)
	}
	return p
}

func append32(p []byte, n int) []byte {
	var b [4]byte
	put32(b[:], uint32(n))
	return append(p, b[:]...)
}

func takeStrings(p []byte) (list []string, rest []byte, ok bool) {
	n, p, ok := take32(p)
	if !ok || n > len(p)/4 {
		return nil, nil, false
	}
	list = make([]string, 0, n)
	for range n {
		var size int
		if size, p, ok = take32(p); !ok || size > len(p) {
			return nil, nil, false
		}
		list, p = append(list, string(p[:size])), p[size:]
	}
	return list, p, true
}

func take32(p []byte) (int, []byte, bool) {
	if len(p) < 4 || get32(p) > maxBody {
		return 0, nil, false
	}
	return int(get32(p)), p[4:], true
}
