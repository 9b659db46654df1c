package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// patience with the operator, until all is decided.
const patience = 10 * time.Minute

// yard is Queues, and a WorkerPool for each.
type yard struct {
	harness.Yard
	pools int
}

// fill makes the objects, before the operator runs.
func (y *yard) fill(ctx context.Context, c *harness.Cluster, url string) error {
	if err := y.Open(ctx, c, url); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(harness.Creators)
	for i := range y.pools {
		name := fmt.Sprintf("orders-%04d", i)
		group.Go(func() error {
			if err := c.Create(ctx, y.Queue(name)); err != nil {
				return err
			}
			return c.Create(ctx, y.Pool(name))
		})
	}
	return group.Wait()
}
