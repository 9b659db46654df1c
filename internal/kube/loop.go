package kube

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kind is the part of a controller that differs from kind to kind. A Loop calls the methods in their order here. O is the
// observation of an object, and D the decision on it.
type Kind[T client.Object, O, D any] interface {
	// Observe returns the observation of an object; nil if there is nothing to decide.
	Observe(ctx context.Context, object T) (*O, error)
	// Decide returns the decision on an observation. It has no effect.
	Decide(observation *O) D
	// Answer adds the answer to a decision's question to the observation. It returns false if the decision has no question.
	Answer(ctx context.Context, observation *O, decision *D) (bool, error)
	// Record stores the status of a decision, then emits its events. It returns the stored object.
	Record(ctx context.Context, object T, observation *O, decision *D) (T, error)
	// Act carries out a recorded decision. It returns true if the result needs another decision, for example because the API
	// server refused an object. It has then added the stored object and the result to the observation.
	Act(ctx context.Context, object T, observation *O, decision *D) (again bool, err error)
	// Finish remembers the last decision, and returns the time until the next; 0: never.
	Finish(object T, observation *O, decision *D) time.Duration
	// Forget drops all memory of an object that no longer exists.
	Forget(ctx context.Context, key types.NamespacedName) error
}

// Locker is a Kind whose decisions depend on each other. Lock observes what other decisions have recorded; no other decision is
// recorded until unlock.
type Locker[O any] interface {
	Lock(ctx context.Context, observation *O) (unlock func(), err error)
}

// FailureReporter is a Kind that reports failed passes.
type FailureReporter[T client.Object] interface {
	ReportFailure(ctx context.Context, object T, failure error)
}

// Loop reconciles the objects of one kind: it observes, decides, answers questions, records and acts. It acts only on decisions that are
// recorded, or that their actions record as well, so that any pass may be the first after a crash.
type Loop[T client.Object, O, D any] struct {
	Clients

	Kind Kind[T, O, D]
	// New returns an empty object.
	New func() T
	// Written has the objects that Kind wrote.
	Written *WriteCache[T]
	// Finalizer of the kind; empty without a finalizer.
	Finalizer string
	// NeedsFresh reports whether a decision on an outdated object could act twice. Loop then reads the object again, unless the
	// status that it wrote has proved that the object is current. It is nil for kinds whose requests name the versions of the
	// objects that they change.
	NeedsFresh func(*D) bool
	// IsDue reports whether a decision starts a run whose time has come; nil for kinds that start no runs.
	IsDue func(*D) bool
	// IsNew reports whether no pass over an object has been recorded; nil for kinds that no other kind starts.
	IsNew func(T) bool

	listings listings
}

// dueRuns counts the runs that are being started because their time has come. While there are many, new runs wait, up to maxRunWait:
// the creation of a run that is due matters more than the first steps of the runs before it.
var dueRuns atomic.Int64

const (
	manyDueRuns     = 10
	runWaitInterval = 500 * time.Millisecond
	maxRunWait      = 5 * time.Second
)

// largePasses limits the passes of all kinds over objects that the cache has trimmed. Each of these objects may need several megabytes.
var largePasses = make(chan struct{}, 4)

const largePassInterval = time.Second

// Reconcile reads an object, from the API server if the cache has trimmed it, and makes one pass, with a second decision if the
// result of the first decision needs it. The next pass acts on the second decision.
func (l *Loop[T, O, D]) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := l.New()
	if err := l.Client.Get(ctx, request.NamespacedName, object); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, err
		}
		l.Written.Forget(request.NamespacedName)
		return ctrl.Result{}, l.Kind.Forget(ctx, request.NamespacedName)
	}
	object = l.Written.Newest(object)
	if l.IsNew != nil && dueRuns.Load() > manyDueRuns && l.IsNew(object) && isRecentRun(object, l.Clock.Now()) {
		return ctrl.Result{RequeueAfter: runWaitInterval}, nil
	}
	if isTrimmed(object) {
		select {
		case largePasses <- struct{}{}:
			defer func() { <-largePasses }()
		default: // without waiting, which would keep small objects from a worker of the controller
			return ctrl.Result{RequeueAfter: largePassInterval}, nil
		}
		object = l.New()
		if err := l.Live.Get(ctx, request.NamespacedName, object); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err) // the cache will lose the object too
		}
		trimLabels(object)
	}
	wait, err := l.pass(ctx, object)
	if err != nil && l.Finalizer != "" {
		err = RemoveFinalizerIfTerminating(ctx, l.Live, l.Client, object, l.Finalizer, err)
	}
	if kind, reports := l.Kind.(FailureReporter[T]); reports && err != nil {
		kind.ReportFailure(ctx, object, err)
	}
	return ctrl.Result{RequeueAfter: wait}, err
}

// NeverObserved reports whether no pass over an object has been recorded. The API server creates it with an observedGeneration of -1, for
// kstatus.
func NeverObserved(observedGeneration int64) bool { return observedGeneration < 1 }

func isRecentRun(object client.Object, now time.Time) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind == "Schedule" && now.Sub(object.GetCreationTimestamp().Time).Abs() < maxRunWait
}

func (l *Loop[T, O, D]) pass(ctx context.Context, object T) (time.Duration, error) {
	observation, err := l.Kind.Observe(ctx, object)
	if err != nil || observation == nil {
		return 0, err
	}
	observed := object.GetResourceVersion()
	object, decision, err := l.decide(ctx, object, observation)
	if err != nil {
		return 0, err
	}
	isDue := l.IsDue != nil && l.IsDue(&decision)
	if isDue {
		dueRuns.Add(1)
		defer dueRuns.Add(-1)
	}
	if l.NeedsFresh != nil && l.NeedsFresh(&decision) && object.GetResourceVersion() == observed {
		if isDue && dueRuns.Load() > manyDueRuns {
			err = l.listings.assertFresh(ctx, l.Clock, l.Live, l.Client, object)
		} else {
			err = AssertFresh(ctx, l.Live, l.Client, object)
		}
		if err != nil {
			return 0, err
		}
	}
	again, err := l.Kind.Act(ctx, object, observation, &decision)
	if err == nil && again {
		object, decision, err = l.decide(ctx, object, observation)
	}
	if err != nil {
		return 0, err
	}
	return l.Kind.Finish(object, observation, &decision), nil
}

// decide decides until the decision has no question, and records it.
func (l *Loop[T, O, D]) decide(ctx context.Context, object T, observation *O) (stored T, decision D, err error) {
	if kind, locks := l.Kind.(Locker[O]); locks {
		unlock, err := kind.Lock(ctx, observation)
		if err != nil {
			return object, decision, err
		}
		defer unlock()
	}
	for asks := true; asks && err == nil; {
		decision = l.Kind.Decide(observation)
		asks, err = l.Kind.Answer(ctx, observation, &decision)
	}
	if err != nil {
		return object, decision, err
	}
	stored, err = l.Kind.Record(ctx, object, observation, &decision)
	return stored, decision, err
}
