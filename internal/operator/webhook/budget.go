package webhook

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// budget bounds the memory that is in use at the same time. Small requests have a share of their
// own, so that they do not wait for large ones.
type budget struct {
	smallLimit, largeTotal int64
	small, large           *semaphore.Weighted
}

// newBudget returns a budget in which requests of up to smallLimit bytes share smallTotal bytes, and
// all others largeTotal bytes.
func newBudget(smallLimit, smallTotal, largeTotal int64) budget {
	return budget{
		smallLimit: smallLimit, largeTotal: largeTotal,
		small: semaphore.NewWeighted(smallTotal), large: semaphore.NewWeighted(largeTotal),
	}
}

// fits reports whether a request of this size can ever be acquired.
func (b budget) fits(size int64) bool { return size <= b.largeTotal }

// acquire waits until there is memory for size bytes, until ctx ends. The caller must call release.
func (b budget) acquire(ctx context.Context, size int64) (release func(), err error) {
	share := b.large
	if size <= b.smallLimit {
		share = b.small
	}
	if err := share.Acquire(ctx, size); err != nil {
		return nil, err
	}
	return func() { share.Release(size) }, nil
}
