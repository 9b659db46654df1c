package gateway

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
)

const apiTimeout = 5 * time.Second

// lookup answers questions with the API server, and keeps a bounded number of answers for a short time. Errors are not kept.
// Concurrent calls with the same question send one request.
type lookup[T any] struct {
	answers *cache.LRUExpireCache
	lasts   time.Duration
	asking  singleflight.Group
}

// maxAnswers bounds the answers of a lookup. An answer has less than a kilobyte.
const maxAnswers = 4096

func newLookup[T any](lasts time.Duration) *lookup[T] {
	return &lookup[T]{answers: cache.NewLRUExpireCache(maxAnswers), lasts: lasts}
}

// asker is a tenant that asks, and the shares of all tenants.
type asker struct {
	shares *shares
	tenant string
}

// newAskShares limits the concurrent requests to the API server about a subject.
func newAskShares(about string) *shares {
	return newShares("requests to the API server about "+about, amount{requests: 16}, amount{requests: 64})
}

// find returns the answer to a question. The asker occupies a share during the request to the API server.
func (l *lookup[T]) find(ctx context.Context, by asker, question string, ask func(context.Context) (T, error)) (T, error) {
	var none T
	if kept, found := l.answers.Get(question); found {
		answer, _ := kept.(T)
		return answer, nil
	}
	release, err := by.shares.take(by.tenant, amount{requests: 1})
	if err != nil {
		return none, err
	}
	defer release()
	result := l.asking.DoChan(question, func() (any, error) {
		// The call may end before the answer arrives, for which other calls wait.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiTimeout)
		defer cancel()
		answer, err := ask(ctx)
		if err == nil {
			l.answers.Add(question, answer, l.lasts)
		}
		return answer, err
	})
	select {
	case r := <-result:
		answer, _ := r.Val.(T)
		return answer, r.Err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// amount is the resources that requests occupy.
type amount struct {
	requests int
	bytes    int64
}

func (a amount) plus(b amount) amount { return amount{a.requests + b.requests, a.bytes + b.bytes} }

func (a amount) exceeds(limit amount) bool {
	return a.requests > limit.requests || a.bytes > limit.bytes
}

// shares limit the resources of one tenant and of all tenants, so that no tenant keeps the others from being served.
type shares struct {
	what       string
	each, all  amount
	mu         sync.Mutex
	occupied   amount
	occupiedBy map[string]amount
}

func newShares(what string, each, all amount) *shares {
	return &shares{what: what, each: each, all: all, occupiedBy: map[string]amount{}}
}

// take occupies an amount until release is called. It fails if the tenant, or all tenants, would exceed their limit.
func (s *shares) take(tenant string, a amount) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.occupiedBy[tenant].plus(a).exceeds(s.each) {
		return nil, s.tooMany(tenant)
	}
	if s.occupied.plus(a).exceeds(s.all) {
		return nil, s.tooMany("all clients")
	}
	s.add(tenant, a)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.add(tenant, amount{-a.requests, -a.bytes})
	}), nil
}

func (s *shares) tooMany(whose string) error {
	return fail(http.StatusTooManyRequests, reasonTooManyRequests, fmt.Sprintf("%s of %s are at their limit: try again", s.what, shorten(whose)))
}

// add requires the lock.
func (s *shares) add(tenant string, a amount) {
	s.occupied = s.occupied.plus(a)
	s.occupiedBy[tenant] = s.occupiedBy[tenant].plus(a)
	if s.occupiedBy[tenant].requests == 0 {
		delete(s.occupiedBy, tenant)
	}
}
