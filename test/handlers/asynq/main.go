// Command asynq is the program of ../yardmaster for asynq.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/hibiken/asynq"
)

// Order is the payload of a job.
type Order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

func main() {
	run := work
	if len(os.Args) > 1 {
		run = produce
	}
	redis, err := asynq.ParseRedisURI(os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if err := run(context.Background(), redis); err != nil {
		log.Fatal(err)
	}
}

func produce(ctx context.Context, redis asynq.RedisConnOpt) error {
	c := asynq.NewClient(redis)
	defer c.Close()
	payload, err := json.Marshal(Order{"7", 1999})
	if err != nil {
		return err
	}
	_, err = c.EnqueueContext(ctx, asynq.NewTask("charge", payload), asynq.Queue("orders"), asynq.TaskID("order-7"),
		asynq.ProcessIn(time.Minute), asynq.Timeout(10*time.Second), asynq.MaxRetry(4))
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil // the queue has the job already
	}
	return err
}

func work(_ context.Context, redis asynq.RedisConnOpt) error {
	server := asynq.NewServer(redis, asynq.Config{Queues: map[string]int{"orders": 1}})
	mux := asynq.NewServeMux()
	mux.HandleFunc("charge", charge)
	return server.Run(mux)
}

func charge(ctx context.Context, task *asynq.Task) error {
	var order Order
	if err := json.Unmarshal(task.Payload(), &order); err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	if order.Cents <= 0 {
		return fmt.Errorf("the order has no amount: %w", asynq.SkipRetry)
	}
	id, _ := asynq.GetTaskID(ctx)
	log.Printf("job %s: charging %d cents for order %s", id, order.Cents, order.ID)
	return nil
}
