// Command river is the program of ../yardmaster for River. It is a module of its own, so that Yardmaster does not depend on
// what River needs.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// Order is the payload of a job.
type Order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

// Kind selects the handler.
func (Order) Kind() string { return "charge" }

func main() {
	run := work
	if len(os.Args) > 1 {
		run = produce
	}
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func connect(ctx context.Context, config *river.Config) (*river.Client[pgx.Tx], error) {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return nil, err
	}
	return river.NewClient(riverpgxv5.New(pool), config)
}

func produce(ctx context.Context) error {
	c, err := connect(ctx, &river.Config{})
	if err != nil {
		return err
	}
	_, err = c.Insert(ctx, Order{"7", 1999}, &river.InsertOpts{
		Queue: "orders", MaxAttempts: 5, ScheduledAt: time.Now().Add(time.Minute), UniqueOpts: river.UniqueOpts{ByArgs: true},
	})
	return err
}

func work(ctx context.Context) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &charge{})
	c, err := connect(ctx, &river.Config{Workers: workers, Queues: map[string]river.QueueConfig{"orders": {MaxWorkers: 10}}})
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	stopping, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	<-stopping.Done()
	return c.Stop(ctx)
}

type charge struct{ river.WorkerDefaults[Order] }

func (*charge) Timeout(*river.Job[Order]) time.Duration { return 10 * time.Second }

func (*charge) Work(_ context.Context, job *river.Job[Order]) error {
	if job.Args.Cents <= 0 {
		return river.JobCancel(errors.New("the order has no amount"))
	}
	log.Printf("job %d: charging %d cents for order %s", job.ID, job.Args.Cents, job.Args.ID)
	return nil
}
