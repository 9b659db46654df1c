package jetstream

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/certtest"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// eachDialer runs a test with the connections of workers, and with those of the operator.
func eachDialer(t *testing.T, test func(*testing.T, broker.DialFunc)) {
	t.Run("unbounded", func(t *testing.T) { test(t, nil) })
	t.Run("bounded", func(t *testing.T) { test(t, boundedDial) })
}

func TestConnectErrorHasCauseAndNoPassword(t *testing.T) { eachDialer(t, testConnectErrors) }

func testConnectErrors(t *testing.T, dial broker.DialFunc) {
	locked := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "u", "right" })
	plain, open := natstest.Start(t, func(o *server.Options) { o.JetStream = false }), natstest.Start(t)
	certificate := selfSignedCertificate(t)
	encrypted := natstest.Start(t, func(o *server.Options) {
		o.TLS, o.TLSConfig = true, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	})
	at := func(s *natstest.Server, user string) string { return "nats://" + user + s.Address() }
	stopped := natstest.Start(t)
	stopped.Stop()

	for name, row := range map[string]struct {
		credentials broker.Credentials
		class       broker.ErrorClass
		want        string
	}{
		"no server":                        {broker.Credentials{URL: at(stopped, "")}, broker.ClassUnreachable, ""},
		"no password":                      {broker.Credentials{URL: at(locked, "")}, broker.ClassUnauthorized, "Authorization Violation"},
		"the wrong password":               {broker.Credentials{URL: at(locked, "u:secret@")}, broker.ClassUnauthorized, "Authorization Violation"},
		"a domain that does not respond":   {broker.Credentials{URL: at(open, ""), JetStreamDomain: "nowhere"}, broker.ClassUnreachable, "the JetStream domain nowhere does not respond"},
		"an invalid domain":                {broker.Credentials{URL: at(open, ""), JetStreamDomain: "a.>"}, broker.ClassInvalid, "jetStreamDomain must consist of"},
		"an invalid inbox prefix":          {broker.Credentials{URL: at(open, ""), InboxPrefix: "a..b"}, broker.ClassInvalid, "inboxPrefix must consist of"},
		"an invalid nkey":                  {broker.Credentials{URL: at(open, ""), NKeySeed: []byte("SAxyz")}, broker.ClassInvalid, "invalid nkey: it must be"},
		"no JetStream":                     {broker.Credentials{URL: at(plain, "")}, broker.ClassInvalid, "jetstream not enabled"},
		"an unknown certificate authority": {broker.Credentials{URL: at(encrypted, "")}, broker.ClassUnauthorized, "certificate"},
		"not a URL":                        {broker.Credentials{URL: "nats://u:secret@a b"}, broker.ClassInvalid, "url is not a valid URL"},
		"no URL":                           {broker.Credentials{}, broker.ClassInvalid, "url has no host"},
		"an unsupported scheme":            {broker.Credentials{URL: "redis://u:secret@localhost"}, broker.ClassInvalid, "url has an unsupported scheme"},
		"an invalid certificate authority": {
			broker.Credentials{URL: at(encrypted, ""), TLS: &broker.TLS{CA: []byte("x")}}, broker.ClassInvalid, "the CA certificate is not PEM",
		},
		"a certificate without its key": {
			broker.Credentials{URL: at(encrypted, ""), TLS: &broker.TLS{Certificate: []byte("x")}}, broker.ClassInvalid, "invalid client certificate or key",
		},
		"invalid credentials": {broker.Credentials{URL: at(locked, ""), NATSCredentials: []byte("secret")}, broker.ClassInvalid, "credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			row.credentials.Dial = dial
			_, err := Connect(ctx, row.credentials)
			require.ErrorContains(t, err, row.want)
			isPublic := !strings.Contains(err.Error(), "secret")
			require.True(t, broker.ClassOf(err) == row.class && isPublic, "got %v (%s), want %s without a secret", err, broker.ClassOf(err), row.class)
		})
	}
	t.Run("a trusted server", func(t *testing.T) {
		e, err := Connect(t.Context(), broker.Credentials{URL: at(encrypted, ""), TLS: &broker.TLS{CA: pemOf(certificate)}, Dial: dial})
		require.NoError(t, err)
		e.Disconnect()
	})
}

func TestLoginFromURLOrCredentials(t *testing.T) { eachDialer(t, testLogin) }

func testLogin(t *testing.T, dial broker.DialFunc) {
	const odd = "a,b@c:d/%"
	users := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "u", odd })
	tokens := natstest.Start(t, func(o *server.Options) { o.Authorization = odd })
	for name, options := range map[string]broker.Credentials{
		"credentials in the URL":                   {URL: "nats://u:a%2Cb%40c%3Ad%2F%25@" + users.Address()},
		"credentials and a URL":                    {URL: "nats://" + users.Address(), Username: "u", Password: odd},
		"credentials and a URL without a scheme":   {URL: users.Address(), Username: "u", Password: odd},
		"credentials take precedence over the URL": {URL: "nats://me:other@" + users.Address(), Username: "u", Password: odd},
		"credentials and several URLs":             {URL: "nats://127.0.0.1:1, nats://" + users.Address(), Username: "u", Password: odd},
		"a token":                                  {URL: "nats://" + tokens.Address(), Token: odd},
	} {
		t.Run(name, func(t *testing.T) {
			options.Dial = dial
			e, err := Connect(t.Context(), options)
			require.NoError(t, err)
			e.Disconnect()
		})
	}
}

// The CA is changed in the file first, then the server's certificate.
func TestReconnectUsesCurrentCertificates(t *testing.T) { eachDialer(t, testReconnect) }

