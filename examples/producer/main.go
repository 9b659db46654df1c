// Command producer is an example of a program that sends jobs. It sends the orders that it reads from standard input,
// one line of JSON each, to the queue in the environment variable QUEUE.
//
//	echo '{"id": "7", "cents": 1999}' | YARDMASTER_BROKER_URL=nats://localhost:4222 QUEUE=orders go run ./examples/producer
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/yardmaster/yardmaster/client"
)

// Order is the payload of a job.
type Order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

// Kind selects the handler of the job.
func (Order) Kind() string { return "charge" }

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "producer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	options, err := client.FromEnvironment()
	if err != nil {
		return err
	}
	c, err := client.New(ctx, options)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return errors.Join(sendOrders(ctx, c, os.Getenv("QUEUE"), os.Stdin), c.Close(ctx))
}

// sendOrders sends each order once, also if a confirmation is lost: the ID of the job is that of the order.
func sendOrders(ctx context.Context, c *client.Client, queue string, input io.Reader) error {
	lines := bufio.NewScanner(input)
	for lines.Scan() {
		var order Order
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			return fmt.Errorf("reading an order: %w", err)
		}
		if err := sendWithRetry(ctx, c, queue, order); err != nil {
			return err
		}
	}
	return lines.Err()
}

// retryDelay is the time between two attempts to send an order.
const retryDelay = time.Second

func sendWithRetry(ctx context.Context, c *client.Client, queue string, order Order) error {
	for {
		receipt, err := client.Enqueue(ctx, c, queue, order, client.ID("order-"+order.ID), client.Timeout(30*time.Second))
		if err == nil {
			fmt.Printf("%s duplicate=%t\n", receipt.ID, receipt.Duplicate)
			return nil
		}
		if !client.IsRetryable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryDelay):
		}
	}
}
