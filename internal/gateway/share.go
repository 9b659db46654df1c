package gateway

import (
	"fmt"
	"net/http"
	"sync"
)

// amount is what requests occupy.
type amount struct {
	requests int
	bytes    int64
}

func (a amount) plus(b amount) amount { return amount{a.requests + b.requests, a.bytes + b.bytes} }

func (a amount) exceeds(limit amount) bool {
	return a.requests > limit.requests || a.bytes > limit.bytes
}

// shares limit what the requests of one tenant and of all occupy, so that no tenant keeps the others from being served.
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

// take occupies an amount until release is called. It fails if the tenant, or all, have what they may have.
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
