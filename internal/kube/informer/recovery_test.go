package informer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// flakyListerWatcher fails if it has a failure.
type flakyListerWatcher struct {
	failure error
	events  watch.Interface
}

func (u *flakyListerWatcher) List(metav1.ListOptions) (runtime.Object, error) {
	return &metav1.List{}, u.failure
}

func (u *flakyListerWatcher) Watch(metav1.ListOptions) (watch.Interface, error) {
	return u.events, u.failure
}

func TestARecoveryLastsFromTheFirstFailureToTheNextWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var recoveries []time.Duration
		server := &flakyListerWatcher{events: watch.NewFake()}
		r := newRecoveryListerWatcher(server, func(d time.Duration) { recoveries = append(recoveries, d) }, nil)
		attempt := func(failure error) {
			server.failure = failure
			if _, err := r.WatchWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, failure) {
				t.Fatal(err)
			}
		}
		attempt(nil) // before any failure
		for range 3 {
			attempt(errors.New("refused"))
			time.Sleep(time.Minute)
		}
		server.failure = nil
		if _, err := r.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		attempt(nil)
		attempt(nil)
		if want := 3*time.Minute + time.Second; len(recoveries) != 1 || recoveries[0] != want {
			t.Errorf("recoveries %v, want one of %v", recoveries, want)
		}
	})
}

func TestStoppingAnInformerIsNotAFailure(t *testing.T) {
	r := newRecoveryListerWatcher(&flakyListerWatcher{failure: context.Canceled}, nil, nil)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := r.ListWithContext(stopped, metav1.ListOptions{}); err == nil || !r.failedSince.IsZero() {
		t.Errorf("error %v, failed since %v", err, r.failedSince)
	}
}
