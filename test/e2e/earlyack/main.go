// Command earlyack is an incorrect worker: it acknowledges each job before the job is done. The
// end-to-end tests use it to prove that they detect lost jobs.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	if err := consumeQueue(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// consumeQueue consumes the queue at the URL until SIGTERM.
func consumeQueue(url, queue string) error {
	ledger, err := os.OpenFile(os.Getenv("LEDGER"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // the test sets the path
	if err != nil {
		return err
	}
	defer ledger.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	connection, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer connection.Close()
	stream, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	consumer, err := stream.Consumer(ctx, "yardmaster_"+queue, "default")
	if err != nil {
		return err
	}
	consuming, err := consumer.Consume(func(message jetstream.Msg) {
		_ = message.Ack() // the mistake: the job is not done yet
		go completeJob(ledger, message.Data())
	})
	if err != nil {
		return err
	}
	defer consuming.Stop()
	<-ctx.Done()
	return nil // running jobs are lost
}

func completeJob(ledger *os.File, payload []byte) {
	var order struct {
		ID           string `json:"id"`
		Milliseconds int    `json:"milliseconds"`
	}
	if json.Unmarshal(payload, &order) != nil {
		return
	}
	time.Sleep(time.Duration(order.Milliseconds) * time.Millisecond)
	fmt.Fprintf(ledger, "%s earlyack\n", order.ID)
}
