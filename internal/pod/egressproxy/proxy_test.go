package egressproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/internal/kinds/sessionrunner"
	"github.com/yardmaster/yardmaster/internal/pod/adminauth"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/require"
)

const (
	testNamespace = "team"
	// testTimeout bounds what takes milliseconds on an idle machine.
	testTimeout = 5 * time.Minute
)

// testProxy is a proxy on loopback, and a TLS server that it allows.
type testProxy struct {
	t       *testing.T
	proxy   *Proxy
	address string
	keys    *adminauth.Keys
	log     *output.Buffer
	// target is a TLS server for api.example.com, at port.
	target *httptest.Server
	port   string
	// addresses that names resolve to; the target's by default.
	addresses map[string][]netip.Addr
	resolved  []string
}

func newKeys(t *testing.T) *adminauth.Keys {
	t.Helper()
	text, err := adminauth.NewPrivateKey()
	require.NoError(t, err)
	keys, err := adminauth.ParsePrivateKey(text)
	require.NoError(t, err)
	return keys
}

func newTestProxy(t *testing.T, change ...func(*Options)) *testProxy {
	t.Helper()
	p := &testProxy{t: t, keys: newKeys(t), log: &output.Buffer{}, addresses: map[string][]netip.Addr{}}
	p.target = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello from ", r.Host) }))
	t.Cleanup(p.target.Close)
	_, p.port, _ = net.SplitHostPort(p.target.Listener.Addr().String())
	rules := sessionrunner.Rules{}
	for _, host := range []string{"example.com", "*.npmjs.example.com", "nowhere.example.com", "private.example.com", "rebinding.example.com"} {
		rule, err := sessionrunner.ParseHostRule(host + ":" + p.port)
		require.NoError(t, err)
		rules["default"] = append(rules["default"], rule)
	}
	limits := DefaultLimits
	limits.Dial = 2 * time.Second
	options := Options{
		Namespace: testNamespace, Keys: adminauth.ParsePublicKeys([]byte(p.keys.PublicKey())),
		Rules:   rules,
		Network: sessionrunner.Network{ProxyNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
		Limits:  limits, Log: slog.New(slog.NewTextHandler(p.log, nil)), Registry: prometheus.NewRegistry(),
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			p.resolved = append(p.resolved, host)
			if addresses, known := p.addresses[host]; known {
				return addresses, nil
			}
			if strings.HasPrefix(host, "nowhere") {
				return nil, errors.New("no such host")
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		},
	}
	for _, c := range change {
		c(&options)
	}
	p.proxy = New(options)
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.address = tcp.Addr().String()
	server := newServer(p.proxy)
	go func() { _ = server.Serve(boundedListener(tcp)) }()
	t.Cleanup(func() { _ = server.Close(); p.proxy.closeTunnels() })
	return p
}

func (p *testProxy) token(change ...func(*adminauth.Session)) string {
	s := adminauth.Session{Namespace: testNamespace, Name: "fix", UID: "uid", Runner: "default"}
	for _, c := range change {
		c(&s)
	}
	token, err := p.keys.SignSession(s, time.Now().Add(time.Hour))
	require.NoError(p.t, err)
	return token
}

func (p *testProxy) connect(host, user, token string) (net.Conn, int, string) {
	p.t.Helper()
	c, err := (&net.Dialer{}).DialContext(p.t.Context(), "tcp", p.address)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	header := ""
	if user != "" {
		header = "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+token)) + "\r\n"
	}
	_, _ = fmt.Fprintf(c, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n%[2]s\r\n", host, header)
	response, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // that of a response to CONNECT is the connection
	if err != nil {
		return c, 0, err.Error()
	}
	body := ""
	if response.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(io.LimitReader(c, 4096)) // the body of a response to CONNECT
		body = string(raw)
	}
	return c, response.StatusCode, body
}

func (p *testProxy) openTunnel(host string) net.Conn {
	p.t.Helper()
	c, status, body := p.connect(host+":"+p.port, "fix", p.token())
	require.True(p.t, status == http.StatusOK, "%d: %s", status, body)
	return c
}

// newClient returns a client that uses the proxy as programs do that read HTTPS_PROXY.
func (p *testProxy) newClient(user, token string) *http.Client {
	roots := x509.NewCertPool()
	roots.AddCert(p.target.Certificate())
	return &http.Client{Timeout: testTimeout, Transport: &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", User: url.UserPassword(user, token), Host: p.address}),
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
}

func TestSessionReachesAllowedHostsOverTLS(t *testing.T) {
	p := newTestProxy(t)
	response, err := p.newClient("fix", p.token()).Get("https://example.com:" + p.port)
	require.NoError(t, err)
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	require.True(t, response.StatusCode == http.StatusOK && string(body) == "hello from example.com:"+p.port, "%d: %s", response.StatusCode, body)
	require.Equal(t, 1, testutil.ToFloat64(p.proxy.opened.WithLabelValues(testNamespace, "default")))
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	p.proxy.Drain(ctx)
	require.True(t, ctx.Err() == nil && testutil.ToFloat64(p.proxy.open.WithLabelValues(testNamespace, "default")) == 0, "the connection is open")
}

func TestRequestsThatAreNotAllowedAreRefused(t *testing.T) {
	p := newTestProxy(t)
	addr := netip.MustParseAddr
	p.addresses["private.example.com"] = []netip.Addr{addr("10.0.0.1"), addr("fd00::1"), addr("169.254.169.254"), addr("::ffff:10.0.0.1"), addr("64:ff9b::a00:1"), addr("127.0.0.2")}
	valid, port := p.token(), p.port
	foreign := p.token(func(s *adminauth.Session) { s.Namespace = "other" })
	unknown := p.token(func(s *adminauth.Session) { s.Runner = "unknown" })
	check := func(title, host, user, token string, want int, reason string) {
		t.Run(title, func(t *testing.T) {
			before := p.count(reason)
			_, status, body := p.connect(host, user, token)
			require.True(t, status == want, "status %d: %s; want %d", status, body, want)
			require.True(t, reason == "" || p.count(reason) == before+1, "the metric did not count %s", reason)
			require.True(t, !strings.Contains(body, "10.0.0.1") && !strings.Contains(body, "fd00"), "an internal address: %s", body)
		})
	}
	check("no token", "example.com:"+port, "", "", http.StatusProxyAuthRequired, reasonUnauthenticated)
	check("an invalid token", "example.com:"+port, "fix", "x", http.StatusProxyAuthRequired, reasonUnauthenticated)
	check("the token of another session", "example.com:"+port, "other", valid, http.StatusProxyAuthRequired, reasonUnauthenticated)
	check("the token of another namespace", "example.com:"+port, "fix", foreign, http.StatusProxyAuthRequired, reasonUnauthenticated)
	check("another host", "example.org:"+port, "fix", valid, http.StatusForbidden, reasonHostNotAllowed)
	check("a subdomain of an allowed host", "www.example.com:"+port, "fix", valid, http.StatusForbidden, reasonHostNotAllowed)
	check("the domain of a wildcard", "npmjs.example.com:"+port, "fix", valid, http.StatusForbidden, reasonHostNotAllowed)
	check("another port", "example.com:22", "fix", valid, http.StatusForbidden, reasonHostNotAllowed)
	check("an address", "127.0.0.1:"+port, "fix", valid, http.StatusForbidden, reasonHostNotAllowed)
	check("an IPv6 address", "[::1]:"+port, "fix", valid, http.StatusForbidden, reasonHostNotAllowed)
	check("an address as a number", "2130706433:"+port, "fix", valid, http.StatusForbidden, reasonHostNotAllowed)
	check("a runner without hosts", "example.com:"+port, "fix", unknown, http.StatusForbidden, reasonHostNotAllowed)
	check("a name with private addresses only", "private.example.com:"+port, "fix", valid, http.StatusForbidden, reasonAddressNotAllowed)
	check("a name that does not exist", "nowhere.example.com:"+port, "fix", valid, http.StatusBadGateway, reasonUnreachable)
	check("a name with a zero in it", "example.com\x00.evil.org:"+port, "fix", valid, http.StatusBadRequest, "")
}

func (p *testProxy) count(reason string) float64 {
	total := 0.0
	for _, runner := range []string{"", "default", "unknown"} {
		total += testutil.ToFloat64(p.proxy.refusals.total.WithLabelValues(testNamespace, runner, reason))
	}
	return total
}

// A name that resolves to a public address when it is checked, and to a private one afterwards, gains nothing.
func TestNameIsResolvedOncePerConnection(t *testing.T) {
	p := newTestProxy(t)
	p.addresses["rebinding.example.com"] = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1")}
	p.openTunnel("rebinding.example.com")
	require.True(t, len(p.resolved) == 1, "resolved %v", p.resolved)
}

func TestTunnelForwardsOnlyTLSForItsHost(t *testing.T) {
	send := func(text string) func(c net.Conn) error {
		return func(c net.Conn) error {
			_, err := io.WriteString(c, text)
			return err
		}
	}
	check := func(title string, send func(c net.Conn) error, reason string) {
		t.Run(title, func(t *testing.T) {
			p := newTestProxy(t)
			c := p.openTunnel("example.com")
			err := send(c)
			received, readErr := io.ReadAll(c)
			require.True(t, len(received) == 0 && !errors.Is(readErr, context.DeadlineExceeded), "received %q, %v, %v", received, err, readErr)
			require.Equal(t, 1, p.count(reason))
		})
	}
	check("another server name", send(string(newHello(t, "evil.example.org"))), reasonNameMismatch)
	check("a subdomain", send(string(newHello(t, "www.example.com"))), reasonNameMismatch)
	check("no server name", send(string(newHello(t, ""))), reasonNameMismatch)
	check("HTTP without TLS", send("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"), reasonNoTLS)
	check("SSH", send("SSH-2.0-OpenSSH_9.0\r\n"), reasonNoTLS)
	check("a part of a ClientHello", func(c net.Conn) error {
		return errors.Join(send("\x16\x03\x01\x02\x00\x01")(c), c.(*net.TCPConn).CloseWrite())
	}, reasonNoTLS)
}

func TestClientHelloInSmallPiecesIsForwarded(t *testing.T) {
	c := newTestProxy(t).openTunnel("EXAMPLE.com.")
	for _, b := range newHello(t, "example.com") {
		_, err := c.Write([]byte{b})
		require.NoError(t, err)
	}
	_, err := c.Read(make([]byte, 1)) // the server answers
	require.NoError(t, err)
}

func TestTunnelsAreClosedInTime(t *testing.T) {
	check := func(title string, limits func(*Limits), hello bool, reason string) {
		t.Run(title, func(t *testing.T) {
			p := newTestProxy(t, func(o *Options) { limits(&o.Limits) })
			c := p.openTunnel("example.com")
			if hello {
				c = tls.Client(c, &tls.Config{ServerName: "example.com", InsecureSkipVerify: true})
			}
			_, err := io.ReadAll(c)
			require.True(t, !errors.Is(err, os.ErrDeadlineExceeded), "the connection is still open: %v", err)
			if reason != "" {
				require.Equal(t, 1, p.count(reason))
			}
		})
	}
	check("without a ClientHello", func(l *Limits) { l.Hello = 50 * time.Millisecond }, false, reasonHelloTimeout)
	check("without data", func(l *Limits) { l.Idle = 50 * time.Millisecond }, true, "")
	check("at the end of the lifetime", func(l *Limits) { l.Lifetime = 50 * time.Millisecond }, true, "")
}

func TestSessionCannotTakeTheConnectionsOfOthers(t *testing.T) {
	p := newTestProxy(t, func(o *Options) { o.Limits.Session, o.Limits.Total = 2, 3 })
	other := p.token(func(s *adminauth.Session) { s.Name, s.UID = "other", "other" })
	first := p.openTunnel("example.com")
	check := func(user, token string, want int) {
		t.Helper()
		_, status, body := p.connect("example.com:"+p.port, user, token)
		require.True(t, status == want, "status %d: %s, want %d", status, body, want)
	}
	check("fix", p.token(), http.StatusOK)
	check("fix", p.token(), http.StatusTooManyRequests)
	check("other", other, http.StatusOK)
	check("other", other, http.StatusTooManyRequests)
	_ = first.Close()
	poll.Until(t, "a connection to be possible after another was closed", func() bool {
		_, status, _ := p.connect("example.com:"+p.port, "fix", p.token())
		return status == http.StatusOK
	})
}

func TestRefusalsAreLoggedForEachSessionWithALimit(t *testing.T) {
	p := newTestProxy(t)
	startTime := time.Now()
	for range 3 * logBurst {
		p.connect("evil.example.org:443", "fix", p.token())
	}
	p.connect("evil.example.org:443", "other", p.token(func(s *adminauth.Session) { s.Name, s.UID = "other", "other" }))
	log := p.log.String()
	lines, most := strings.Count(log, "session=fix"), logBurst+1+int(time.Since(startTime).Seconds())
	require.True(t, lines >= logBurst && lines <= most, "%d refusals of the first session are logged", lines)
	require.True(t, strings.Contains(log, "session=other") && strings.Contains(log, "host=evil.example.org:443") && !strings.Contains(log, p.token()),
		"log:\n%s", log)
	require.Equal(t, 3*logBurst+1, p.count(reasonHostNotAllowed))
}

func getStatus(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	raw, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(raw)
}

func newConfig(t *testing.T) []byte {
	t.Helper()
	raw, err := json.Marshal(sessionrunner.Config{Namespace: "team", PublicKeys: newKeys(t).PublicKey(), Runners: map[string][]string{"default": {"api.example.com:443"}}})
	require.NoError(t, err)
	return raw
}

// The kubelet may mount an earlier version of the ConfigMap first.
func TestProxyStartsWithTheExpectedConfigurationAndStopsWhenItsTunnelsHaveEnded(t *testing.T) {
	config := newConfig(t)
	file := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(file, newConfig(t), 0o600))
	s := &settings{
		config: file, hash: decision.HexDigest(config, HashLength), drain: testTimeout,
		proxy: ports.Reserve(t).String(), health: ports.Reserve(t).String(), metrics: ports.Reserve(t).String(),
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, slog.New(slog.DiscardHandler)) }()
	ready := func() bool { status, _ := getStatus(t, "http://"+s.health+"/readyz"); return status == http.StatusOK }
	poll.Until(t, "the health server to respond", func() bool { status, _ := getStatus(t, "http://"+s.health+"/healthz"); return status == http.StatusOK })
	require.True(t, !ready(), "the proxy is ready with an earlier configuration")
	require.NoError(t, os.WriteFile(file, config, 0o600))
	poll.Until(t, "the proxy to be ready", ready)
	status, body := getStatus(t, "http://"+s.proxy+"/")
	require.True(t, status == http.StatusMethodNotAllowed, "a request without CONNECT: %d %s", status, body)
	_, body = getStatus(t, "http://"+s.metrics+"/metrics")
	require.Contains(t, body, `yardmaster_egress_refused_total{namespace="team",reason="MethodNotAllowed",runner=""} 1`)
	stop()
	require.NoError(t, <-ended)
}

