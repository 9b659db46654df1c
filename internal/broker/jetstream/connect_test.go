package jetstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
	"github.com/yardmaster/yardmaster/test/certtest"
	"github.com/yardmaster/yardmaster/test/hostile"
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
			e := require.Call(Connect(t.Context(), options)).Succeeds(t)
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
	engine := require.Call(Connect(t.Context(), o)).Succeeds(t)
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
	return require.Call(tls.X509KeyPair(certtest.NewCertificate(t))).Succeeds(t)
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
	require.Equal(t, 1, require.Call(e.DeadLetters("orders").Requeue(t.Context(), broker.RequeueOptions{Number: 10})).Succeeds(t))
	require.Equal(t, 2, readStats(t, atHub, "orders").Ready)
	require.NoError(t, e.DeleteQueue(t.Context(), "orders", aliceOwner))
	require.Equal(t, 0, require.Call(atHub.js.AccountInfo(t.Context())).Succeeds(t).Streams)
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
	require.Call(createOrders(t, atHub).CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "billing"})).Succeeds(t)
	publish(t, atHub, "orders.new", "x")
	for domain, want := range map[string]string{natstest.HubDomain: "", "nowhere": "the JetStream domain nowhere does not respond"} {
		source, err := NewConsumerSource(t.Context(), broker.Credentials{
			URL: "nats://" + leaf.Address(), NKeySeed: seed, JetStreamDomain: domain, InboxPrefix: "_INBOX_operator", Dial: boundedDial,
		}, ConsumerOptions{Stream: "orders", Consumer: "billing"})
		require.NoError(t, err)
		t.Cleanup(source.Disconnect)
		reading, err := source.Read(t.Context())
		isRead := want == "" && err == nil && reading.Backlog == 1
		require.True(t, isRead || want != "" && strings.Contains(fmt.Sprint(err), want), "domain %s: %+v, %v", domain, reading, err)
	}
}

func createOrders(t *testing.T, e *Engine) jetstream.Stream {
	t.Helper()
	return require.Call(e.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}})).Succeeds(t)
}

// fetch returns messages that a pull consumer delivers.
func fetch(t *testing.T, consumer jetstream.Consumer, number int) (all []jetstream.Msg) {
	t.Helper()
	batch := require.Call(consumer.Fetch(number, jetstream.FetchMaxWait(time.Minute))).Succeeds(t)
	for message := range batch.Messages() {
		all = append(all, message)
	}
	require.True(t, len(all) == number, "%d messages, want %d: %v", len(all), number, batch.Error())
	return all
}

var billing = ConsumerOptions{Stream: "orders", Consumer: "billing"}

// readAt reads as the operator does.
func readAt(t *testing.T, credentials broker.Credentials, o ConsumerOptions) (backlog.Reading, error) {
	t.Helper()
	return readWithin(t, time.Minute, credentials, o)
}

func readWithin(t *testing.T, limit time.Duration, credentials broker.Credentials, o ConsumerOptions) (backlog.Reading, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	credentials.Dial, credentials.ConcealCauses = boundedDial, true
	source, err := NewConsumerSource(ctx, credentials, o)
	if err != nil {
		return backlog.Reading{}, err
	}
	defer source.Disconnect()
	return source.Read(ctx)
}

