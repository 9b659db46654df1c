package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/client"
	"github.com/yardmaster/yardmaster/client/clienttest"
	"github.com/yardmaster/yardmaster/worker"
)

func TestTheExampleSendsEachOrderOnce(t *testing.T) {
	queues := clienttest.New(t, clienttest.Queue{Name: "orders"})
	c := queues.Connect(client.Options{})
	input := `{"id": "7", "cents": 1999}` + "\n" + `{"id": "8", "cents": 5}` + "\n" + `{"id": "7", "cents": 1999}` + "\n"
	if err := sendOrders(t.Context(), c, "orders", strings.NewReader(input)); err != nil {
		t.Fatal(err)
	}
	var payloads []string
	attempts := queues.Run(t.Context(), "orders", func(_ context.Context, job *worker.Job) error {
		payloads = append(payloads, job.ID+" "+string(job.Payload))
		return nil
	})
	want := `order-7 {"id":"7","cents":1999}, order-8 {"id":"8","cents":5}`
	if got := strings.Join(payloads, ", "); got != want || attempts != 2 {
		t.Errorf("%d attempts of %s, want %s", attempts, got, want)
	}
}

func TestTheExampleReportsWhatARetryDoesNotSolve(t *testing.T) {
	queues := clienttest.New(t, clienttest.Queue{Name: "orders"})
	c := queues.Connect(client.Options{})
	if err := sendOrders(t.Context(), c, "unknown", strings.NewReader(`{"id": "7"}`)); !errors.Is(err, client.ErrUnknownQueue) {
		t.Errorf("error %v", err)
	}
	if err := sendOrders(t.Context(), c, "orders", strings.NewReader("x")); err == nil {
		t.Error("an invalid order was sent")
	}
	queues.SetUnavailable(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sendOrders(ctx, c, "orders", strings.NewReader(`{"id": "7"}`)); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}
