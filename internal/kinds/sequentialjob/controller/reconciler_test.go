package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

func TestProgressThatTheJobsShowIsStoredAndFinalizersAreRemovedLaterWhileThereIsMuch(t *testing.T) {
	writes := 0
	write := func() error { writes++; return nil }
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return write()
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return write()
		},
	}).Build()
	r := &Reconciler{
		Clients:        kube.Clients{Client: api},
		progressWrites: kube.NewNamespaceLimiter(0, 1),
		writeCache:     kube.NewWriteCache[*v1alpha1.SequentialJob](),
		createdJobs:    newCreatedJobs(),
		stepEnds:       kube.NewStore[time.Time](),
		stored:         kube.NewStore[string](),
	}
	for i, row := range []struct {
		isEnded              bool // the finalizer is what remains
		within, requeueAfter time.Duration
		wantWrites           int
		wantRequeueAfter     time.Duration
	}{
		{false, time.Minute, time.Hour, 1, time.Hour},
		{false, time.Minute, time.Hour, 1, 10 * time.Second},
		{false, time.Second, 0, 1, time.Second},
		{false, time.Minute, 5 * time.Second, 1, 5 * time.Second},
		{true, time.Minute, time.Hour, 1, time.Minute},
		{true, time.Minute, time.Second, 1, time.Second},
		{false, 0, time.Hour, 2, time.Hour}, // an outcome or a problem
		{true, 0, 0, 3, 0},
	} {
		sj := &v1alpha1.SequentialJob{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}}
		d := &sequentialjob.Decision{RequeueAfter: row.requeueAfter}
		if row.isEnded {
			sj.Finalizers, d.ReleaseWithin = []string{v1alpha1.SequentialJobFinalizer}, row.within
		} else {
			d.StatusChanged, d.RecordWithin = true, row.within
			d.Status.Steps = []v1alpha1.StepStatus{{Name: "build", Phase: v1alpha1.StepRunning}}
		}
		_, err := r.Record(t.Context(), sj, &sequentialjob.Observation{SequentialJob: sj}, d)
		require.NoError(t, err)
		_, err = r.Act(t.Context(), sj, &sequentialjob.Observation{SequentialJob: sj}, d)
		require.NoError(t, err)
		require.True(t, writes == row.wantWrites && d.RequeueAfter == row.wantRequeueAfter, "row %d: %d writes, %+v", i, writes, d)
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
	failing, _ := r.failures.Get(sj)
	require.True(t, len(recorder.Events) == 0 && failing.reported == "", "a failure is reported at once")
	fail(time.Second, forbidden)
	fail(time.Second, forbidden)
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(sj), sj))
	c := meta.FindStatusCondition(sj.Status.Conditions, v1alpha1.ConditionReady)
	require.True(t, len(recorder.Events) == 1 && c != nil && c.Reason == v1alpha1.ReasonRequestFailed && c.Message == forbidden.Error(), "%+v", c)
	succeed := func() time.Duration {
		return r.Finish(sj, &sequentialjob.Observation{}, &sequentialjob.Decision{RequeueAfter: time.Hour})
	}
	first, second := succeed(), succeed()
	require.True(t, first == time.Millisecond && second == time.Hour, "after a success the next decisions are due in %v and %v", first, second)
}

// newDryRunReconciler returns a reconciler whose requests to create objects are answered by this function.
func newDryRunReconciler(create func(ctx context.Context, object client.Object) error) *Reconciler {
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if !slices.Contains(options, client.CreateOption(client.DryRunAll)) {
				return fmt.Errorf("%T is created without a dry run", object)
			}
			return create(ctx, object)
		},
	}).Build()
	return &Reconciler{Clients: kube.Clients{Client: api}, accepted: cache.NewLRUExpireCache(100)}
}

func newStepJob(step string, content int64, label string) *batchv1.Job {
	job := &batchv1.Job{Spec: batchv1.JobSpec{ActiveDeadlineSeconds: &content}}
	job.Name, job.Namespace = "a-"+step, "ns"
	job.Labels = map[string]string{v1alpha1.LabelStep: step, "label": label}
	return job
}

