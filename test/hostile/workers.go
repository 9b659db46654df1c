package hostile

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
)

// Workers returns how hostile workers respond to a request of the operator, after they have read it.
func Workers() map[string]Attack {
	const ok = "HTTP/1.1 200 OK\r\n"
	chunked := ok + "Transfer-Encoding: chunked\r\n\r\n"
	return map[string]Attack{
		"a body of 600 MB":                    SendThenFlood(ok+fmt.Sprintf("Content-Length: %d\r\n\r\n", HugeSize), " "),
		"an endless body in chunks":           SendThenFlood(chunked, "1\r\n \r\n"),
		"an endless chunk extension":          SendThenFlood(chunked+"1;", "x"),
		"endless trailers":                    SendThenFlood(chunked+"0\r\n", "A: b\r\n"),
		"an endless header":                   SendThenFlood(ok, "A: b\r\n"),
		"an endless status line":              SendThenFlood("", "H"),
		"endless informational responses":     SendThenFlood("", "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n"),
		"a body that arrives byte by byte":    SendThenDribble(ok+"Content-Length: 10000\r\n\r\n", " "),
		"a header that arrives byte by byte":  SendThenDribble(ok+"A: ", " "),
		"no response":                         Send(""),
		"deeply nested JSON":                  SendAndClose(ok + "\r\n" + strings.Repeat("[", 1<<14)),
		"a compressed body that is not JSON":  SendAndClose(ok + "Content-Encoding: gzip\r\n\r\n\x1f\x8b"),
		"another protocol":                    SendAndClose(strings.Repeat("SSH-2.0-OpenSSH\r\n", 100)),
		"a closed connection":                 SendAndClose(""),
		"a body shorter than Content-Length":  SendAndClose(ok + "Content-Length: 100\r\n\r\n{}"),
		"a switch to another protocol":        SendThenDribble("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", " "),
		"two contradicting lengths of a body": SendAndClose(ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}"),
	}
}

// AnyWorker attacks each connection in another way of Workers. It passes the title to report.
func AnyWorker(report func(title string)) Attack {
	workers := Workers()
	titles := slices.Sorted(maps.Keys(workers))
	var connections atomic.Uint64
	return func(conn net.Conn) {
		AfterRequest(conn)
		title := titles[connections.Add(1)%uint64(len(titles))]
		report(title)
		workers[title](conn)
	}
}
