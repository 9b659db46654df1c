package jobreport

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
)

func TestTheOwnerOfAJobIsWhatItStates(t *testing.T) {
	helm := func(job *batchv1.Job) {
		job.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "shop"}
	}
	for name, row := range map[string]struct {
		job  *batchv1.Job
		want string
	}{
		"a CronJob":                           {jobWith(controlledBy("CronJob")), "CronJob/owner"},
		"a SequentialJob":                     {jobWith(controlledBy("SequentialJob")), "SequentialJob/owner"},
		"a Schedule, by the label of its run": {jobWith(controlledBy("SequentialJob"), labeled("yardmaster.dev/schedule", "nightly")), "Schedule/nightly"},
		"a Schedule of sessions":              {jobWith(controlledBy("AgenticSession"), labeled("yardmaster.dev/schedule", "review")), "Schedule/review"},
		"no Schedule of another controller":   {jobWith(controlledBy("CronJob"), labeled("yardmaster.dev/schedule", "nightly")), "CronJob/owner"},
		"a JobSet, by its label":              {jobWith(labeled("jobset.sigs.k8s.io/jobset-name", "train")), "JobSet/train"},
		"an Argo Workflow, by its label":      {jobWith(labeled("workflows.argoproj.io/workflow", "etl-x7k2p")), "Workflow/etl-x7k2p"},
		"a Helm release, by its annotation":   {jobWith(annotated("meta.helm.sh/release-name", "shop")), "HelmRelease/shop"},
		"a Helm release, by labels of hooks":  {jobWith(helm), "HelmRelease/shop"},
		"a queue of Kueue":                    {jobWith(labeled("kueue.x-k8s.io/queue-name", "team-a")), "LocalQueue/team-a"},
		"a controller before any label":       {jobWith(controlledBy("CronJob"), helm), "CronJob/owner"},
		"an owner that does not control it":   {jobWith(withNonControllerOwner), ""},
		"nothing":                             {jobWith(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := OwnerOf(row.job).String(); got != row.want {
				t.Errorf("owner %q, want %q", got, row.want)
			}
		})
	}
}