func TestAFailedDryRunStartsNoFurtherOnesAndCancelsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unavailable := errors.New("the API server is unavailable")
		var started, canceled atomic.Int32
		r := newDryRunReconciler(func(ctx context.Context, object client.Object) error {
			if _, isJob := object.(*batchv1.Job); !isJob {
				return nil
			}
			switch started.Add(1) {
			case 1:
				return nil // the first Job is tried alone
			case 1 + maxConcurrentDryRuns:
				return unavailable
			}
			select {
			case <-ctx.Done():
				canceled.Add(1)
			case <-time.After(time.Second): // after the failure
			}
			return nil
		})
		var observation sequentialjob.Observation
		var jobs []*batchv1.Job
		for i := range int64(10) {
			jobs = append(jobs, newStepJob(fmt.Sprint("s", i), i, ""))
		}
		err := r.dryRun(t.Context(), &observation, &sequentialjob.Question{DryRun: jobs})
		require.True(t, errors.Is(err, unavailable) && observation.Answers.DryRun == nil, "error %v, result %v", err, observation.Answers.DryRun)
		require.True(t, started.Load() == 1+maxConcurrentDryRuns && canceled.Load() == 0, "%d started, %d canceled", started.Load(), canceled.Load())
	})
}

func TestOnlyWhatDiffersIsTried(t *testing.T) {
	var tried []string
	r := newDryRunReconciler(func(_ context.Context, object client.Object) error {
		tried = append(tried, fmt.Sprintf("%T %s", object, object.GetName()+object.GetGenerateName()))
		return nil
	})
	for _, test := range []struct {
		tries, label string
		content      int64 // of the second step
		firstFollows bool  // true if the first Job is created next
		want         []string
	}{
		{"the Job and the Pod of each step", "a", 2, true, []string{"*v1.Job a-build", "*v1.Job a-test", "*v1.Pod a-build-", "*v1.Pod a-test-"}},
		{"nothing again", "a", 2, false, nil},
		{"the first Job with another label", "b", 2, false, []string{"*v1.Job a-build"}},
		{"nothing, if creating the first Job tries its label", "c", 2, true, nil},
		{"a step with another content", "b", 3, true, []string{"*v1.Job a-test", "*v1.Pod a-test-"}},
	} {
		tried = nil
		var observation sequentialjob.Observation
		jobs := []*batchv1.Job{newStepJob("build", 1, test.label), newStepJob("test", test.content, test.label)}
		require.NoError(t, r.dryRun(t.Context(), &observation, &sequentialjob.Question{DryRun: jobs, FirstFollows: test.firstFollows}))
		require.True(t, len(observation.Answers.DryRun.Refusals) == 0, "%s: result %v", test.tries, observation.Answers.DryRun)
		slices.Sort(tried)
		assert.Equal(t, test.tries, test.want, tried)
	}
}

func TestRefusedPodIsARefusalOfItsStep(t *testing.T) {
	forbidden := func(message string) error {
		return apierrors.NewForbidden(corev1.Resource("pods"), "a-build-", errors.New(message))
	}
	heldByQueue := func(job *batchv1.Job) { job.Spec.Suspend = new(true) }
	withAccount := func(job *batchv1.Job) { job.Spec.Template.Spec.ServiceAccountName = "builder" }
	for name, test := range map[string]struct {
		err    error
		change func(*batchv1.Job)
		want   string
	}{
		"PodSecurity":                           {forbidden(`violates PodSecurity "restricted:latest": seccompProfile`), nil, "PolicyDenied"},
		"a quota":                               {forbidden("exceeded quota: few"), nil, "QuotaExceeded"},
		"a quota, and a queue holds the Job":    {forbidden("exceeded quota: few"), heldByQueue, ""},
		"PodSecurity, and a queue holds it":     {forbidden(`violates PodSecurity "restricted:latest": seccompProfile`), heldByQueue, "PolicyDenied"},
		"a missing ServiceAccount":              {forbidden(`error looking up service account ns/builder: serviceaccount "builder" not found`), withAccount, "ServiceAccountMissing"},
		"the default one of a new namespace":    {forbidden(`error looking up service account ns/default: serviceaccount "default" not found`), nil, ""},
		"the permission to create Pods missing": {forbidden(`User "yardmaster" cannot create resource "pods" in API group "" in the namespace "ns"`), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newDryRunReconciler(func(_ context.Context, object client.Object) error {
				if _, isPod := object.(*corev1.Pod); isPod {
					return test.err
				}
				return nil
			})
			job := newStepJob("build", 1, "")
			if test.change != nil {
				test.change(job)
			}
			var observation sequentialjob.Observation
			require.NoError(t, r.dryRun(t.Context(), &observation, &sequentialjob.Question{DryRun: []*batchv1.Job{job}}))
			got := ""
			for _, refusal := range observation.Answers.DryRun.Refusals {
				require.True(t, refusal.Kind == "Pod" && refusal.Step == "build" && refusal.Message != "", "refusal %+v", refusal)
				got += string(refusal.Class)
			}
			assert.Equal(t, "refusals", test.want, got)
		})
	}
}

