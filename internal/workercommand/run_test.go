package workercommand

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream/natstest"
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
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %s", err, row.want)
			}
		})
	}
}

func TestJobsOfANATSQueueAreForwarded(t *testing.T) {
	s := natstest.Start(t)
	e, err := jetstream.Connect(t.Context(), broker.Credentials{URL: s.ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Disconnect()
	q := broker.DefaultQueueConfig("orders")
	q.Owner.UID = "1"
	if _, err := e.EnsureQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range []string{"good", "bad"} {
		if _, err := js.Publish(t.Context(), "yardmaster.orders.ready.default", []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		calls.Add(1)
		if body, _ := io.ReadAll(request.Body); string(body) == "bad" {
			http.Error(response, "invalid", http.StatusBadRequest)
		}
	}))
	defer server.Close()

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, []string{
			"--forward", server.URL, "--broker-url", s.ClientURL(), "--queues", "orders", "--admin-address", "0", "--log-level", "error",
		}, io.Discard, io.Discard)
	}()
	eventually(t, "both jobs are settled", func() bool {
		stats, err := e.Stats(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		return calls.Load() == 2 && stats.Ready+stats.InFlight == 0 && stats.DeadLetters == 1
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	deadLetters, err := e.DeadLetters("orders").List(t.Context(), 0, 2)
	if err != nil || len(deadLetters) != 1 || string(deadLetters[0].Payload) != "bad" || deadLetters[0].Error != "the server responded 400 Bad Request invalid" {
		t.Errorf("dead letters %+v: %v", deadLetters, err)
	}
}
