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

func TestArgumentsThatCannotBe(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"neither way":           {nil, "one of --forward and --exec must be given"},
		"both ways":             {[]string{"--forward", "http://x", "--exec", "--", "true"}, "one of --forward and --exec must be given"},
		"no command":            {[]string{"--exec"}, "--exec needs a command"},
		"no such command":       {[]string{"--exec", "--", "no-such-command"}, `"no-such-command"`},
		"not a URL":             {[]string{"--forward", "127.0.0.1:80"}, "--forward is"},
		"a URL of another kind": {[]string{"--forward", "file:///etc/passwd"}, "--forward is"},
		"no time":               {[]string{"--forward", "http://x", "--forward-timeout", "0s"}, "--forward-timeout is 0s"},
		"an argument too many":  {[]string{"--forward", "http://x", "y"}, `unexpected argument "y"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(row.args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("told %v, want %s", err, row.want)
			}
		})
	}
}

func TestJobsOfARealQueueAreForwarded(t *testing.T) {
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
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		calls.Add(1)
		if body, _ := io.ReadAll(request.Body); string(body) == "bad" {
			http.Error(answer, "cannot be", http.StatusBadRequest)
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
	eventually(t, "both are settled", func() bool {
		f, err := e.Stats(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		return calls.Load() == 2 && f.Ready+f.InFlight == 0 && f.DeadLetters == 1
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	letters, err := e.DeadLetters("orders").List(t.Context(), 0, 2)
	if err != nil || len(letters) != 1 || string(letters[0].Payload) != "bad" || letters[0].Error != "answered 400 Bad Request cannot be" {
		t.Errorf("dead letters %+v: %v", letters, err)
	}
}