// eventReader lists two warnings about each of some Pods of a namespace, in pages.
type eventReader struct {
	client.Reader
	pods, requests int
}

func (r *eventReader) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	r.requests++
	start, events := 0, list.(*eventsv1.EventList)
	if _, err := fmt.Sscan(asked.Continue, &start); err != nil {
		start = 0
	}
	uid, isOne := asked.FieldSelector.RequiresExactMatch("regarding.uid")
	for n := start; n < 2*r.pods; n++ {
		if len(events.Items) == int(asked.Limit) {
			events.Continue = fmt.Sprint(n)
			break
		}
		pod := types.UID(fmt.Sprint("pod", n/2))
		if !isOne || uid == string(pod) {
			at := metav1.NewMicroTime(time.Unix(int64(100-n%2), 0)) // the newest is the first
			events.Items = append(events.Items, eventsv1.Event{Regarding: corev1.ObjectReference{UID: pod}, Note: fmt.Sprint("message ", n), EventTime: at})
		}
	}
	return nil
}

func TestACachedPodShowsHowEachContainerEndedAndTheMessageOfItsStep(t *testing.T) {
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: "no", FinishedAt: metav1.NewTime(time.Unix(9, 0))}}
	pod := testbuilder.Pod("build").Obj()
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", LastTerminationState: ended}}
	pod.Status.ContainerStatuses[0].State = ended
	got := require.Call(trimPod(pod.DeepCopy())).Succeeds(t).(*corev1.Pod)
	require.Equal(t, ended, got.Status.ContainerStatuses[0].State)
	pod.Status.InitContainerStatuses[0].LastTerminationState.Terminated.Message = ""
	require.Equal(t, pod.Status.InitContainerStatuses, got.Status.InitContainerStatuses)
}

func TestStepsOfANamespaceShareAListOfItsWarnings(t *testing.T) {
	for title, test := range map[string]struct{ pods, asks, requests, answers, namespaces int }{
		"an object each of two namespaces":           {pods: 2, asks: 2, requests: 2, answers: 2, namespaces: 2},
		"a hundred objects that wait":                {pods: 100, asks: 100, requests: 1, answers: 100},
		"an object of the second page":               {pods: 400, asks: 1, requests: 2, answers: 1},
		"an object beyond the list":                  {pods: 600, asks: 1, requests: 3, answers: 1},
		"more objects beyond the list than requests": {pods: 3000, asks: 2000, requests: 2 + warningListBurst - 1, answers: warningListBurst - 1},
	} {
		t.Run(title, func(t *testing.T) {
			events := &eventReader{pods: test.pods}
			r := newWarningReader(events)
			r.limiter.SetLimit(0) // the burst alone
			answered := 0
			for n := range test.asks {
				pod := test.pods - 1 - n
				got, err := r.newest(t.Context(), fmt.Sprint("team", n%max(test.namespaces, 1)), types.UID(fmt.Sprint("pod", pod)))
				require.NoError(t, err)
				if got != "" {
					answered++
				}
				want := fmt.Sprint("message ", 2*pod)
				require.True(t, got == "" || got == want, "message %q, want the newest: %q", got, want)
			}
			assert.Equal(t, "number of answers", test.answers, answered)
			assert.Equal(t, "number of requests", test.requests, events.requests)
		})
	}
}
