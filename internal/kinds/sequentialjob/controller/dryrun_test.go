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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

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
		require.True(t, started.Load() == 1+maxConcurrentDryRuns && canceled.Load() == 0,
			"%d dry runs were started and %d of them canceled, want %d and none", started.Load(), canceled.Load(), 1+maxConcurrentDryRuns)
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
		// firstFollows is true if the first Job is created next.
		firstFollows bool
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
