package informer

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// recoverySeconds has no kind as a label: an API server that is away is so for all of them.
var recoverySeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
	Name:    "yardmaster_watch_recovery_seconds",
	Help:    "Time from the first failure to watch a kind until it was watched again. Most of it is the time that the API server was away.",
	Buckets: []float64{.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800},
})

func init() { metrics.Registry.MustRegister(recoverySeconds) }

// recovering lists and watches, and tells how long it could not.
type recovering struct {
	cache.ListerWatcher

	beneath     cache.ListerWatcherWithContext
	unsupported bool
	recovered   func(time.Duration)

	mu sync.Mutex
	// lost is when it first failed; zero if it did not.
	lost time.Time
}

func newRecovering(watched cache.ListerWatcher, recovered func(time.Duration)) *recovering {
	return &recovering{
		ListerWatcher: watched,
		beneath:       cache.ToListerWatcherWithContext(watched),
		unsupported:   watchlist.DoesClientNotSupportWatchListSemantics(watched),
		recovered:     recovered,
	}
}

// IsWatchListSemanticsUnSupported says what the one beneath says.
func (r *recovering) IsWatchListSemanticsUnSupported() bool { return r.unsupported }

// ListWithContext implements cache.ListerWatcherWithContext. A list is half of the way back:
// only the watch that follows it is all.
func (r *recovering) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := r.beneath.ListWithContext(ctx, options)
	if err != nil {
		r.failed(ctx)
	}
	return list, err
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (r *recovering) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := r.beneath.WatchWithContext(ctx, options)
	if err != nil {
		r.failed(ctx)
		return events, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.lost.IsZero() {
		r.recovered(time.Since(r.lost))
		r.lost = time.Time{}
	}
	return drained{events}, nil
}

func (r *recovering) failed(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost.IsZero() && ctx.Err() == nil {
		r.lost = time.Now()
	}
}
