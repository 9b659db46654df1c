package jobreport

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
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
		t.Run(name, func(t *testing.T) { assert.Equal(t, "owner", row.want, OwnerOf(row.job).String()) })
	}
}

func ownedBy(row Entry, kind, name string) Entry {
	row.Owner = Owner{Kind: kind, Name: name}
	return row
}

func TestSixtyFailuresOfACronJobAreOneGroup(t *testing.T) {
	rows := []Entry{ownedBy(zombieEntry("other", 0), "JobSet", "train"), zombieEntry("alone", 0), zombieEntry("too", 0)}
	for i := range 60 {
		row := failedEntry(fmt.Sprintf("run-%02d", i), "", int64(i))
		rows = append(rows, ownedBy(row, "CronJob", "nightly"))
	}
	status := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, rows...)
	want := []v1alpha1.JobFindingGroup{{
		JobFindingClass: v1alpha1.JobFindingClass{
			Owner:    &v1alpha1.JobOwner{Kind: "CronJob", Name: "nightly"},
			Category: v1alpha1.JobSuspicious, Severity: v1alpha1.SeverityMedium, Reason: "BackoffLimitExceeded",
		},
		Count:  60,
		Oldest: new(metav1.NewTime(testTime)), Newest: new(metav1.NewTime(testTime.Add(59 * time.Hour))),
	}}
	assert.Equal(t, "groups", want, status.Groups)
	finding := status.Findings[slices.IndexFunc(status.Findings, func(f v1alpha1.JobFinding) bool { return f.Name == "other" })]
	assert.Equal(t, "owner of a finding", &v1alpha1.JobOwner{Kind: "JobSet", Name: "train"}, finding.Owner)
}

func TestTheMostImportantGroupsAreListedInAnyOrderOfTheJobs(t *testing.T) {
	var rows []Entry
	for i := range 3 * MaxGroups {
		for j := range 3 {
			rows = append(rows, ownedBy(zombieEntry(fmt.Sprintf("job-%d-%d", i, j), time.Duration(i)*time.Hour), "CronJob", fmt.Sprintf("cron-%02d", i)))
		}
	}
	want := scanEntries(v1alpha1.JobReportStatus{}, testTime, 10, rows...)
	require.True(t, len(want.Groups) == MaxGroups && want.Groups[0].Owner.Name == fmt.Sprintf("cron-%02d", 2*MaxGroups),
		"%d groups, the first is %+v, want the newest ones", len(want.Groups), want.Groups[0])
	random := rand.New(rand.NewSource(1))
	for range 20 {
		random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		require.Equal(t, want, scanEntries(v1alpha1.JobReportStatus{}, testTime, 10, rows...))
	}
}
