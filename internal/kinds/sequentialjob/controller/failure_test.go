package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestLastingFailureIsReportedOnce(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Obj()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(sj).WithStatusSubresource(sj).Build()
	clock, recorder := clocktesting.NewFakeClock(time.Unix(1000, 0)), events.NewFakeRecorder(10)
	r := &Reconciler{
		Clients:  kube.Clients{Client: api, Live: api, Recorder: recorder, Clock: clock},
		failures: kube.NewStore[failure](), writeCache: kube.NewWriteCache[*v1alpha1.SequentialJob](),
	}
	forbidden := errors.New("jobs.batch is forbidden")
	fail := func(after time.Duration, err error) {
		clock.Step(after)
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(sj), sj))
		r.ReportFailure(t.Context(), sj, err)
	}
	fail(0, forbidden)
	fail(time.Second, forbidden)
	fail(time.Hour, context.Canceled)
	if failing, _ := r.failures.Get(sj); len(recorder.Events) != 0 || failing.reported != "" {
		t.Fatal("a failure is reported at once")
	}
	fail(time.Second, forbidden)
	fail(time.Second, forbidden)
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(sj), sj))
	c := meta.FindStatusCondition(sj.Status.Conditions, v1alpha1.ConditionReady)
	require.True(t, len(recorder.Events) == 1 && c != nil && c.Reason == v1alpha1.ReasonRequestFailed && c.Message == forbidden.Error(),
		"%d events, condition %+v", len(recorder.Events), c)
	succeed := func() time.Duration {
		return r.Finish(sj, &sequentialjob.Observation{}, &sequentialjob.Decision{RequeueAfter: time.Hour})
	}
	if first, second := succeed(), succeed(); first != time.Millisecond || second != time.Hour {
		t.Errorf("after a success the next decisions, of which the first clears the condition, are due in %v and %v", first, second)
	}
}
