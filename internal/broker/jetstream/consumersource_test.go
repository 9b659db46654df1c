package jetstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/backlog"
	"github.com/yardmaster/yardmaster/test/hostile"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// createOrders creates the stream orders of an application.
func createOrders(t *testing.T, e *Engine) jetstream.Stream {
	t.Helper()
	stream, err := e.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}})
	require.NoError(t, err)
	return stream
}

// fetch returns messages that a pull consumer delivers.
func fetch(t *testing.T, consumer jetstream.Consumer, number int) (all []jetstream.Msg) {
	t.Helper()
	batch, err := consumer.Fetch(number, jetstream.FetchMaxWait(time.Minute))
	require.NoError(t, err)
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
			consumer, err := stream.CreateConsumer(t.Context(), row.config)
			require.NoError(t, err)
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
	got, err := readAt(t, broker.Credentials{URL: s.ClientURL()}, billing)
	require.NoError(t, err)
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
	_, err := stream.CreateOrUpdatePushConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: "billing", DeliverSubject: "deliver.billing", DeliverGroup: "billing", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 3,
	})
	require.NoError(t, err)
	assertReading(t, s, 5, 0, 5)
	// A worker gets as many messages as the consumer allows, whatever it can handle.
	received := make(chan *nats.Msg, 5)
	_, err = e.nc.ChanQueueSubscribe("deliver.billing", "billing", received)
	require.NoError(t, err)
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
		_, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: name, FilterSubject: filter})
		require.NoError(t, err)
	}
	for _, row := range []struct{ user, consumer, wantError string }{
		{"both", "billing", ""},
		{"both", "filtered", ""},
		{"consumer", "filtered", ""}, // its arrivals are not read
		{"consumer", "billing", "$JS.API.STREAM.INFO.orders"},
	} {
		err := poll.UntilNil(t.Context(), func() error {
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
		})
		require.NoError(t, err)
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
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
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
