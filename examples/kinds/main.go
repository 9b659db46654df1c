// Command kinds is an example of a worker with a handler for each kind of job, middleware and progress.
//
// Producers set the kind with the header Yardmaster-Kind, and send the arguments as JSON:
//
//	nats pub yardmaster.shop.ready.default '{"order": "A-17", "cents": 1999}' -H Yardmaster-Kind:charge
//	nats pub yardmaster.shop.ready.default '{"month": "2026-03", "pages": 40}' -H Yardmaster-Kind:report
//
// In a WorkerPool, the operator configures the worker through its environment.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/yardmaster/yardmaster/worker"
)

// chargeArguments are the payload of jobs of the kind charge.
type chargeArguments struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

// reportArguments are the payload of jobs of the kind report.
type reportArguments struct {
	Month string `json:"month"`
	Pages int    `json:"pages"`
}

func main() {
	if err := run(context.Background()); err != nil {
		slog.Error("Worker failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	options, err := worker.FromEnvironment()
	if err != nil {
		return err
	}
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "shop_job_duration_seconds", Help: "Time that jobs take, by kind."}, []string{"kind"})
	options.Metrics = append(options.Metrics, durations)
	return newMux(durations).Run(ctx, options)
}

// newMux returns the handlers. Only one report is made at a time, because it needs much memory; meanwhile the worker
// charges orders.
func newMux(durations *prometheus.HistogramVec) *worker.Mux {
	mux := worker.NewMux()
	mux.Use(logging, measuring(durations))
	worker.Handle(mux, "charge", charge, worker.WithTimeout(10*time.Second), worker.WithRetry(worker.RetryPolicy{MaxAttempts: new(10)}))
	worker.Handle(mux, "report", makeReport, worker.WithConcurrency(1), worker.WithTimeout(time.Hour))
	return mux
}

// charge is idempotent if the bank is: the ID of the job is the same for each attempt.
func charge(_ context.Context, job *worker.Job, args chargeArguments) error {
	if args.Cents <= 0 {
		return worker.DeadLetter(fmt.Sprintf("the amount is %d cents", args.Cents))
	}
	slog.Info("Charged", "order", args.Order, "cents", args.Cents, "idempotencyKey", job.ID)
	return nil
}

func makeReport(ctx context.Context, job *worker.Job, args reportArguments) error {
	for page := range args.Pages {
		job.Progress(ctx, float64(page)/float64(args.Pages), fmt.Sprintf("page %d of %d", page+1, args.Pages))
		select {
		case <-time.After(50 * time.Millisecond): // where a program would write the page
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// logging logs each attempt.
func logging(next worker.Handler) worker.Handler {
	return func(ctx context.Context, job *worker.Job) error {
		err := next(ctx, job)
		slog.Info("Attempt ended", "kind", job.Kind, "job", job.ID, "attempt", job.Attempt, "error", err)
		return err
	}
}

// measuring observes how long attempts take. Kinds without a handler are not labels, because producers choose them.
func measuring(durations *prometheus.HistogramVec) worker.Middleware {
	return func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, job *worker.Job) error {
			begin := time.Now()
			err := next(ctx, job)
			if !worker.IsUnknownKind(err) {
				durations.WithLabelValues(job.Kind).Observe(time.Since(begin).Seconds())
			}
			return err
		}
	}
}
