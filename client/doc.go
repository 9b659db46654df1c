// Package client sends jobs to queues.
//
//	c, err := client.New(ctx, client.Options{Broker: client.BrokerConfig{URL: "nats://nats.queues:4222"}})
//	if err != nil { … }
//	defer c.Close(context.Background())
//	receipt, err := c.Enqueue(ctx, "mail", payload, client.ID("order-7"), client.Delay(5*time.Minute))
//
// Enqueue returns after the broker has confirmed that it stores the job. Enqueue[T] encodes a value, as JSON by default, and EnqueueMany
// sends many jobs at once.
//
// Unique makes a queue accept one job with a key until it has ended, and EnqueueBatch sends jobs and a final job, which runs when all of
// them have ended.
//
// Errors of jobs wrap an *Error, which names the field of the job that caused it. IsRetryable reports whether the same call may succeed
// later. If a call fails with ErrUnavailable, the job may be stored: with an ID that you choose, the queue keeps one of the jobs of all
// attempts.
//
// Package clienttest has queues for tests.
package client
