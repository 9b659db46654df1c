package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// reconcileTimeout is the time that the operator has to reconcile all objects.
const reconcileTimeout = 10 * time.Minute

// environment contains Queues, and a WorkerPool for each.
type environment struct {
	harness.Environment
	pools          int
	settle, window time.Duration
}

// createObjects creates the objects before the operator starts.
func (env *environment) createObjects(ctx context.Context, c *harness.Cluster, url string) error {
	if err := env.CreateNamespace(ctx, c, url); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(harness.CreateConcurrency)
	for i := range env.pools {
		name := fmt.Sprintf("orders-%04d", i)
		group.Go(func() error {
			if err := c.Create(ctx, env.NewQueue(name)); err != nil {
				return err
			}
			return c.Create(ctx, env.NewWorkerPool(name))
		})
	}
	return group.Wait()
}