func TestBacklogOfAConsumer(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct {
		config jetstream.ConsumerConfig
		// act receives and acknowledges messages of a pull consumer.
		act               func(*testing.T, jetstream.Consumer)
		waiting, inFlight int64
		arrivals          uint64 // 0: unknown
	}{
		"nothing was received": {waiting: 7, arrivals: 7},
		"messages that are not acknowledged are in flight": {
			act: func(t *testing.T, c jetstream.Consumer) { fetch(t, c, 2) }, waiting: 5, inFlight: 2, arrivals: 7,
		},
		"acknowledged messages do not count": {
			act: func(t *testing.T, c jetstream.Consumer) {
				for _, message := range fetch(t, c, 7) {
					require.NoError(t, message.DoubleAck(t.Context()))
				}
			}, arrivals: 7,
		},
		"messages that wait for a delayed retry are in flight": {
			act: func(t *testing.T, c jetstream.Consumer) {
				for _, message := range fetch(t, c, 3) {
					require.NoError(t, message.NakWithDelay(time.Hour))
				}
			}, waiting: 4, inFlight: 3, arrivals: 7,
		},
		"without acknowledgements, nothing is in flight": {
			config: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy},
			act:    func(t *testing.T, c jetstream.Consumer) { fetch(t, c, 2) }, waiting: 5, arrivals: 7,
		},
		"only messages that match the filter count, and arrivals are unknown": {
			config: jetstream.ConsumerConfig{FilterSubject: "orders.new"},
			act:    func(t *testing.T, c jetstream.Consumer) { fetch(t, c, 1) }, waiting: 3, inFlight: 1,
		},
		"several filters":                {config: jetstream.ConsumerConfig{FilterSubjects: []string{"orders.new", "orders.none"}}, waiting: 4},
		"a consumer that is not durable": {config: jetstream.ConsumerConfig{Name: "billing", InactiveThreshold: time.Hour}, waiting: 7, arrivals: 7},
		"only messages sent after the consumer was created": {
			config: jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverLastPolicy}, waiting: 1, arrivals: 7,
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := natstest.Start(t)
			e := connectTo(t, s)
			stream := createOrders(t, e)
			for _, subject := range []string{"new", "new", "new", "new", "paid", "paid", "paid"} {
				publish(t, e, "orders."+subject, "x")
			}
			if row.config.Name == "" {
				row.config.Durable = "billing"
			}
			consumer := require.Call(stream.CreateConsumer(t.Context(), row.config)).Succeeds(t)
			if row.act != nil {
				row.act(t, consumer)
				require.NoError(t, e.nc.Flush())
			}
			assertReading(t, s, row.waiting, row.inFlight, row.arrivals)
		})
	}
}

func assertReading(t *testing.T, s *natstest.Server, waiting, inFlight int64, arrivals uint64) {
	t.Helper()
	got := require.Call(readAt(t, broker.Credentials{URL: s.ClientURL()}, billing)).Succeeds(t)
	isRead := got.Backlog == waiting && got.InFlight != nil && *got.InFlight == inFlight && got.InFlightMayWait && !got.MeasuredTime.IsZero()
	require.True(t, isRead, "%+v, want %d waiting, %d in flight", got, waiting, inFlight)
	isCounted := got.TotalArrivals != nil && *got.TotalArrivals == arrivals || got.TotalArrivals == nil && arrivals == 0
	require.True(t, isCounted, "arrivals %v, want %d", got.TotalArrivals, arrivals)
}

func TestAPushConsumerHasABacklogWhileNobodyListens(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	e := connectTo(t, s)
	stream := createOrders(t, e)
	for range 5 {
		publish(t, e, "orders.new", "x")
	}
	require.Call(stream.CreateOrUpdatePushConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: "billing", DeliverSubject: "deliver.billing", DeliverGroup: "billing", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 3,
	})).Succeeds(t)
	assertReading(t, s, 5, 0, 5)
	// A worker gets as many messages as the consumer allows, whatever it can handle.
	received := make(chan *nats.Msg, 5)
	require.Call(e.nc.ChanQueueSubscribe("deliver.billing", "billing", received)).Succeeds(t)
	for range 3 {
		<-received
	}
	assertReading(t, s, 2, 3, 5)
}

func TestTwoPermissionsSufficeToReadAConsumer(t *testing.T) {
	t.Parallel()
	permitted := func(publish ...string) *server.Permissions {
		return &server.Permissions{
			Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}
	}
	const consumerInfo, streamInfo = "$JS.API.CONSUMER.INFO.orders.*", "$JS.API.STREAM.INFO.orders"
	s := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "application", Password: "p"},
			{Username: "both", Password: "p", Permissions: permitted(consumerInfo, streamInfo)},
			{Username: "consumer", Password: "p", Permissions: permitted(consumerInfo)},
		}
	})
	stream := createOrders(t, connectWith(t, broker.Credentials{URL: "nats://application:p@" + s.Address()}))
	for name, filter := range map[string]string{"billing": "", "filtered": "orders.new"} {
		require.Call(stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: name, FilterSubject: filter})).Succeeds(t)
	}
	for _, row := range []struct{ user, consumer, wantError string }{
		{"both", "billing", ""},
		{"both", "filtered", ""},
		{"consumer", "filtered", ""}, // its arrivals are not read
		{"consumer", "billing", "$JS.API.STREAM.INFO.orders"},
	} {
		require.NoError(t, poll.UntilNil(t.Context(), func() error {
			// The server does not answer a request that is denied. Its error is to arrive before the end of the request.
			_, err := readWithin(t, 3*time.Second, broker.Credentials{URL: "nats://" + s.Address(), Username: row.user, Password: "p"},
				ConsumerOptions{Stream: "orders", Consumer: row.consumer})
			if row.wantError == "" && err == nil {
				return nil
			}
			if row.wantError == "" || broker.ClassOf(err) != broker.ClassUnauthorized || !strings.Contains(err.Error(), row.wantError) {
				return fmt.Errorf("%s reads %s: %w is %s, want %q", row.user, row.consumer, err, broker.ClassOf(err), row.wantError)
			}
			return nil
		}))
	}
}

