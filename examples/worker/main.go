// Command worker is an example of a worker in Go. The payload of each job defines how long
// the job takes, and whether its first attempts fail. Every job appends a line to a ledger file, so
// that a test can verify which jobs were done and how often.
//
// In a WorkerPool, the operator configures the worker through its environment. The
// environment variable LEDGER is the path of the ledger; workers may share one ledger.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/yardmaster/yardmaster/worker"
)

// Order is the payload of a job.
type Order struct {
	ID           string `json:"id"`
	Milliseconds int    `json:"milliseconds"`
	// Failing is the number of attempts, from the first on, that fail.
	Failing int `json:"failing"`
}

func main() {
	if err := runWorker(); err != nil {
		slog.Error("Worker failed", "error", err)
		os.Exit(1)
	}
}

func runWorker() error {
	options, err := worker.FromEnvironment()
	if err != nil {
		return err
	}
	// Each line is written with one append, so that lines of several workers do not mix.
	ledger, err := os.OpenFile(os.Getenv("LEDGER"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // the path comes from the pool's configuration
	if err != nil {
		return fmt.Errorf("opening the ledger: %w", err)
	}
	defer ledger.Close()
	return worker.Run(context.Background(), options, func(ctx context.Context, job *worker.Job) error {
		var order Order
		if err := json.Unmarshal(job.Payload, &order); err != nil {
			return worker.DeadLetter("the payload is not an order: " + err.Error())
		}
		write := func(outcome string) error {
			_, err := fmt.Fprintf(ledger, "%s %s %s %d %s\n", order.ID, options.Pod, options.Revision, job.Attempt, outcome)
			return err
		}
		return order.process(ctx, job.Attempt, write)
	})
}

// process does the job. It writes a line with the outcome of each attempt.
func (order *Order) process(ctx context.Context, attempt int, write func(outcome string) error) error {
	// The line is written halfway through. A job that is interrupted after that is
	// retried although it has had its effect, as can happen with real work.
	half := time.Duration(order.Milliseconds) * time.Millisecond / 2
	if err := simulateWork(ctx, half); err != nil {
		return err
	}
	if attempt <= order.Failing {
		return errors.Join(errors.New("the order says that this attempt fails"), write("failed"), simulateWork(ctx, half))
	}
	if err := write("done"); err != nil {
		return err
	}
	return simulateWork(ctx, half)
}

// simulateWork waits for the duration. It returns early if the worker shuts down.
func simulateWork(ctx context.Context, duration time.Duration) error {
	select {
	case <-time.After(duration):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
