package bounded

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

// pipe returns a connection with budgets and its peer.
func pipe(framing framing) (*Conn, net.Conn) {
	near, far := net.Pipe()
	return &Conn{Conn: near, tenant: "team", memory: newMemory(), framing: framing}, far
}

func newRedisFraming() *redisFraming { return &redisFraming{} }

func TestAnAnnouncedSizeEndsTheConnectionBeforeItIsAllocated(t *testing.T) {
	nested := strings.Repeat("*1\r\n", maxRedisDepth+1)
	for name, row := range map[string]struct {
		framing framing
		sent    string
		want    error
	}{
		"a NATS message":                    {newNATSFraming(), "MSG a 1 600000000\r\n", errReplyTooLong},
		"a NATS message in lower case":      {newNATSFraming(), "msg\ta 1\tb 600000000\r\n", errReplyTooLong},
		"a NATS message beyond 64 bits":     {newNATSFraming(), "MSG a 1 99999999999999999999\r\n", errReplyTooLong},
		"a NATS size split by a return":     {newNATSFraming(), "MSG a 1 60000000\r0\r\n", errNotNATS},
		"a NATS line without a return":      {newNATSFraming(), "MSG a 1 600000000\n", errNotNATS},
		"a NATS header":                     {newNATSFraming(), "HMSG a 1 600000 600000\r\n", errReplyTooLong},
		"a long NATS line":                  {newNATSFraming(), "INFO " + strings.Repeat("x", maxNATSLine), errReplyTooLong},
		"many NATS INFO lines":              {newNATSFraming(), strings.Repeat("INFO {}\r\n", maxNATSInfos+1), errReplyTooLong},
		"a NATS payload without its end":    {newNATSFraming(), "MSG a 1 2\r\nokMSG a 1 600000000\r\n", errNotNATS},
		"a JSON document of many elements":  {newNATSFraming(), "MSG a 1 1000000\r\n{" + strings.Repeat(",", 999_999), errReplyTooLong},
		"a Redis string":                    {newRedisFraming(), "$600000000\r\n", errReplyTooLong},
		"a Redis string of almost 64 bits":  {newRedisFraming(), "$9223372036854775807\r\n", errReplyTooLong},
		"a Redis verbatim string":           {newRedisFraming(), "=600000000\r\n", errReplyTooLong},
		"a Redis array":                     {newRedisFraming(), "*600000000\r\n", errReplyTooLong},
		"a Redis array of many elements":    {newRedisFraming(), "*1000000\r\n", errReplyTooLong},
		"a Redis map of many elements":      {newRedisFraming(), "%200000\r\n", errReplyTooLong},
		"nested Redis arrays":               {newRedisFraming(), nested, errReplyTooLong},
		"many strings of one Redis array":   {newRedisFraming(), "*2\r\n$10000000\r\n" + strings.Repeat("x", 10_000_000) + "\r\n$10000000\r\n", errReplyTooLong},
		"a long Redis line":                 {newRedisFraming(), "+" + strings.Repeat("x", maxRedisLine), errReplyTooLong},
		"a Redis push message":              {newRedisFraming(), ">1\r\n", errNotRedis},
		"a server that is not Redis":        {newRedisFraming(), "HTTP/1.1 400 Bad Request\r\n", errNotRedis},
		"a negative Redis length":           {newRedisFraming(), "$-2\r\n", errNotRedis},
		"a length that is not a number":     {newRedisFraming(), "*x\r\n", errNotRedis},
		"an unframed reply beyond a budget": {nil, strings.Repeat("x", maxReply+1), errReplyTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			conn, peer := pipe(row.framing)
			go func() { _, _ = io.WriteString(peer, row.sent) }()
			_, err := io.Copy(io.Discard, conn)
			require.True(t, errors.Is(err, row.want), "got %v, want %v", err, row.want)
			_, err = conn.Write([]byte("x"))
			require.True(t, err != nil, "the connection is open")
			require.True(t, conn.memory.total == 0, "%d bytes remain reserved", conn.memory.total)
		})
	}
}

