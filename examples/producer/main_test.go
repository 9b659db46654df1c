package main

import (
	"context"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/client"
	"github.com/yardmaster/yardmaster/client/clienttest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

func TestTheExampleSendsEachOrderOnce(t *testing.T) {
	queues := clienttest.New(t, clienttest.Queue{Name: "orders"})
	c := queues.Connect(client.Options{})
	input := `{"id": "7", "cents": 1999}` + "\n" + `{"id": "8", "cents": 5}` + "\n" + `{"id": "7", "cents": 1999}` + "\n"
	require.NoError(t, sendOrders(t.Context(), c, "orders", strings.NewReader(input)))
	var payloads []string
	attempts := queues.Run(t.Context(), "orders", func(_ context.Context, job *worker.Job) error {
		payloads = append(payloads, job.ID+" "+string(job.Payload))
		return nil
	})
	require.Equal(t, []string{`order-7 {"id":"7","cents":1999}`, `order-8 {"id":"8","cents":5}`}, payloads)
	require.Equal(t, 2, attempts)
}

func TestTheExampleReportsWhatARetryDoesNotSolve(t *testing.T) {
	queues := clienttest.New(t, clienttest.Queue{Name: "orders"})
	c := queues.Connect(client.Options{})
	require.ErrorIs(t, sendOrders(t.Context(), c, "unknown", strings.NewReader(`{"id": "7"}`)), client.ErrUnknownQueue)
	require.ErrorContains(t, sendOrders(t.Context(), c, "orders", strings.NewReader("x")), "")
	queues.SetUnavailable(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, sendOrders(ctx, c, "orders", strings.NewReader(`{"id": "7"}`)), client.ErrUnavailable)
}
