// Command worker is an example of a worker in Go. Each job says how long it takes, and
// leaves a line in a ledger, a file: what came of a thousand jobs can then be read there,
// line by line.
//
// As the image of a WorkerPool it gets all else from the pool. LEDGER names the file, to
// which many workers may append.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/yardmaster/yardmaster/worker"
)

// Order is a job's payload.
type Order struct {
	ID           string `json:"id"`
	Milliseconds int    `json:"milliseconds"`
}

func main() {
	if err := run(); err != nil {
		slog.Error("The worker ended", "error", err)
		os.Exit(1)
	}
}

func run() error {
	options, err := worker.FromEnvironment()
	if err != nil {
		return err
	}
	// Lines are appended by one write each, so those of many workers do not mix.
	ledger, err := os.OpenFile(os.Getenv("LEDGER"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // the ledger is where the pool says
	if err != nil {
		return fmt.Errorf("opening the ledger: %w", err)
	}
	defer ledger.Close()
	return worker.Run(context.Background(), options, func(ctx context.Context, job *worker.Job) error {
		var order Order
		if err := json.Unmarshal(job.Payload, &order); err != nil {
			return worker.DeadLetter("not an order: " + err.Error())
		}
		// The line is written in the middle: who is stopped after it, and not let finish,
		// leaves an order that looks undone and is not, as it is with real work.
		half := time.Duration(order.Milliseconds) * time.Millisecond / 2
		if err := work(ctx, half); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(ledger, "%s %s %s %d\n", order.ID, options.Pod, options.Revision, job.Attempt); err != nil {
			return err
		}
		return work(ctx, half)
	})
}

// work takes some time, unless the worker has no more to give.
func work(ctx context.Context, takes time.Duration) error {
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
