package controller

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestProgressThatTheJobsShowIsStoredLaterWhileThereIsMuch(t *testing.T) {
	writes := 0
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			writes++
			return nil
		},
	}).Build()
	r := &Reconciler{
		Clients:        kube.Clients{Client: api},
		progressWrites: kube.NewNamespaceLimiter(0, 1),
		writeCache:     kube.NewWriteCache[*v1alpha1.SequentialJob](),
		createdJobs:    newCreatedJobs(),
		stored:         kube.NewStore[string](),
	}
	for i, row := range []struct {
		within, requeueAfter time.Duration
		wantWrites           int
		wantRequeueAfter     time.Duration
	}{
		{time.Minute, time.Hour, 1, time.Hour},
		{time.Minute, time.Hour, 1, 10 * time.Second},
		{time.Second, 0, 1, time.Second},
		{time.Minute, 5 * time.Second, 1, 5 * time.Second},
		{0, time.Hour, 2, time.Hour}, // an outcome or a problem
	} {
		sj := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}}
		d := &sequentialjob.Decision{StatusChanged: true, RecordWithin: row.within, RequeueAfter: row.requeueAfter}
		d.Status.Steps = []v1alpha1.StepStatus{{Name: "build", Phase: v1alpha1.StepRunning}}
		_, err := r.Record(t.Context(), sj, &sequentialjob.Observation{SequentialJob: sj}, d)
		require.NoError(t, err)
		require.True(t, writes == row.wantWrites && d.RequeueAfter == row.wantRequeueAfter,
			"row %d: %d writes, the next decision is in %s; want %d and %s", i, writes, d.RequeueAfter, row.wantWrites, row.wantRequeueAfter)
	}
}

func TestWaitsOfARunAreNoTransitions(t *testing.T) {
	for active, want := range []bool{false, true} {
		r := &Reconciler{
			Clients:    kube.Clients{Client: fake.NewClientBuilder().Build()},
			writeCache: kube.NewWriteCache[*v1alpha1.SequentialJob](),
			stepEnds:   kube.NewStore[time.Time](),
			stored:     kube.NewStore[string](),
		}
		sj := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}}
		r.stepEnds.Set(sj, time.Now())
		d := &sequentialjob.Decision{Actions: sequentialjob.Actions{NeedsFinalizer: active > 0}}
		d.Status.State.Active = int32(active)
		sj.Finalizers = []string{v1alpha1.SequentialJobFinalizer}[:active]
		_, err := r.Act(t.Context(), sj, &sequentialjob.Observation{SequentialJob: sj}, d)
		require.NoError(t, err)
		_, got := r.stepEnds.Get(sj)
		require.Equal(t, want, got)
	}
}

func TestAJobThatWasCreatedAgainReplacesTheRememberedOne(t *testing.T) {
	sj := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "a"}}
	created := newCreatedJobs()
	for _, uid := range []types.UID{"first", "first", "again"} {
		created.add(sj, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "a-build-1", Namespace: "ns", UID: uid}}, time.Now())
		_, got := created.merge(sj, nil, time.Now())
		require.Equal(t, map[string]types.UID{"a-build-1": uid}, got)
	}
}
