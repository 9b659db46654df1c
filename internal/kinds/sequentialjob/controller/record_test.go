package controller

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
)

func TestManyStepsThatOnlyStartedToRunAreStoredLater(t *testing.T) {
	writes := 0
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			writes++
			return nil
		},
	}).Build()
	clock := testclock.NewFakePassiveClock(time.Now())
	r := &Reconciler{
		Clients:        kube.Clients{Client: api, Clock: clock},
		runningReports: kube.NewNamespaceLimiter(0, 1),
		writeCache:     kube.NewWriteCache[*v1alpha1.SequentialJob](),
		createdJobs:    newCreatedJobs(),
	}
	sj := &v1alpha1.SequentialJob{}
	sj.Name, sj.Namespace = "a", "ns"
	sj.Status.Steps = []v1alpha1.StepStatus{{Name: "build", Phase: v1alpha1.StepStarting}}
	report := func(phase v1alpha1.StepPhase, message string) *sequentialjob.Decision {
		decision := &sequentialjob.Decision{StatusChanged: true, RequeueAfter: time.Hour}
		decision.Status.Steps = []v1alpha1.StepStatus{{Name: "build", Phase: phase, JobAttempt: v1alpha1.JobAttempt{Explanation: v1alpha1.Explanation{Message: message}}}}
		decision.Status.Steps[0].StartTime = sj.Status.Steps[0].StartTime
		if _, err := r.Record(t.Context(), sj.DeepCopy(), nil, decision); err != nil {
			t.Fatal(err)
		}
		return decision
	}
	report(v1alpha1.StepRunning, "")
	if postponed := report(v1alpha1.StepRunning, ""); writes != 1 || postponed.RequeueAfter != time.Second {
		t.Errorf("%d writes, the next decision is in %s; want 1 and 1 s", writes, postponed.RequeueAfter)
	}
	report(v1alpha1.StepFailed, "")
	report(v1alpha1.StepStarting, "no node fits")
	if writes != 3 {
		t.Errorf("%d writes, want 3: an outcome and a problem are stored at once", writes)
	}
	sj.Status.Steps[0].StartTime = new(metav1.NewTime(clock.Now().Add(-49 * time.Second)))
	report(v1alpha1.StepRunning, "")
	clock.SetTime(clock.Now().Add(time.Second))
	report(v1alpha1.StepRunning, "")
	if writes != 4 {
		t.Errorf("%d writes, want 4: that a step runs is stored within a minute of its start", writes)
	}
}