func TestReadErrorsHaveAClass(t *testing.T) {
	s := natstest.Start(t, func(o *server.Options) { o.Username, o.Password = "u", "right" })
	createOrders(t, connectWith(t, broker.Credentials{URL: "nats://u:right@" + s.Address()}))
	plain := natstest.Start(t, func(o *server.Options) { o.JetStream = false })
	stopped := natstest.Start(t)
	stopped.Stop()
	at := func(address string) broker.Credentials {
		return broker.Credentials{URL: "nats://" + address, Username: "u", Password: "right"}
	}
	wrong := at(s.Address())
	wrong.Password = "hidden"
	for title, row := range map[string]struct {
		credentials broker.Credentials
		stream      string
		want        broker.ErrorClass
		wantError   string
	}{
		"a missing stream":           {at(s.Address()), "nothing", broker.ClassNotFound, `reading the consumer "billing" of the stream "nothing": the stream does not exist`},
		"a missing consumer":         {at(s.Address()), "orders", broker.ClassNotFound, `reading the consumer "billing" of the stream "orders": the consumer does not exist`},
		"a wrong password":           {wrong, "orders", broker.ClassUnauthorized, "Authorization Violation"},
		"a server without JetStream": {at(plain.Address()), "orders", broker.ClassUnreachable, "no JetStream for the account"},
		"a stopped server":           {at(stopped.Address()), "orders", broker.ClassUnreachable, "unreachable"},
	} {
		t.Run(title, func(t *testing.T) {
			_, err := readAt(t, row.credentials, ConsumerOptions{Stream: row.stream, Consumer: "billing"})
			require.ErrorContains(t, err, row.wantError)
			require.True(t, broker.ClassOf(err) == row.want && !strings.Contains(err.Error(), "hidden"), "%v is %s, want %s", err, broker.ClassOf(err), row.want)
		})
	}
}

// answerAll is an old server that answers each request with a document.
func answerAll(document string) hostile.Attack {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, strings.Replace(hostile.NATSInfo, "2.12.0", "2.2.0", 1))
		for reader := bufio.NewReader(conn); ; {
			line, err := reader.ReadString('\n')
			if err != nil {
				return
			}
			switch words := strings.Fields(line); words[0] {
			case "PING":
				_, _ = io.WriteString(conn, "PONG\r\n")
			case "PUB": // subject, inbox and length
				_, _ = reader.ReadString('\n')
				_, _ = fmt.Fprintf(conn, "MSG %s 1 %d\r\n%s\r\n", words[2], len(document), document)
			}
		}
	}
}

// A real server reports no such numbers.
func TestImpossibleNumbersAreErrors(t *testing.T) {
	t.Parallel()
	for title, row := range map[string]struct{ counts, want string }{
		"a negative number":                {`"num_pending":1,"num_ack_pending":-1`, "num_ack_pending"},
		"too many messages":                {`"num_pending":18446744073709551615`, "num_pending"},
		"a valid number of any old server": {`"num_pending":7`, ""},
	} {
		t.Run(title, func(t *testing.T) {
			listener := require.Call(net.Listen("tcp", "127.0.0.1:0")).Succeeds(t)
			defer listener.Close()
			go hostile.Serve(listener, answerAll(fmt.Sprintf(`{"stream_name":"orders","name":"billing","config":{"filter_subject":"a"},%s}`, row.counts)))
			got, err := readAt(t, broker.Credentials{URL: "nats://" + listener.Addr().String()}, billing)
			if row.want == "" {
				require.True(t, err == nil && got.Backlog == 7, "%+v: %v", got, err)
				return
			}
			require.ErrorContains(t, err, row.want)
			require.Equal(t, broker.ClassInvalid, broker.ClassOf(err))
		})
	}
}
