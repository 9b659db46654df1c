package sequentialjob

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/sequence"
)

func TestAFailedDryRunStartsNoFurtherOnesAndCancelsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unavailable := errors.New("the API server is unavailable")
		var started, canceled atomic.Int32
		api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
				if started.Add(1) == maxConcurrentDryRuns {
					return unavailable
				}
				select {
				case <-ctx.Done():
					canceled.Add(1)
				case <-time.After(time.Second): // after the failure
				}
				return nil
			},
		}).Build()
		r := &Reconciler{Clients: kube.Clients{Client: api}, acceptedJobs: cache.NewLRUExpireCache(1)}
		var observation sequence.Observation
		var jobs []*batchv1.Job
		for i := range int64(10) {
			jobs = append(jobs, &batchv1.Job{Spec: batchv1.JobSpec{ActiveDeadlineSeconds: &i}}) // each has another fingerprint
		}
		if err := r.dryRun(t.Context(), &observation, jobs); !errors.Is(err, unavailable) || observation.Answers.DryRun != nil {
			t.Errorf("error %v, result %v", err, observation.Answers.DryRun)
		}
		if started.Load() != maxConcurrentDryRuns || canceled.Load() != 0 {
			t.Errorf("%d dry runs were started and %d of them canceled, want %d and none", started.Load(), canceled.Load(), maxConcurrentDryRuns)
		}
	})
}
