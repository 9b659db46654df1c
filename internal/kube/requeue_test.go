package kube

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

var queueResource = schema.GroupResource{Group: "yardmaster.dev", Resource: "queues"}

func reconcilerReturning(failure func() error) reconcile.Reconciler {
	return RequeueOnConflict(reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
		return ctrl.Result{RequeueAfter: time.Hour}, failure()
	}))
}

func TestReconciliationIsRetriedSoonAfterAConflict(t *testing.T) {
	failure := errors.New("broken")
	for title, test := range map[string]struct {
		err  error
		wait time.Duration
		want error
	}{
		"success keeps its result":     {nil, time.Hour, nil},
		"the object has changed":       {fmt.Errorf("patching: %w", apierrors.NewConflict(queueResource, "mail", failure)), minConflictBackoff, nil},
		"the object was deleted":       {fmt.Errorf("patching: %w", apierrors.NewNotFound(queueResource, "mail")), minConflictBackoff, nil},
		"the decision used stale data": {fmt.Errorf("patching: %w", ErrStale), minConflictBackoff, nil},
		"any other error is returned":  {failure, time.Hour, failure},
	} {
		t.Run(title, func(t *testing.T) {
			result, err := reconcilerReturning(func() error { return test.err }).Reconcile(t.Context(), ctrl.Request{})
			if !errors.Is(err, test.want) || result.RequeueAfter != test.wait {
				t.Errorf("requeued after %s, %v; want %s, %v", result.RequeueAfter, err, test.wait, test.want)
			}
		})
	}
}

func TestConsecutiveConflictsBackOffAndFinallyFail(t *testing.T) {
	err := ErrStale
	r := reconcilerReturning(func() error { return err })
	previous := time.Duration(0)
	for range maxConsecutiveConflicts {
		result, err := r.Reconcile(t.Context(), ctrl.Request{})
		if err != nil || result.RequeueAfter < previous || result.RequeueAfter > maxConflictBackoff {
			t.Fatalf("requeued after %s, %v, having waited %s before", result.RequeueAfter, err, previous)
		}
		previous = result.RequeueAfter
	}
	if _, got := r.Reconcile(t.Context(), ctrl.Request{}); !errors.Is(got, ErrStale) {
		t.Errorf("a conflict that persists returned %v", got)
	}
	err = nil
	if _, got := r.Reconcile(t.Context(), ctrl.Request{}); got != nil {
		t.Fatal(got)
	}
	err = ErrStale
	if result, got := r.Reconcile(t.Context(), ctrl.Request{}); got != nil || result.RequeueAfter != minConflictBackoff {
		t.Errorf("after a success, a conflict requeued after %s, %v", result.RequeueAfter, got)
	}
}

// Each error is logged. The cache may lag for minutes, for example while namespaces are deleted.
func TestConflictsThatPersistFailAtMostOnceAMinute(t *testing.T) {
	r := reconcilerReturning(func() error { return ErrStale })
	waited := time.Duration(0)
	for range 10 * (maxConsecutiveConflicts + 1) {
		result, err := r.Reconcile(t.Context(), ctrl.Request{})
		if waited += result.RequeueAfter; err == nil {
			continue
		}
		require.True(t, waited >= time.Minute, "a conflict failed after %s", waited)
		waited = 0
	}
}

func TestErrorOfAWriteIsARefusalOrIsRetried(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	terminating := apierrors.NewForbidden(jobs, "a", errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	conflict := apierrors.NewConflict(jobs, "a", errors.New("changed"))
	for title, row := range map[string]struct {
		err         error
		wantRefusal decision.Class
		wantErr     error
	}{
		"no error":                       {},
		"an invalid object is a refusal": {err: apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "a", nil), wantRefusal: decision.Invalid},
		"a terminating namespace is retried silently": {err: terminating, wantErr: ErrStale},
		"another error is returned":                   {err: conflict, wantErr: conflict},
	} {
		t.Run(title, func(t *testing.T) {
			refusal, err := AsRefusal(row.err, decision.Refusal{Kind: "Job", Name: "a"})
			require.True(t, errors.Is(err, row.wantErr), "got %v", err)
			var got decision.Class
			if refusal != nil {
				got = refusal.Class
			}
			assert.Equal(t, "class of the refusal", row.wantRefusal, got)
		})
	}
}
