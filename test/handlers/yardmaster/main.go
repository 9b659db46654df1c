// Command yardmaster sends an order, with the argument produce, or charges orders: see test/handlers/handlers_test.go.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/yardmaster/yardmaster/client"
	"github.com/yardmaster/yardmaster/worker"
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

func produce(ctx context.Context) error {
	options, err := client.FromEnvironment()
	if err != nil {
		return err
	}
	c, err := client.New(ctx, options)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = client.Enqueue(ctx, c, "orders", Order{"7", 1999}, client.ID("order-7"), client.Delay(time.Minute))
	return err
}

func work(ctx context.Context) error {
	options, err := worker.FromEnvironment()
	if err != nil {
		return err
	}
	mux := worker.NewMux()
	worker.Handle(mux, "charge", charge, worker.WithTimeout(10*time.Second), worker.WithRetry(worker.RetryPolicy{MaxAttempts: new(5)}))
	return mux.Run(ctx, options)
}

func charge(_ context.Context, job *worker.Job, order Order) error {
	if order.Cents <= 0 {
		return worker.DeadLetter("the order has no amount")
	}
	log.Printf("job %s: charging %d cents for order %s", job.ID, order.Cents, order.ID)
	return nil
}
