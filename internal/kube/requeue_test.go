package kube

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestAPassOnSomethingOutdatedBeginsAnewSoon(t *testing.T) {
	queues := schema.GroupResource{Group: "yardmaster.dev", Resource: "queues"}
	broken := errors.New("broken")
	tests := map[string]struct {
		err  error
		wait time.Duration
		want error
	}{
		"it went well":                      {nil, time.Hour, nil},
		"the object has changed meanwhile":  {StaleOr(apierrors.NewConflict(queues, "mail", broken)), time.Second, nil},
		"it has gone meanwhile":             {StaleOr(apierrors.NewNotFound(queues, "mail")), time.Second, nil},
		"something says so further within":  {fmt.Errorf("patching: %w", ErrStale), time.Second, nil},
		"it failed, and is backed off from": {StaleOr(broken), time.Hour, broken},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			pass := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
				return ctrl.Result{RequeueAfter: time.Hour}, test.err
			})
			result, err := AfterStale(time.Second, pass).Reconcile(t.Context(), ctrl.Request{})
			if !errors.Is(err, test.want) || result.RequeueAfter != test.wait {
				t.Errorf("again after %s, %v; want %s, %v", result.RequeueAfter, err, test.wait, test.want)
			}
		})
	}
}
