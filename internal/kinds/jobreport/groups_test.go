package jobreport

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

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
	if diff := cmp.Diff(want, status.Groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

func TestAFindingNamesTheOwner(t *testing.T) {
	finding := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, ownedBy(zombieEntry("a", 0), "CronJob", "nightly")).Findings[0]
	if finding.Owner == nil || *finding.Owner != (v1alpha1.JobOwner{Kind: "CronJob", Name: "nightly"}) {
		t.Errorf("owner %+v", finding.Owner)
	}
}

func TestTheMostImportantGroupsAreListedInAnyOrderOfTheJobs(t *testing.T) {
	var rows []Entry
	for i := range 3 * MaxGroups {
		for j := range 3 {
			rows = append(rows, ownedBy(zombieEntry(fmt.Sprintf("job-%d-%d", i, j), time.Duration(i)*time.Hour), "CronJob", fmt.Sprintf("cron-%02d", i)))
		}
	}
	want := scanEntries(v1alpha1.JobReportStatus{}, testTime, 10, rows...)
	if len(want.Groups) != MaxGroups || want.Groups[0].Owner.Name != fmt.Sprintf("cron-%02d", 2*MaxGroups) {
		t.Errorf("%d groups, the first is %+v, want the newest ones", len(want.Groups), want.Groups[0])
	}
	random := rand.New(rand.NewSource(1))
	for range 20 {
		random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		if diff := cmp.Diff(want, scanEntries(v1alpha1.JobReportStatus{}, testTime, 10, rows...)); diff != "" {
			t.Fatalf("the report differs:\n%s", diff)
		}
	}
}
