package sequentialjob

import (
	"encoding/json"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// For any stored object, such as one with a manually edited status, Decide does not panic, does not
// repeat a question that is answered, and does not make two steps active.
func FuzzDecide(f *testing.F) {
	sj := sequence("build", "test").Finally("clean").Obj()
	started := sj.DeepCopy()
	decision := Decide(Observation{SequentialJob: started, Now: time.Unix(0, 0), Answers: Answers{DryRun: &DryRunResult{}}})
	started.Status = decision.Status
	for _, seed := range []*v1alpha1.SequentialJob{sj, started} {
		object, err := json.Marshal(seed)
		require.NoError(f, err)
		job, err := json.Marshal(decision.CreateJob)
		require.NoError(f, err)
		f.Add(object, job, int64(3))
	}
	f.Fuzz(func(t *testing.T, object, job []byte, seconds int64) {
		sj, owned := &v1alpha1.SequentialJob{}, &batchv1.Job{}
		if json.Unmarshal(object, sj) != nil || json.Unmarshal(job, owned) != nil {
			return
		}
		in := Observation{SequentialJob: sj, Jobs: []*batchv1.Job{owned}, Now: time.Unix(seconds, 0)}
		in.Answers = Answers{JobsByName: map[string]*batchv1.Job{}, PodsByJob: nil, HasAllJobs: true, DryRun: &DryRunResult{}}
		decision := Decide(in)
		require.True(t, decision.Question == nil || decision.Question.DryRun == nil, "it asks an answered question")
		countActive := func(steps []v1alpha1.StepStatus) (count int) {
			for _, step := range steps {
				if isActive(step.Phase) {
					count++
				}
			}
			return count
		}
		active, before := countActive(decision.Status.Steps), countActive(sj.Status.Steps)
		require.True(t, active <= max(1, before), "%d steps are active, %d were", active, before)
	})
}