func TestProxyDoesNotStartWithAnInvalidConfiguration(t *testing.T) {
	for title, text := range map[string]string{"no JSON": "x", "no key": `{"namespace":"team"}`, "an address as a host": `{"runners":{"a":["10.0.0.1"]}}`} {
		_, err := newOptions([]byte(text))
		require.True(t, err != nil, "%s is accepted", title)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := waitForConfig(ctx, filepath.Join(t.TempDir(), "missing"), "hash", slog.New(slog.DiscardHandler))
	require.True(t, err != nil, "a missing file is accepted")
}

func TestDrainWaitsForOpenTunnelsAndThenClosesThem(t *testing.T) {
	p := newTestProxy(t)
	c := p.openTunnel("example.com")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	p.proxy.Drain(ctx)
	require.True(t, errors.Is(ctx.Err(), context.DeadlineExceeded), "Drain did not wait for the tunnel")
	_, err := io.ReadAll(c)
	require.True(t, !errors.Is(err, os.ErrDeadlineExceeded), "the tunnel is still open")
}

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
			require.True(t, (errBefore == nil || err != nil) && (!before || complete), "%d bytes: %t, %v; all: %t, %v", n, before, errBefore, complete, err)
		}
		name, err := parseServerName(data)
		require.True(t, err == nil || name == "" || errors.Is(err, errHelloMalformed), "%q, %v", name, err)
	})
}
