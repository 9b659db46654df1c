package kube

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// The limits of up to maxLimitedNamespaces namespaces are remembered, for limiterMaxAge after their first use.
	maxLimitedNamespaces = 1024
	limiterMaxAge        = time.Hour
)

// NamespaceLimiter limits the rate of an activity in each namespace, so that one tenant takes nothing from the others.
type NamespaceLimiter struct {
	rate  rate.Limit
	burst int

	mu         sync.Mutex
	namespaces *cache.LRUExpireCache
}

// NewNamespaceLimiter returns a limiter that allows this rate per second in each namespace, after a burst.
func NewNamespaceLimiter(perSecond rate.Limit, burst int) *NamespaceLimiter {
	return &NamespaceLimiter{rate: perSecond, burst: burst, namespaces: cache.NewLRUExpireCache(maxLimitedNamespaces)}
}

// Allow reports whether the activity is allowed now in a namespace, and counts it.
func (l *NamespaceLimiter) Allow(namespace string) bool { return l.of(namespace).Allow() }

// HasRoom reports whether the activity would be allowed now in a namespace.
func (l *NamespaceLimiter) HasRoom(namespace string) bool { return l.of(namespace).Tokens() >= 1 }

func (l *NamespaceLimiter) of(namespace string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, found := l.namespaces.Get(namespace)
	limiter, isLimiter := known.(*rate.Limiter)
	if !found || !isLimiter {
		limiter = rate.NewLimiter(l.rate, l.burst)
		l.namespaces.Add(namespace, limiter, limiterMaxAge)
	}
	return limiter
}