// Messages are recognized wherever the network splits them.
func TestValidRepliesPassInPartsOfAnySize(t *testing.T) {
	redis := "+OK\r\n-ERR no\r\n:1\r\n$-1\r\n*-1\r\n_\r\n$0\r\n\r\n$5\r\na\r\nb\n\r\n*0\r\n*2\r\n*1\r\n$1\r\nx\r\n%1\r\n+k\r\n,1.5\r\n=6\r\ntxt:ab\r\n~1\r\n#t\r\n(123\r\n!3\r\nERR\r\n"
	nats := "INFO {}\r\nPING\r\n+OK\r\n-ERR 'no'\r\nMSG a.b 1 2\r\nok\r\nMSG a 1 r 0\r\n\r\nHMSG a 1 12 14\r\nNATS/1.0\r\n\r\nok\r\nMSG a 1 11\r\n{\"a\":[1,2]}\r\nPONG\r\n"
	for range 200 {
		for text, framing := range map[string]framing{redis: newRedisFraming(), nats: newNATSFraming()} {
			rest, needed := []byte(text), int64(-1)
			for len(rest) > 0 {
				n := 1 + rand.IntN(min(len(rest), 20))
				needed, rest = require.Call(framing.read(rest[:n])).Succeeds(t), rest[n:]
			}
			require.True(t, needed == 0, "%q: the last message is incomplete", text)
		}
	}
}

func TestAMessageMustArriveInTime(t *testing.T) {
	for name, row := range map[string]struct {
		framing     framing
		start, more string
	}{
		"Redis": {newRedisFraming(), "$1000\r\n", "x"},
		"NATS":  {newNATSFraming(), "MSG a 1 1000\r\n", "x"},
		"line":  {newNATSFraming(), "INFO ", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, peer := pipe(row.framing)
				var group sync.WaitGroup
				defer group.Wait()
				group.Go(func() {
					_, err := io.WriteString(peer, row.start)
					for err == nil {
						time.Sleep(time.Second)
						_, err = io.WriteString(peer, row.more)
					}
				})
				start, before := time.Now(), closedFor(t, BudgetTime)
				// What a client library sets for each of its reads cannot extend the time.
				require.NoError(t, conn.SetReadDeadline(start.Add(time.Hour)))
				_, err := io.Copy(io.Discard, conn)
				require.True(t, errors.Is(err, errTooSlow) && time.Since(start) == messageTimeout, "%v after %s", err, time.Since(start))
				require.Equal(t, before+1, closedFor(t, BudgetTime))
			})
		})
	}
}

func TestAnIdleConnectionHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pipe(newRedisFraming())
		defer conn.Close()
		go func() {
			_, _ = io.WriteString(peer, "+OK\r\n")
			time.Sleep(time.Hour)
			_, _ = io.WriteString(peer, "+OK\r\n")
			_ = peer.Close()
		}()
		require.Equal(t, 10, require.Call(io.Copy(io.Discard, conn)).Succeeds(t))
	})
}

func TestTheClientLibrariesDeadlineApplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pipe(newRedisFraming())
		defer conn.Close()
		defer peer.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Second)))
		_, err := conn.Read(make([]byte, 1))
		require.True(t, err != nil && !errors.Is(err, errTooSlow), "%v", err)
	})
}

func TestARequestRenewsTheBudgetAndAPongDoesNot(t *testing.T) {
	for name, row := range map[string]struct {
		written  string
		isClosed bool
	}{
		"a request":        {"PUB a 0\r\n\r\n", false},
		"a pong":           {"PONG\r\n", true},
		"pongs":            {strings.Repeat("PONG\r\n", 2), true},
		"a pong and pings": {"PONG\r\nPING\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			conn, peer := pipe(newNATSFraming())
			defer conn.Close()
			go func() { _, _ = io.Copy(io.Discard, peer) }()
			line := append([]byte("+OK"), append(bytes.Repeat([]byte(" "), 1000), "\r\n"...)...)
			go func() {
				for sent := 0; sent < maxReply+maxReply/2; sent += len(line) {
					if _, err := peer.Write(line); err != nil {
						return
					}
				}
				_ = peer.Close()
			}()
			var err error
			for received, buffer := 0, make([]byte, 32<<10); err == nil; {
				var n int
				n, err = conn.Read(buffer)
				if received += n; received > maxReply/2 && err == nil {
					_, err = conn.Write([]byte(row.written))
					received = 0
				}
			}
			require.True(t, errors.Is(err, errReplyTooLong) == row.isClosed, "%v", err)
		})
	}
}

func TestAllConnectionsShareTheMemory(t *testing.T) {
	shared := newMemory()
	announce := func(tenant string) error {
		conn, peer := pipe(newRedisFraming())
		conn.tenant, conn.memory = tenant, shared
		t.Cleanup(func() { _ = conn.Close() })
		go func() { _, _ = io.WriteString(peer, "$4000000\r\n") }()
		_, err := conn.Read(make([]byte, 100))
		return err
	}
	for range 2 {
		require.NoError(t, announce("a"))
	}
	require.ErrorIs(t, announce("a"), errNoMemory)
	for range 2 {
		require.NoError(t, announce("b"))
	}
	require.ErrorIs(t, announce("c"), errNoMemory)
}

