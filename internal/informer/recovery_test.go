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

// unsteady lists and watches, or fails to.
type unsteady struct {
	failure error
	events  watch.Interface
}

func (u *unsteady) List(metav1.ListOptions) (runtime.Object, error) {
	return &metav1.List{}, u.failure
}

func (u *unsteady) Watch(metav1.ListOptions) (watch.Interface, error) {
	return u.events, u.failure
}

func TestARecoveryIsToldFromTheFirstFailureToTheNextWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []time.Duration
		server := &unsteady{events: watch.NewFake()}
		r := newRecovering(server, func(d time.Duration) { told = append(told, d) })
		try := func(failure error) {
			server.failure = failure
			if _, err := r.WatchWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, failure) {
				t.Fatal(err)
			}
		}
		try(nil) // a watch that was never lost
		for range 3 {
			try(errors.New("refused"))
			time.Sleep(time.Minute)
		}
		server.failure = nil
		if _, err := r.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		try(nil)
		try(nil)
		if want := 3*time.Minute + time.Second; len(told) != 1 || told[0] != want {
			t.Errorf("told %v, want %v once", told, want)
		}
	})
}

func TestAnInformerThatIsStoppedHasLostNothing(t *testing.T) {
	r := newRecovering(&unsteady{failure: context.Canceled}, nil)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := r.ListWithContext(stopped, metav1.ListOptions{}); err == nil || !r.lost.IsZero() {
		t.Errorf("error %v, lost since %v", err, r.lost)
	}
}
