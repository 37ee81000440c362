package guard

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// connected returns two ends of a conversation.
func connected(t testing.TB) (a, b *Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = NewConn(fds[0]), NewConn(fds[1])
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestConn_WhenMessagesAreSent_ArriveWholeAndInOrder(t *testing.T) {
	a, b := connected(t)
	want := []Msg{
		{Type: Ping},
		{Type: Signal, N: 15},
		{Type: Exited, N: -1 << 31},
		{Type: Answer, N: 1<<31 - 1, Body: []byte("x")},
		{Type: Start, Body: bytes.Repeat([]byte("environment "), 100_000)}, // more than a socket holds
		{Type: Bye},
	}
	go func() {
		for _, m := range want {
			if err := a.Send(m); err != nil {
				t.Errorf("Send() = %v", err)
			}
		}
		a.Shutdown()
	}()
	for _, w := range want {
		got, err := b.Recv()
		if err != nil || got.Type != w.Type || got.N != w.N || !bytes.Equal(got.Body, w.Body) || len(got.FDs) != 0 {
			t.Fatalf("Recv() = %d %d with %d bytes, %v", got.Type, got.N, len(got.Body), err)
		}
	}
	if _, err := b.Recv(); err != syscall.EPIPE {
		t.Errorf("at the end Recv() = %v", err)
	}
}

// Descriptors come with their own message, close-on-exec, however much else is
// on the way.
func TestConn_WhenDescriptorsAreSent_ArriveWithTheirMessage(t *testing.T) {
	a, b := connected(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	big := bytes.Repeat([]byte("x"), 300_000)
	in, out := int(w.Fd()), int(r.Fd())
	go func() {
		for _, m := range []Msg{{Type: Ping}, {Type: Hold, Body: big, FDs: []int{in}}, {Type: Ping}, {Type: Start, FDs: []int{out, in}}} {
			if err := a.Send(m); err != nil {
				t.Errorf("Send() = %v", err)
			}
		}
	}()
	var got [4]Msg
	for i := range got {
		if got[i], err = b.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if len(got[0].FDs) != 0 || len(got[1].FDs) != 1 || len(got[2].FDs) != 0 || len(got[3].FDs) != 2 {
		t.Fatalf("descriptors: %v %v %v %v", got[0].FDs, got[1].FDs, got[2].FDs, got[3].FDs)
	}
	for i, fd := range []int{got[1].FDs[0], got[3].FDs[0], got[3].FDs[1]} {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d has flags %d, %v", i, flags, errno)
		}
	}
	if _, err := syscall.Write(got[1].FDs[0], []byte("hello")); err != nil {
		t.Error(err)
	}
	read := make([]byte, 9)
	if n, err := syscall.Read(got[3].FDs[0], read); err != nil || string(read[:n]) != "hello" {
		t.Errorf("read %q, %v", read[:n], err)
	}
	for _, fd := range append(got[1].FDs, got[3].FDs...) {
		syscall.Close(fd)
	}
	w.Close()
}

// Silence is told from the end, and loses nothing of a message that is half here.
func TestConn_WhenTheOtherIsSilent_FailsWithEAGAINAndGoesOn(t *testing.T) {
	a, b := connected(t)
	setReceiveTimeout(b.fd, 5e6)
	if _, err := b.Recv(); err != syscall.EAGAIN {
		t.Fatalf("Recv() = %v", err)
	}
	for _, part := range []string{"\x02\x00\x0f\x00", "\x00\x00\x03\x00\x00\x00ab"} {
		if _, err := syscall.Write(a.fd, []byte(part)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Recv(); err != syscall.EAGAIN {
			t.Fatalf("Recv() = %v", err)
		}
	}
	if _, err := syscall.Write(a.fd, []byte("c")); err != nil {
		t.Fatal(err)
	}
	m, err := b.Recv()
	if err != nil || m.Type != Signal || m.N != 15 || string(m.Body) != "abc" {
		t.Errorf("Recv() = %+v, %v", m, err)
	}
}

func TestConn_WhenTheHeaderIsNonsense_IsRefused(t *testing.T) {
	for name, header := range map[string]string{
		"a body that is too long":           "\x01\x00\x00\x00\x00\x00\x01\x00\x00\x01",
		"the longest body":                  "\x01\x00\x00\x00\x00\x00\xff\xff\xff\xff",
		"a negative length":                 "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x80",
		"too many descriptors":              "\x01\x05\x00\x00\x00\x00\x00\x00\x00\x00",
		"descriptors that did not come too": "\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			a, b := connected(t)
			if _, err := syscall.Write(a.fd, []byte(header)); err != nil {
				t.Fatal(err)
			}
			if m, err := b.Recv(); err != syscall.EBADMSG {
				t.Errorf("Recv() = %+v, %v", m, err)
			}
		})
	}
}

// Whatever bytes come, in whatever pieces: no crash, and the same messages.
func FuzzConn(f *testing.F) {
	f.Add([]byte("\x02\x00\x0f\x00\x00\x00\x03\x00\x00\x00abc\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 3)
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\xff\xff\xff\xff"), 10)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		whole := Conn{buf: bytes.Clone(stream)}
		want, wantErr := drain(&whole)
		var pieces Conn
		var got []Msg
		var gotErr error
		for rest := stream; len(rest) > 0 && gotErr == nil; {
			n := min(max(1, piece), len(rest))
			pieces.buf = append(pieces.buf, rest[:n]...)
			rest = rest[n:]
			var more []Msg
			more, gotErr = drain(&pieces)
			got = append(got, more...)
		}
		if gotErr != wantErr || !reflect.DeepEqual(got, want) {
			t.Errorf("in pieces: %v, %v; whole: %v, %v", got, gotErr, want, wantErr)
		}
	})
}

func drain(c *Conn) (all []Msg, err error) {
	for {
		m, ok, err := c.next()
		if !ok || err != nil {
			return all, err
		}
		all = append(all, m)
	}
}

func TestSpec_WhenEncoded_DecodesToItself(t *testing.T) {
	for _, want := range []Spec{
		{Argv: []string{}, Env: []string{}},
		{Path: "/bin/sh", Argv: []string{"sh", "", "a\x00b", "\xff"}, Env: []string{"A=b", "=", strings.Repeat("x", 200_000)}, Group: -5, HasLock: true, HasErr: true, Closed: [3]bool{true, false, true}},
		{Path: "x", Argv: []string{"x"}, Env: []string{}, Group: 1<<31 - 1, HasOut: true, Closed: [3]bool{false, true, false}},
	} {
		got, err := DecodeSpec(want.Encode())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("DecodeSpec() = %.200v, %v, not %.200v", got, err, want)
		}
		for cut := range len(want.Encode()[:min(60, len(want.Encode()))]) {
			if _, err := DecodeSpec(want.Encode()[:cut]); err != syscall.EBADMSG {
				t.Errorf("cut to %d bytes: %v", cut, err)
			}
		}
	}
}

func FuzzSpec(f *testing.F) {
	f.Add(Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", "true"}, Env: []string{"A=b"}, HasLock: true}.Encode())
	f.Add([]byte("\x00\x00\x00\x00\x00\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x01\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, p []byte) {
		s, err := DecodeSpec(p)
		if err != nil {
			return
		}
		again, err := DecodeSpec(s.Encode())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%v becomes %v, %v", s, again, err)
		}
	})
}