func closedFor(t *testing.T, b Budget) float64 {
	t.Helper()
	var m dto.Metric
	require.NoError(t, ClosedConnections.WithLabelValues(string(b)).Write(&m))
	return m.GetCounter().GetValue()
}

func TestClosedConnectionsAreCountedByBudget(t *testing.T) {
	full := newMemory()
	full.resize("others", 0, tenantMemory)
	full.resize("more", 0, tenantMemory)
	for name, row := range map[string]struct {
		sent   string
		memory *memory
		budget Budget
		want   float64
	}{
		"an announced size":           {"$600000000\r\n", newMemory(), BudgetBytes, 1},
		"no memory for a message":     {"$1000000\r\n", full, BudgetMemory, 1},
		"a reply within all budgets":  {"+OK\r\n", newMemory(), BudgetBytes, 0},
		"a reply of another protocol": {"HTTP/1.1 200 OK\r\n", newMemory(), BudgetBytes, 0},
	} {
		t.Run(name, func(t *testing.T) {
			conn, peer := pipe(newRedisFraming())
			conn.memory = row.memory
			defer conn.Close()
			before := closedFor(t, row.budget)
			go func() { _, _ = io.WriteString(peer, row.sent) }()
			_, err := conn.Read(make([]byte, 100))
			counted := closedFor(t, row.budget) - before
			require.True(t, counted == row.want, "%g connections were counted for %s, want %g; the error is %v", counted, row.budget, row.want, err)
		})
	}
}

func TestLocalAndDeniedAddressesAreRefusedInEachForm(t *testing.T) {
	d := NewDialer(Options{Deny: parsePrefixes("10.1.0.0/16", "fd12::/16")})
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.255.255.254": true, "::1": true, "0.0.0.0": true, "0.1.2.3": true, "::": true,
		"169.254.1.1": true, "169.254.169.254": true, "fe80::1": true, "fe80::1%eth0": true, "fd00:ec2::254": true,
		"100.100.100.200": true, "168.63.129.16": true, "224.0.0.1": true, "255.255.255.255": true, "ff02::1": true,
		"::ffff:127.0.0.1": true, "::ffff:169.254.169.254": true, "::127.0.0.1": true, "64:ff9b::127.0.0.1": true,
		"64:ff9b::a9fe:a9fe": true, "64:ff9b:1::7f00:1": true, "2002:7f00:1::": true, "::ffff:0:127.0.0.1": true,
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::10.1.2.3": true, "fd12::1": true,
		"10.2.0.1": false, "192.168.1.1": false, "8.8.8.8": false, "2001:db8::1": false, "fd13::1": false, "64:ff9b::8.8.8.8": false,
	} {
		require.True(t, isDenied(netip.MustParseAddr(address), d.denied) == want, "%s is denied: %t", address, !want)
	}
}

func TestAnAddressIsRefusedBeforeAndAfterNameResolution(t *testing.T) {
	listener := require.Call(net.Listen("tcp", "127.0.0.1:0")).Succeeds(t)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	refused, allowed := NewDialer(Options{}).For("team"), NewDialer(Options{AllowLocal: true}).For("team")
	for _, host := range []string{"127.0.0.1", "localhost", "LOCALHOST.", "a.localhost", "", "0.0.0.0", "::1", "::ffff:127.0.0.1"} {
		conn, err := refused(t.Context(), "tcp", net.JoinHostPort(host, port))
		require.True(t, errors.Is(err, broker.ErrAddressDenied), "connecting to %q: %v, %v", host, conn, err)
	}
	conn := require.Call(allowed(t.Context(), "tcp", net.JoinHostPort("localhost", port))).Succeeds(t)
	_ = conn.Close()
}

// The check of the resolved address is the last step before the socket connects.
func TestANameThatResolvesToADeniedAddressIsRefused(t *testing.T) {
	d := NewDialer(Options{})
	for address, want := range map[string]error{
		"127.0.0.1:4222": errResolvedAddressDenied, "[fe80::1%eth0]:4222": errResolvedAddressDenied, ":4222": errResolvedAddressDenied, "10.0.0.1:4222": nil,
	} {
		err := d.checkResolved(context.Background(), "tcp", address, nil)
		require.True(t, errors.Is(err, want), "%s: %v", address, err)
	}
}

func TestTheAddressesOfThisHostAreRefused(t *testing.T) {
	d := NewDialer(Options{})
	for _, own := range ownAddresses() {
		require.True(t, isDenied(own.Addr(), d.denied), "%s is allowed", own)
	}
}
