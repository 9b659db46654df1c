package jobreport

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
)

func TestSeries(t *testing.T) {
	at := testTime.Unix()
	cron, sequence, session, jobSet := controlledBy("CronJob"), controlledBy("SequentialJob"), controlledBy("AgenticSession"), controlledBy("JobSet")
	workflow, generated := controlledBy("Workflow"), func(job *batchv1.Job) { job.GenerateName = "migrate-" }
	run := func(number string) jobTrait { return annotated(v1alpha1.AnnotationRun, number) }
	attempt := func(number string) jobTrait { return labeled("jobset.sigs.k8s.io/restart-attempt", number) }
	scheduled, step := labeled(v1alpha1.LabelSchedule, "nightly"), labeled(v1alpha1.LabelStep, "load")
	named := func(name string) jobTrait { return func(job *batchv1.Job) { job.Name = name } }
	helm, argoCD := annotated("helm.sh/hook", "pre-upgrade"), annotated("argocd.argoproj.io/hook", "PreSync")
	tracked := annotated("argocd.argoproj.io/tracking-id", "shop:batch/Job:a/b")
	release, imports := labeled("app.kubernetes.io/instance", "shop"), labeled(v1alpha1.LabelReportSeries, "import")
	for name, row := range map[string]struct {
		job  *batchv1.Job
		want []Series
	}{
		"the successful run of a CronJob supersedes earlier failures": {jobWith(cron, completedJob), []Series{{"9", at, true}}},
		"the failed run of a CronJob can be superseded":               {jobWith(cron, failedFor("X")), []Series{{"9", at, false}}},
		"an unfinished run of a CronJob proves nothing":               {jobWith(cron, startedJob), []Series{{"9", at, false}}},
		"contradictory conditions prove nothing":                      {jobWith(cron, completedJob, failedFor("X")), []Series{{"9", at, false}}},
		"any Job of a later run of a SequentialJob supersedes":        {jobWith(sequence, run("2"), startedJob), []Series{{"9", 2, true}}},
		"the next attempt at a step supersedes": {
			jobWith(sequence, run("2"), step, failedFor("X")), []Series{{"9", 2, true}, {"9/2/load", 2 * at, true}},
		},
		"a success ends the attempts at a step": {
			jobWith(sequence, run("2"), step, completedJob), []Series{{"9", 2, true}, {"9/2/load", 2*at + 1, true}},
		},
		"a success of the step in a later run of the Schedule supersedes": {
			jobWith(sequence, run("1"), step, scheduled, completedJob),
			[]Series{{"9", 1, true}, {"9/1/load", 2*at + 1, true}, {"schedule/nightly/load", at, true}},
		},
		"any later attempt of a JobSet supersedes":         {jobWith(jobSet, attempt("1"), failedFor("X")), []Series{{"9", 1, true}}},
		"the next attempt of an AgenticSession supersedes": {jobWith(session, startedJob), []Series{{"9", at, true}}},
		"a successful session of the Schedule supersedes":  {jobWith(session, scheduled, completedJob), []Series{{"9", at, true}, {"schedule/nightly", at, true}}},
		"a success with the same prefix supersedes":        {jobWith(workflow, generated, completedJob), []Series{{"9/migrate-", at, true}}},
		"the hook of a later revision of a Helm release supersedes": {
			jobWith(named("shop-migrate-12"), helm, release, completedJob), []Series{{"hook/shop/pre-upgrade/shop-migrate-", at, true}},
		},
		"the hook of a later sync of Argo CD supersedes": {
			jobWith(named("migrate-4f2a-presync-177"), generated, argoCD, release, completedJob), []Series{{"hook/shop/PreSync/migrate-", at, true}},
		},
		"the application of a hook can be that which Argo CD tracks": {
			jobWith(generated, argoCD, tracked, failedFor("X")), []Series{{"hook/shop/PreSync/migrate-", at, false}},
		},
		"a later success with the same label supersedes":       {jobWith(imports, completedJob), []Series{{"label/import", at, true}}},
		"a label is in addition to the controller":             {jobWith(imports, cron, completedJob), []Series{{"label/import", at, true}, {"9", at, true}}},
		"a hook of an unknown application is in no series":     {jobWith(helm, completedJob), nil},
		"a hook of Argo CD with a fixed name is in no series":  {jobWith(argoCD, release, completedJob), nil},
		"another controller without a prefix is in no series":  {jobWith(workflow, completedJob), nil},
		"a Job without a controller is in no series":           {jobWith(generated, completedJob), nil},
		"a step without the number of its run is in no series": {jobWith(sequence, failedFor("X")), nil},
		"an invalid number of attempts is in no series":        {jobWith(jobSet, attempt("many")), nil},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, "series", row.want, SeriesOf(row.job)) })
	}
}
