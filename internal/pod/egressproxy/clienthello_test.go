package egressproxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

func newHello(t testing.TB, name string) []byte {
	t.Helper()
	recorded := &recordingConn{}
	_ = tls.Client(recorded, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	return recorded.Bytes()
}

type recordingConn struct {
	helloConn
	bytes.Buffer
}

func (c *recordingConn) Write(p []byte) (int, error) { return c.Buffer.Write(p) }
func (*recordingConn) Read([]byte) (int, error)      { return 0, errors.New("the client waits") }

func splitRecords(hello []byte, size int) []byte {
	var split []byte
	for rest := hello[recordHeader:]; len(rest) > 0; {
		part := rest[:min(size, len(rest))]
		rest = rest[len(part):]
		split = append(split, recordHandshake, 3, 1, byte(len(part)>>8), byte(len(part)))
		split = append(split, part...)
	}
	return split
}

func TestServerNameIsReadFromCompleteHellosOnly(t *testing.T) {
	hello := newHello(t, "api.example.com")
	for title, data := range map[string][]byte{"one record": hello, "many records": splitRecords(hello, 7), "with more data": append(bytes.Clone(hello), "rest"...)} {
		complete, err := isHelloComplete(data)
		require.True(t, complete && err == nil, "%s: %t, %v", title, complete, err)
		name, err := parseServerName(data)
		require.True(t, name == "api.example.com" && err == nil, "%s: %q, %v", title, name, err)
	}
	for n := range hello {
		complete, err := isHelloComplete(hello[:n])
		require.True(t, !complete && err == nil, "%d of %d bytes: %t, %v", n, len(hello), complete, err)
	}
	for title, data := range map[string][]byte{
		"HTTP": []byte("GET /"), "an alert": {21, 3, 1}, "another version": {22, 2, 0}, "an empty record": {22, 3, 1, 0, 0},
		"a long record": {22, 3, 1, 0xff, 0xff}, "a ServerHello": {22, 3, 1, 0, 4, 2}, "a long hello": {22, 3, 1, 0, 4, 1, 1, 0, 0},
	} {
		complete, err := isHelloComplete(data)
		require.True(t, !complete && err != nil, "%s: %t, %v", title, complete, err)
	}
}

// Two extensions with server names, of which servers might use the other one, are malformed.
func TestHelloWithTwoServerNamesIsMalformed(t *testing.T) {
	hello := newHello(t, "api.example.com")
	extension := append([]byte{0, 0, 0, 20, 0, 18, 0, 0, 15}, "api.example.com"...)
	at := bytes.Index(hello, extension)
	require.True(t, at >= 0, "the hello has no server name")
	twice := append(append(bytes.Clone(hello[:at]), extension...), hello[at:]...)
	grow := func(offset, size int) { // adds the length of the extension to a length field
		value := 0
		for i := range size {
			value = value<<8 | int(twice[offset+i])
		}
		value += len(extension)
		for i := range size {
			twice[offset+size-1-i] = byte(value >> (8 * i))
		}
	}
	sessionID := recordHeader + handshakeHeader + 2 + 32
	ciphers := sessionID + 1 + int(hello[sessionID])
	compression := ciphers + 2 + int(hello[ciphers])<<8 + int(hello[ciphers+1])
	grow(3, 2)
	grow(6, 3)
	grow(compression+1+int(hello[compression]), 2)
	complete, err := isHelloComplete(twice)
	require.True(t, complete && err == nil, "%t, %v", complete, err)
	name, err := parseServerName(twice)
	require.True(t, err != nil, "the name is %q", name)
}

// Any data is either refused, or complete with exactly one answer, however it is split.
func FuzzClientHello(f *testing.F) {
	hello := newHello(f, "api.example.com")
	f.Add(hello)
	f.Add(splitRecords(hello, 100))
	f.Add([]byte("GET / HTTP/1.1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		complete, err := isHelloComplete(data)
		require.True(t, !complete || err == nil, "complete and refused")
		for n := range min(len(data), 64) {
			before, errBefore := isHelloComplete(data[:n])
			require.True(t, (errBefore == nil || err != nil) && (!before || complete),
				"%d bytes: %t, %v; all: %t, %v", n, before, errBefore, complete, err)
		}
		name, err := parseServerName(data)
		require.True(t, err == nil || name == "" || errors.Is(err, errHelloMalformed), "%q, %v", name, err)
	})
}
