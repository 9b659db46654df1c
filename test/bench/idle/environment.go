package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// reconcileTimeout with the operator, until all is decided.
const reconcileTimeout = 10 * time.Minute

// environment is Queues, and a WorkerPool for each.
type environment struct {
	harness.Environment
	pools int
}

// createObjects makes the objects, before the operator runs.
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
