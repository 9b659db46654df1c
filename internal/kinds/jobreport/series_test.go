package jobreport

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestSeries(t *testing.T) {
	generateName := func(prefix string) jobTrait { return func(job *batchv1.Job) { job.GenerateName = prefix } }
	createdAt := testTime.Unix()
	run := func(number string) jobTrait { return annotated(v1alpha1.AnnotationRun, number) }
	attempt := func(number string) jobTrait { return labeled("jobset.sigs.k8s.io/restart-attempt", number) }
	for name, row := range map[string]struct {
		job  *batchv1.Job
		want Series
	}{
		"the successful run of a CronJob supersedes earlier failures": {
			jobWith(controlledBy("CronJob"), completedJob), Series{Key: "9", Position: createdAt, Supersedes: true},
		},
		"the failed run of a CronJob can be superseded": {
			jobWith(controlledBy("CronJob"), failedFor("X")), Series{Key: "9", Position: createdAt, Failed: true},
		},
		"an unfinished run of a CronJob proves nothing": {
			jobWith(controlledBy("CronJob"), startedJob), Series{Key: "9", Position: createdAt},
		},
		"contradictory conditions prove nothing": {
			jobWith(controlledBy("CronJob"), completedJob, failedFor("X")), Series{Key: "9", Position: createdAt, Failed: true},
		},
		"any Job of a later run of a SequentialJob supersedes": {
			jobWith(controlledBy("SequentialJob"), run("2"), startedJob), Series{Key: "9", Position: 2, Supersedes: true},
		},
		"any Job of a later attempt of a JobSet supersedes": {
			jobWith(controlledBy("JobSet"), attempt("1"), failedFor("X")), Series{Key: "9", Position: 1, Supersedes: true, Failed: true},
		},
		"the next attempt of an AgenticSession supersedes": {
			jobWith(controlledBy("AgenticSession"), startedJob), Series{Key: "9", Position: createdAt, Supersedes: true},
		},
		"a success with the same prefix of a Workflow supersedes": {
			jobWith(controlledBy("Workflow"), generateName("train-"), completedJob), Series{Key: "9/train-", Position: createdAt, Supersedes: true},
		},
		"a Job of another controller without a prefix is in no series": {jobWith(controlledBy("Workflow"), completedJob), Series{}},
		"a Job without a controller is in no series":                   {jobWith(generateName("train-"), completedJob), Series{}},
		"a step without the number of its run is in no series":         {jobWith(controlledBy("SequentialJob"), failedFor("X")), Series{}},
		"a child with an invalid number of attempts is in no series":   {jobWith(controlledBy("JobSet"), attempt("many")), Series{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, SeriesOf(row.job)); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheRunsOfACronJobAreOrderedByCreation(t *testing.T) {
	earlier, later := jobWith(controlledBy("CronJob")), jobWith(controlledBy("CronJob"))
	later.CreationTimestamp = metav1.NewTime(testTimePlus(time.Minute))
	if SeriesOf(earlier).Position >= SeriesOf(later).Position {
		t.Error("the later run does not follow the earlier one")
	}
}
