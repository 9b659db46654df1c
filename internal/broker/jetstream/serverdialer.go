package jetstream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
)

const (
	// maxInfoLength bounds the first line of a server, in bytes.
	maxInfoLength = 32 << 10
	// maxDialRate is the number of dials per second, because a server can announce many other servers, and the client library tries
	// them without a pause.
	maxDialRate = 10
)

// serverDialer connects for the client library with the Dial function of the credentials. It reads the server's first line and
// performs the TLS handshake itself, so that budgets apply to the messages of the server, and not to their encrypted form.
type serverDialer struct {
	current *currentCredentials
	// names are the hosts of the configured URLs.
	names    []string
	isSecure bool
	limiter  *rate.Limiter
	// connectBy is the deadline of the first connection; nil later.
	connectBy atomic.Pointer[time.Time]
	lastError atomic.Pointer[error]
}

func newServerDialer(ctx context.Context, c *broker.Credentials, current *currentCredentials) *serverDialer {
	d := &serverDialer{current: current, isSecure: c.TLS != nil, limiter: rate.NewLimiter(maxDialRate, maxDialRate)}
	for _, one := range splitURLs(c.URL) {
		if parsed, err := url.Parse(one); err == nil {
			d.names = append(d.names, parsed.Hostname())
			d.isSecure = d.isSecure || parsed.Scheme == "tls"
		}
	}
	if deadline, set := ctx.Deadline(); set {
		d.connectBy.Store(&deadline)
	}
	return d
}

// SkipTLSHandshake makes the client library leave TLS to the dialer.
func (*serverDialer) SkipTLSHandshake() bool { return true }

// Dial implements nats.CustomDialer.
func (d *serverDialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	if deadline := d.connectBy.Load(); deadline != nil {
		ctx, cancel = context.WithDeadline(ctx, *deadline)
		defer cancel()
	}
	credentials := d.current.get()
	conn, answered, err := d.connect(ctx, &credentials, network, address)
	if errors.Is(err, broker.ErrAddressDenied) && !d.isConfigured(address) {
		err = broker.ErrUnreachable // another server announced the address
	}
	err = credentials.Conceal(err, answered)
	d.lastError.Store(&err)
	return conn, err
}

// connect also reports whether the peer proved to be a NATS server.
func (d *serverDialer) connect(ctx context.Context, c *broker.Credentials, network, address string) (_ net.Conn, answered bool, err error) {
	if err := d.limiter.Wait(ctx); err != nil {
		return nil, false, err
	}
	raw, err := c.Dial(ctx, network, address)
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if err != nil {
			_ = raw.Close()
		}
	}()
	deadline, _ := ctx.Deadline() // Dial has set one
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, false, err
	}
	info, received, err := readInfo(raw)
	if err != nil {
		return nil, false, err
	}
	stream := raw
	if info.TLSRequired || d.isSecure && info.TLSAvailable {
		if bytes.IndexByte(received, '\n') != len(received)-1 {
			return nil, true, errors.New("the server sent data before the TLS handshake")
		}
		if stream, err = d.startTLS(ctx, c, raw, address); err != nil {
			return nil, true, err
		}
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return nil, true, err
	}
	return bounded.GuardNATS(raw, &replayedConn{Conn: stream, received: received}), true, nil
}

type serverInfo struct {
	ServerID     string `json:"server_id"`
	TLSRequired  bool   `json:"tls_required"`
	TLSAvailable bool   `json:"tls_available"`
}

var errNoInfo = errors.New("the server did not send the INFO line of a NATS server")

// readInfo also returns all bytes that it received.
func readInfo(raw net.Conn) (*serverInfo, []byte, error) {
	reader := bufio.NewReaderSize(raw, maxInfoLength)
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return nil, nil, err
	}
	operation, document, _ := strings.Cut(string(line), " ")
	info := &serverInfo{}
	if !strings.EqualFold(operation, "INFO") || json.Unmarshal([]byte(document), info) != nil || info.ServerID == "" {
		return nil, nil, errNoInfo
	}
	following, err := reader.Peek(reader.Buffered())
	return info, slices.Concat(line, following), err
}

func (d *serverDialer) startTLS(ctx context.Context, c *broker.Credentials, raw net.Conn, address string) (net.Conn, error) {
	config, err := c.TLS.ClientConfig()
	if err != nil {
		return nil, err
	}
	config.ServerName = cmp.Or(config.ServerName, d.serverName(address))
	secured := tls.Client(raw, config)
	return secured, secured.HandshakeContext(ctx)
}

func (d *serverDialer) isConfigured(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return slices.Contains(d.names, host)
}

// serverName returns the host of the address. For the address of a discovered server, which is often an IP address, it returns the
// first configured name, as the client library does.
func (d *serverDialer) serverName(address string) string {
	host, _, _ := net.SplitHostPort(address)
	if net.ParseIP(host) != nil && !d.isConfigured(address) {
		if i := slices.IndexFunc(d.names, func(name string) bool { return net.ParseIP(name) == nil }); i >= 0 {
			return d.names[i]
		}
	}
	return host
}

// replayedConn first returns the bytes that were already received.
type replayedConn struct {
	net.Conn
	received []byte
}

// Read implements net.Conn.
func (c *replayedConn) Read(p []byte) (int, error) {
	if len(c.received) > 0 {
		n := copy(p, c.received)
		c.received = c.received[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
