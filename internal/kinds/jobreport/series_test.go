package jobreport

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
)

func TestSeries(t *testing.T) {
	generateName := func(prefix string) jobTrait { return func(job *batchv1.Job) { job.GenerateName = prefix } }
	createdAt := testTime.Unix()
	run := func(number string) jobTrait { return annotated(v1alpha1.AnnotationRun, number) }
	attempt := func(number string) jobTrait { return labeled("jobset.sigs.k8s.io/restart-attempt", number) }
	scheduled, step := labeled(v1alpha1.LabelSchedule, "nightly"), labeled(v1alpha1.LabelStep, "load")
	named := func(name string) jobTrait { return func(job *batchv1.Job) { job.Name = name } }
	helmHook := annotated("helm.sh/hook", "pre-upgrade")
	argoCDHook := annotated("argocd.argoproj.io/hook", "PreSync")
	release := labeled("app.kubernetes.io/instance", "shop")
	for name, row := range map[string]struct {
		job  *batchv1.Job
		want []Series
	}{
		"the successful run of a CronJob supersedes earlier failures": {
			jobWith(controlledBy("CronJob"), completedJob), []Series{{"9", createdAt, true}},
		},
		"the failed run of a CronJob can be superseded": {jobWith(controlledBy("CronJob"), failedFor("X")), []Series{{"9", createdAt, false}}},
		"an unfinished run of a CronJob proves nothing": {jobWith(controlledBy("CronJob"), startedJob), []Series{{"9", createdAt, false}}},
		"contradictory conditions prove nothing":        {jobWith(controlledBy("CronJob"), completedJob, failedFor("X")), []Series{{"9", createdAt, false}}},
		"any Job of a later run of a SequentialJob supersedes": {
			jobWith(controlledBy("SequentialJob"), run("2"), startedJob), []Series{{"9", 2, true}},
		},
		"the next attempt at a step supersedes": {
			jobWith(controlledBy("SequentialJob"), run("2"), step, failedFor("X")), []Series{{"9", 2, true}, {"9/2/load", 2 * createdAt, true}},
		},
		"a success ends the attempts at a step": {
			jobWith(controlledBy("SequentialJob"), run("2"), step, completedJob), []Series{{"9", 2, true}, {"9/2/load", 2*createdAt + 1, true}},
		},
		"a success of the step in a later run of the Schedule supersedes": {
			jobWith(controlledBy("SequentialJob"), run("1"), step, scheduled, completedJob),
			[]Series{{"9", 1, true}, {"9/1/load", 2*createdAt + 1, true}, {"schedule/nightly/load", createdAt, true}},
		},
		"any Job of a later attempt of a JobSet supersedes": {jobWith(controlledBy("JobSet"), attempt("1"), failedFor("X")), []Series{{"9", 1, true}}},
		"the next attempt of an AgenticSession supersedes":  {jobWith(controlledBy("AgenticSession"), startedJob), []Series{{"9", createdAt, true}}},
		"a successful session of the same Schedule supersedes": {
			jobWith(controlledBy("AgenticSession"), scheduled, completedJob), []Series{{"9", createdAt, true}, {"schedule/nightly", createdAt, true}},
		},
		"a success with the same prefix of a Workflow supersedes": {
			jobWith(controlledBy("Workflow"), generateName("train-"), completedJob), []Series{{"9/train-", createdAt, true}},
		},
		"the hook of a later revision of a Helm release supersedes": {
			jobWith(named("shop-migrate-12"), helmHook, release, completedJob), []Series{{"hook/shop/pre-upgrade/shop-migrate-", createdAt, true}},
		},
		"the hook of a later sync of Argo CD supersedes": {
			jobWith(named("migrate-4f2a-presync-177"), generateName("migrate-"), argoCDHook, release, completedJob), []Series{{"hook/shop/PreSync/migrate-", createdAt, true}},
		},
		"the application of a hook can be that which Argo CD tracks": {
			jobWith(generateName("migrate-"), argoCDHook, annotated("argocd.argoproj.io/tracking-id", "shop:batch/Job:a/b"), failedFor("X")), []Series{{"hook/shop/PreSync/migrate-", createdAt, false}},
		},
		"a later success with the same label supersedes": {
			jobWith(labeled(v1alpha1.LabelReportSeries, "import"), completedJob), []Series{{"label/import", createdAt, true}},
		},
		"a label is in addition to the controller": {
			jobWith(labeled(v1alpha1.LabelReportSeries, "import"), controlledBy("CronJob"), completedJob), []Series{{"label/import", createdAt, true}, {"9", createdAt, true}},
		},
		"a hook of an unknown application is in no series":             {jobWith(helmHook, completedJob), nil},
		"a hook of Argo CD with a fixed name is in no series":          {jobWith(argoCDHook, release, completedJob), nil},
		"a Job of another controller without a prefix is in no series": {jobWith(controlledBy("Workflow"), completedJob), nil},
		"a Job without a controller is in no series":                   {jobWith(generateName("train-"), completedJob), nil},
		"a step without the number of its run is in no series":         {jobWith(controlledBy("SequentialJob"), failedFor("X")), nil},
		"a child with an invalid number of attempts is in no series":   {jobWith(controlledBy("JobSet"), attempt("many")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, "series", row.want, SeriesOf(row.job))
		})
	}
}