func testReconnect(t *testing.T, dial broker.DialFunc) {
	first, second := selfSignedCertificate(t), selfSignedCertificate(t)
	s := natstest.Start(t, func(o *server.Options) {
		o.TLS, o.TLSConfig = true, &tls.Config{Certificates: []tls.Certificate{first}, MinVersion: tls.VersionTLS12}
	})
	var authority atomic.Pointer[[]byte]
	authority.Store(new(pemOf(first)))
	options := func() (broker.Credentials, error) {
		return broker.Credentials{URL: "tls://" + s.Address(), TLS: &broker.TLS{CA: *authority.Load()}, Dial: dial}, nil
	}
	o, _ := options()
	o.Refresh = options
	engine, err := Connect(t.Context(), o)
	require.NoError(t, err)
	e := engine.(*Engine)
	defer e.Disconnect()
	authority.Store(new(pemOf(second)))
	s.Options().TLSConfig.Certificates = []tls.Certificate{second}
	s.Restart()
	poll.Until(t, "the client to reconnect", func() bool { return e.nc.Stats().Reconnects > 0 && e.nc.IsConnected() })
}

func pemOf(c tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
}

func selfSignedCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(certtest.NewCertificate(t))
	require.NoError(t, err)
	return pair
}

func TestServerIsVerifiedByItsConfiguredName(t *testing.T) {
	t.Parallel()
	d := newServerDialer(t.Context(), &broker.Credentials{URL: "tls://10.0.0.1:4222,tls://nats.queues"}, nil)
	for address, want := range map[string]string{
		"nats.queues:4222": "nats.queues", "10.0.0.1:4222": "10.0.0.1", "10.0.0.2:4222": "nats.queues", "other.queues:4222": "other.queues",
	} {
		got := d.serverName(address)
		require.True(t, got == want, "%s is verified as %s, want %s", address, got, want)
	}
}

func TestWebSocketsAreRefusedOnBoundedConnections(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"ws://x", "wss://x"} {
		_, err := Connect(t.Context(), broker.Credentials{URL: url, Dial: boundedDial})
		require.True(t, broker.ClassOf(err) == broker.ClassInvalid, "%s: %v", url, err)
	}
}

// These are the permissions that docs/queue.md lists for a domain and an inbox prefix.
func TestAQueueOfTheHubIsManagedThroughALeafNodeWithRestrictedInboxes(t *testing.T) {
	t.Parallel()
	seed, public := natstest.NewNKey(t)
	hub, leaf := natstest.StartLeaf(t, func(o *server.Options) {
		o.Nkeys = []*server.NkeyUser{{Nkey: public, Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"$JS.hub.API.>", "yardmaster.>"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"yardmaster.>", "_INBOX_operator.>"}},
		}}}
	})
	e := connectWith(t, broker.Credentials{
		URL: "nats://" + leaf.Address(), NKeySeed: seed, JetStreamDomain: natstest.HubDomain, InboxPrefix: "_INBOX_operator",
	})
	ensureQueue(t, e, ordersQueue(withRateLimit(5, 1)))
	again := ensureQueue(t, e, ordersQueue(withRateLimit(7, 1)))
	require.True(t, !again.Created && again.Updated && len(again.Drift) == 0, "again: %+v", again)
	atHub := connectTo(t, hub)
	publish(t, atHub, "yardmaster.orders.ready.default", "x")
	buryNext(t, atHub, "dead")
	require.NoError(t, e.WaitForMessage(t.Context(), "orders"))
	f := readStats(t, e, "orders")
	require.True(t, f.Ready == 1 && f.DeadLetters == 1, "stats %+v", f)
	result, err := e.Rescue(t.Context(), "orders")
	require.True(t, err == nil && result.Rescued == 0 && result.Stranded != nil && *result.Stranded == 0, "rescued %+v: %v", result, err)
	n, err := e.DeadLetters("orders").Requeue(t.Context(), broker.RequeueOptions{Number: 10})
	require.True(t, n == 1 && err == nil, "%d dead letters were requeued: %v", n, err)
	require.Equal(t, 2, readStats(t, atHub, "orders").Ready)
	require.NoError(t, e.DeleteQueue(t.Context(), "orders", aliceOwner))
	left, err := atHub.js.AccountInfo(t.Context())
	require.True(t, err == nil && left.Streams == 0, "%v; the hub has %+v", err, left)
}

// These are the permissions that docs/engines.md lists for a source.
func TestAConsumerOfTheHubIsReadThroughALeafNodeWithRestrictedInboxes(t *testing.T) {
	t.Parallel()
	seed, public := natstest.NewNKey(t)
	hub, leaf := natstest.StartLeaf(t, func(o *server.Options) {
		o.Nkeys = []*server.NkeyUser{{Nkey: public, Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"$JS.*.API.CONSUMER.INFO.orders.billing", "$JS.hub.API.STREAM.INFO.orders"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_operator.>"}},
		}}}
	})
	atHub := connectTo(t, hub)
	_, err := createOrders(t, atHub).CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "billing"})
	require.NoError(t, err)
	publish(t, atHub, "orders.new", "x")
	for domain, want := range map[string]string{natstest.HubDomain: "", "nowhere": "the JetStream domain nowhere does not respond"} {
		source, err := NewConsumerSource(t.Context(), broker.Credentials{
			URL: "nats://" + leaf.Address(), NKeySeed: seed, JetStreamDomain: domain, InboxPrefix: "_INBOX_operator", Dial: boundedDial,
		}, ConsumerOptions{Stream: "orders", Consumer: "billing"})
		require.NoError(t, err)
		t.Cleanup(source.Disconnect)
		reading, err := source.Read(t.Context())
		if want == "" && (err != nil || reading.Backlog != 1) || want != "" && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("domain %s: %+v, %v", domain, reading, err)
		}
	}
}
