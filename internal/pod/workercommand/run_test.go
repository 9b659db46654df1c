package workercommand

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestInvalidArgumentsAreRejected(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"neither mode":           {nil, "exactly one of --forward and --exec is required"},
		"both modes":             {[]string{"--forward", "http://x", "--exec", "--", "true"}, "exactly one of --forward and --exec is required"},
		"no command":             {[]string{"--exec"}, "--exec requires a command"},
		"no such command":        {[]string{"--exec", "--", "no-such-command"}, `"no-such-command"`},
		"not a URL":              {[]string{"--forward", "127.0.0.1:80"}, "--forward is"},
		"unsupported URL scheme": {[]string{"--forward", "file:///etc/passwd"}, "--forward is"},
		"zero timeout":           {[]string{"--forward", "http://x", "--forward-timeout", "0s"}, "--forward-timeout is 0s"},
		"unexpected argument":    {[]string{"--forward", "http://x", "y"}, `unexpected argument "y"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseArguments(row.args, io.Discard)
			require.True(t, err != nil && strings.Contains(err.Error(), row.want), "error %v, want %s", err, row.want)
		})
	}
}

// testQueue is the queue "orders" on a NATS server.
type testQueue struct {
	url    string
	engine broker.Engine
	js     natsjs.JetStream
}

func newTestQueue(t *testing.T) *testQueue {
	t.Helper()
	q := &testQueue{url: natstest.Start(t).ClientURL()}
	var err error
	q.engine, err = jetstream.Connect(t.Context(), broker.Credentials{URL: q.url})
	require.NoError(t, err)
	t.Cleanup(q.engine.Disconnect)
	config := broker.DefaultQueueConfig("orders")
	config.Owner.UID = "1"
	_, err = q.engine.EnsureQueue(t.Context(), config)
	require.NoError(t, err)
	nc, err := nats.Connect(q.url, nats.Timeout(time.Minute))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	q.js, err = natsjs.New(nc, natsjs.WithDefaultTimeout(time.Minute))
	require.NoError(t, err)
	return q
}

func (q *testQueue) send(t *testing.T, payload string, headers nats.Header) {
	t.Helper()
	message := &nats.Msg{Subject: "yardmaster.orders.ready.default", Header: headers, Data: []byte(payload)}
	_, err := q.js.PublishMsg(t.Context(), message)
	require.NoError(t, err)
}

func (q *testQueue) stats(t *testing.T) broker.QueueStats {
	t.Helper()
	stats, err := q.engine.Stats(t.Context(), "orders")
	require.NoError(t, err)
	return stats
}

// forward runs a worker that forwards the jobs to the server. Call stop to stop it.
func (q *testQueue) forward(t *testing.T, handler http.HandlerFunc) (stop func()) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, []string{
			"--forward", server.URL, "--broker-url", q.url, "--queues", "orders", "--admin-address", "0", "--log-level", "error",
		}, io.Discard, io.Discard)
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
