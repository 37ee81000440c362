package sqlitestore

import (
	"maps"
	"strings"
	"testing"
)

func TestParseLocks_TakesHoldersOfFlocks(t *testing.T) {
	got := parseLocks(strings.NewReader(`1: FLOCK  ADVISORY  WRITE 4711 08:01:131105 0 EOF
1: -> FLOCK  ADVISORY  WRITE 4712 08:01:131105 0 EOF
2: POSIX  ADVISORY  READ 99 08:01:7 128 128
3: FLOCK  ADVISORY  WRITE 12 fe:1f:8 0 EOF
4: LEASE  ACTIVE    READ  5 08:01:9 0 EOF
5: FLOCK  ADVISORY  WRITE x fe:1f:9 0 EOF
6: FLOCK
`))
	want := map[fileID]int{{8, 1, 131105}: 4711, {0xfe, 0x1f, 8}: 12}
	if !maps.Equal(got, want) {
		t.Errorf("parseLocks() = %v, want %v", got, want)
	}
}
