package sequence

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// Without this, every reconciliation before the first stored status repeats the dry run.
func TestPendingStepGetsOneDryRunForEachGeneration(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Obj()
	started := Decide(Observation{SequentialJob: sj, Now: time.Unix(100, 0), Answers: Answers{DryRun: &DryRunResult{}}})
	sj.Status = started.Status
	job := started.CreateJob.DeepCopy()
	job.UID, job.CreationTimestamp = "job", metav1.Unix(100, 0)
	in := Observation{SequentialJob: sj, Jobs: []*batchv1.Job{job}, Now: time.Unix(101, 0), Answers: Answers{JobsByName: map[string]*batchv1.Job{job.Name: job}}}

	if decision := Decide(in); decision.Question != nil {
		t.Errorf("a second reconciliation asks %+v", decision.Question)
	}
	sj.Generation++
	sj.Spec.Containers[1].Image = "other"
	if decision := Decide(in); decision.Question == nil || len(decision.Question.DryRun) != 1 {
		t.Errorf("after a change it asks %+v, want a dry run of the pending step", decision.Question)
	}
}
