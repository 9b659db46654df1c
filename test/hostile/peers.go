package hostile

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The ports of the operator.
const (
	webhookPort = 9443
	metricsPort = 8443
	healthPort  = 8081
)

const reconnectPause = 100 * time.Millisecond

// Peer attacks a port of the operator with concurrent connections, each of which is replaced when the operator closes it.
type Peer struct {
	port, connections int
	isTLS             bool
	// act sends what the attack consists of. The connection stays open until the operator closes it.
	act Attack
}

// Peers returns hostile peers of the operator's ports.
func Peers() map[string]Peer {
	webhook := func(connections int, act Attack) Peer { return Peer{webhookPort, connections, true, act} }
	rawWebhook := func(connections int, act Attack) Peer { return Peer{webhookPort, connections, false, act} }
	metrics := func(connections int, act Attack) Peer { return Peer{metricsPort, connections, true, act} }
	health := func(connections int, act Attack) Peer { return Peer{healthPort, connections, false, act} }
	return map[string]Peer{
		"webhook: bodies of 6.6 MB":                   webhook(200, largeBody),
		"webhook: bodies without an end":              webhook(100, SendThenFlood(request("POST", reviewPath, "Transfer-Encoding: chunked"), "1\r\n \r\n")),
		"webhook: slow headers":                       webhook(500, slowHeader("POST", reviewPath)),
		"webhook: slow bodies":                        webhook(500, SendThenDribble(request("POST", reviewPath, "Content-Length: 1000"), "{")),
		"webhook: headers without an end":             webhook(100, endlessHeader("POST", reviewPath)),
		"webhook: idle connections":                   webhook(1000, idle),
		"webhook: connections without a handshake":    rawWebhook(2000, idle),
		"webhook: slow handshakes":                    rawWebhook(500, SendThenDribble("\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", "\x00")),
		"webhook: garbage instead of handshakes":      rawWebhook(200, garbage),
		"webhook: HTTP/2":                             webhook(50, http2),
		"webhook: forged reviews without the path":    webhook(50, requests(func() string { return forgedReview(reviewPath) })),
		"webhook: forged reviews with random paths":   webhook(50, requests(func() string { return forgedReview("/" + rand.Text() + reviewPath) })),
		"webhook: requests that do not await replies": webhook(50, SendThenFlood("", request("GET", "/", "X: y"))),

		"metrics: requests without a token":    metrics(100, requests(func() string { return request("GET", "/metrics", "X: y") })),
		"metrics: requests with random tokens": metrics(100, requests(func() string { return request("GET", "/metrics", "Authorization: Bearer "+rand.Text()) })),
		"metrics: slow headers":                metrics(500, slowHeader("GET", "/metrics")),
		"metrics: headers without an end":      metrics(100, endlessHeader("GET", "/metrics")),
		"metrics: bodies without an end":       metrics(100, SendThenFlood(request("POST", "/metrics", "Transfer-Encoding: chunked"), "1\r\n \r\n")),
		"metrics: idle connections":            metrics(1000, idle),
		"metrics: HTTP/2":                      metrics(50, http2),

		"health: requests":                health(100, requests(func() string { return request("GET", "/readyz", "X: y") })),
		"health: slow headers":            health(500, slowHeader("GET", "/readyz")),
		"health: headers without an end":  health(100, endlessHeader("GET", "/readyz")),
		"health: idle connections":        health(1000, idle),
		"health: bodies without an end":   health(20, SendThenFlood(request("POST", "/readyz", "Transfer-Encoding: chunked"), "1\r\n \r\n")),
		"health: connections that close":  health(200, SendAndClose("")),
		"webhook: handshakes that close":  webhook(50, SendAndClose("")),
		"metrics: connections that close": metrics(50, SendAndClose("")),
	}
}

// reviewPath is the path of a webhook without the secret segment.
const reviewPath = "/validate/agenticsessions.yardmaster.dev"

func request(method, path, header string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: operator\r\n%s\r\n\r\n", method, path, header)
}

func forgedReview(path string) string {
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",` +
		`"object":{"metadata":{"name":"a","namespace":"kube-system"},"spec":{"runner":"b","prompt":"c"}}}}`
	return request("POST", path, "Content-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(review))) + review
}

func idle(net.Conn) {}

func largeBody(conn net.Conn) {
	const size = 6_600_000
	_, _ = io.WriteString(conn, request("POST", reviewPath, "Content-Length: "+strconv.Itoa(size)))
	_, _ = io.CopyN(conn, zeros{}, size)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func slowHeader(method, path string) Attack {
	return SendThenDribble(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: operator\r\nX: ", method, path), "x")
}

func endlessHeader(method, path string) Attack {
	return SendThenFlood(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: operator\r\n", method, path), "A: b\r\n")
}

func garbage(conn net.Conn) { _, _ = io.CopyN(conn, rand.Reader, HugeSize) }

// http2 is the preface, and then settings and pings.
var http2 = SendThenFlood(
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"+"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678")

func requests(next func() string) Attack {
	return func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, next()); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// Replies are how often the operator responded with each HTTP status, and closed connections.
type Replies struct {
	mu       sync.Mutex
	Statuses map[int]int
	Closed   int
}

// Attack attacks a host until ctx ends.
func (p Peer) Attack(ctx context.Context, host string) *Replies {
	replies := &Replies{Statuses: map[int]int{}}
	var group sync.WaitGroup
	for range p.connections {
		group.Go(func() {
			for ctx.Err() == nil {
				p.attackOnce(ctx, host, replies)
				select {
				case <-ctx.Done():
				case <-time.After(reconnectPause):
				}
			}
		})
	}
	group.Wait()
	return replies
}

func (p Peer) attackOnce(ctx context.Context, host string, replies *Replies) {
	conn, err := p.dial(ctx, net.JoinHostPort(host, strconv.Itoa(p.port)))
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	go p.act(conn)
	replies.read(conn)
	if ctx.Err() == nil {
		replies.mu.Lock()
		replies.Closed++
		replies.mu.Unlock()
	}
}

func (p Peer) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if !p.isTLS {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	return (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address) //nolint:gosec // an attacker trusts anyone
}

func (r *Replies) read(conn net.Conn) {
	reader := bufio.NewReaderSize(conn, 1<<10)
	for {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			_, _ = io.Copy(io.Discard, reader)
			return
		}
		r.mu.Lock()
		r.Statuses[response.StatusCode]++
		r.mu.Unlock()
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}

// String lists the statuses in one line.
func (r *Replies) String() string {
	return strings.TrimPrefix(fmt.Sprint(r.Statuses), "map") + fmt.Sprintf(" %d connections closed", r.Closed)
}
