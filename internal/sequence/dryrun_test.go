package sequence

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/testbuilder"
)

// A benchmark showed half as many dry runs again as there were steps: as long as no
// status was stored, each pass took the spec for changed.
func TestAPendingStepIsTriedOnceForEachGeneration(t *testing.T) {
	sj := testbuilder.SequentialJob("a", "ns").Step("build").Step("test").Obj()
	begun := Decide(Input{SequentialJob: sj, Now: time.Unix(100, 0), Answers: Answers{DryRun: &DryRun{}}})
	sj.Annotations = map[string]string{v1alpha1.AnnotationFirstStep: begun.FirstStep}
	job := begun.Create.DeepCopy()
	job.UID = "job"
	in := Input{SequentialJob: sj, Jobs: []*batchv1.Job{job}, Now: time.Unix(101, 0), Answers: Answers{Read: map[string]*batchv1.Job{job.Name: job}}}

	if plan := Decide(in); plan.Ask != nil {
		t.Errorf("a second pass asks %+v", plan.Ask)
	}
	sj.Generation++
	sj.Spec.Containers[1].Image = "other"
	if plan := Decide(in); plan.Ask == nil || len(plan.Ask.DryRun) != 1 {
		t.Errorf("after a change it asks %+v, want a dry run of the pending step", plan.Ask)
	}
}
