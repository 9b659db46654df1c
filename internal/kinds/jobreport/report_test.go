package jobreport

import (
	"fmt"
	"maps"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

// zombieEntry returns an entry of a Job that is a zombie since testTime plus the duration.
func zombieEntry(name string, since time.Duration) Entry {
	return Entry{Name: name, UID: types.UID("uid-" + name), Finding: Finding{
		Category: CategoryZombie, Severity: SeverityHigh, Reason: ReasonNeverStarted,
		Since: testTime.Add(since), Message: "never started",
	}}
}

func suspiciousEntry(name string, severity Severity, since time.Duration) Entry {
	row := zombieEntry(name, since)
	row.Finding.Category, row.Finding.Severity, row.Finding.Reason = CategorySuspicious, severity, ReasonOrphaned
	return row
}

func healthyEntry(name string) Entry {
	return Entry{Name: name, Finding: Finding{Category: CategoryHealthy}}
}

// scanEntries returns the status after a scan of these entries.
func scanEntries(before v1alpha1.JobReportStatus, at time.Time, top int, rows ...Entry) v1alpha1.JobReportStatus {
	return decideOn(before, Scan{Jobs: aggregate(top, rows...), StartTime: at, Duration: time.Second}, nil, at).Status
}

// aggregate adds entries, of which twice as many are kept in memory as are listed, and a bounded number of superseded failures.
func aggregate(top int, rows ...Entry) *Aggregator {
	aggregator := NewAggregator(top)
	for _, row := range rows {
		aggregator.Add(row)
		isSuperseded := row.IsSupersededBy(slices.Collect(maps.Values(aggregator.latest)))
		if len(aggregator.entries) > 2*min(top, MaxFindings) || isSuperseded && len(aggregator.failed) >= 2*MaxFindings {
			panic("too many entries are kept")
		}
	}
	return aggregator
}

func statusAfterFailure(before v1alpha1.JobReportStatus, failure Failure, now time.Time) v1alpha1.JobReportStatus {
	return decideOn(before, Scan{Failure: &failure}, nil, now).Status
}

func decideOn(before v1alpha1.JobReportStatus, scan Scan, export *ExportResult, now time.Time) Decision {
	stored := &v1alpha1.JobReport{Status: before}
	stored.Namespace, stored.Generation = "a", 1
	return Decide(Observation{Report: stored, Scan: scan, ExportEnabled: true, Export: export, Now: now})
}

func scanEvent(kind, reason, message string) []decision.Event {
	return []decision.Event{{Type: kind, Reason: reason, Action: "Scan", Message: message}}
}

func findingNames(findings []v1alpha1.JobFinding) []string {
	var all []string
	for i := range findings {
		all = append(all, findings[i].Name)
	}
	return all
}

func TestAReportCountsAllJobsAndListsThoseThatAreNotHealthy(t *testing.T) {
	before := v1alpha1.JobReportStatus{ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{{Type: "AddedBySomebody"}}}}
	got := scanEntries(before, testTime, 50, healthyEntry("b"), zombieEntry("c", 0),
		suspiciousEntry("a", SeverityLow, 0), healthyEntry("d"), Entry{Name: "e", Finding: Finding{Category: CategoryIgnored}})
	finding := func(name string, category v1alpha1.JobCategory, severity v1alpha1.JobSeverity, reason string) v1alpha1.JobFinding {
		return v1alpha1.JobFinding{
			Name: name, UID: types.UID("uid-" + name), Since: new(metav1.NewTime(testTime)), Message: "never started",
			JobFindingClass: v1alpha1.JobFindingClass{Category: category, Severity: severity, Reason: reason},
		}
	}
	byReason := map[string]int32{"NeverStarted": 1, "Orphaned": 1}
	want := v1alpha1.JobReportStatus{
		ObservedStatus: v1alpha1.ObservedStatus{ObservedGeneration: 1, Conditions: got.Conditions},
		Summary:        v1alpha1.JobSummary{Total: 5, Healthy: 2, Suspicious: 1, Zombie: 1, Ignored: 1, ByReason: byReason},
		Findings: []v1alpha1.JobFinding{
			finding("a", v1alpha1.JobSuspicious, v1alpha1.SeverityLow, "Orphaned"), finding("c", v1alpha1.JobZombie, v1alpha1.SeverityHigh, "NeverStarted"),
		},
		NextSteps:    map[string]string{"NeverStarted": nextNeverStarted, "Orphaned": "kubectl delete job a -n a"},
		LastScanTime: new(metav1.NewTime(testTime)),
	}
	assert.Equal(t, "status", want, got)
	require.True(t, meta.FindStatusCondition(got.Conditions, "AddedBySomebody") == nil, "conditions %+v", got.Conditions)
}

func TestTheMostImportantFindingsAreListed(t *testing.T) {
	withoutAge := zombieEntry("a", 0)
	withoutAge.Finding.Since = time.Time{}
	for name, row := range map[string]struct {
		rows []Entry
		want []string
	}{
		"higher severity first":               {[]Entry{suspiciousEntry("a", SeverityLow, -time.Hour), zombieEntry("b", 0), suspiciousEntry("c", SeverityMedium, 0)}, []string{"b", "c"}},
		"new findings first":                  {[]Entry{zombieEntry("a", 0), zombieEntry("b", -time.Hour), zombieEntry("c", -time.Minute)}, []string{"a", "c"}},
		"equal findings are ordered by UID":   {[]Entry{zombieEntry("c", 0), zombieEntry("b", 0), zombieEntry("a", 0)}, []string{"a", "b"}},
		"unknown age last":                    {[]Entry{withoutAge, zombieEntry("b", 0), zombieEntry("c", 0)}, []string{"b", "c"}},
		"listed findings are ordered by name": {[]Entry{zombieEntry("b", -time.Hour), zombieEntry("a", 0)}, []string{"a", "b"}},
		"healthy Jobs are not listed":         {[]Entry{healthyEntry("a"), healthyEntry("b"), healthyEntry("c")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := findingNames(scanEntries(v1alpha1.JobReportStatus{}, testTime, 2, row.rows...).Findings)
			assert.Equal(t, "findings", row.want, got)
		})
	}
}

func largestEntries(n int) []Entry {
	rows := make([]Entry, 0, n)
	for i := range n {
		row := zombieEntry(fmt.Sprintf("%s-%05d", strings.Repeat("j", 240), i), time.Duration(i%97)*time.Minute)
		row.Finding.Message = strings.Repeat("<&>", 85)
		row.Finding.Cause = strings.Repeat("<", MaxCauseBytes)
		rows = append(rows, row)
	}
	return rows
}

func TestFiveThousandZombiesFitInto64KiB(t *testing.T) {
	for _, top := range []int{0, 1, 50, MaxFindings, 100 * MaxFindings} {
		status := scanEntries(v1alpha1.JobReportStatus{}, testTime, top, largestEntries(5000)...)
		status = statusAfterFailure(status, Failure{v1alpha1.ReasonPartialList, strings.Repeat("<", 1000)}, testTime)
		size := len(encodeJSON(status))
		require.True(t, size <= MaxStatusBytes, "top %d: the status has %d bytes", top, size)
		require.True(t, status.Summary.Zombie == 5000 && status.Summary.Total == 5000 && status.Summary.ByReason["NeverStarted"] == 5000,
			"top %d: counts %+v", top, status.Summary)
		names := findingNames(status.Findings)
		require.True(t, len(names) <= min(top, MaxFindings) && slices.IsSorted(names), "top %d lists %d: %q", top, len(names), names)
	}
	five := largestEntries(5)
	size := len(encodeJSON(findingsThatFit(five, math.MaxInt)))
	exactly, less := len(findingsThatFit(five, size)), len(findingsThatFit(five, size-1))
	require.True(t, exactly == 5 && less == 4, "of 5 findings, %d fit in their size, and %d in a byte less", exactly, less)
}

func TestTheConditionTruncatedGivesTheReason(t *testing.T) {
	for name, row := range map[string]struct {
		top, jobs           int
		wantStatus          metav1.ConditionStatus
		wantReason, wantMsg string
	}{
		"all findings are listed":          {50, 50, "False", "AllFindings", "findings lists all Jobs that are not healthy"},
		"more findings than configured":    {50, 51, "True", "TooManyFindings", "findings lists 50 of 51 Jobs that are not healthy"},
		"more findings than fit in 64 KiB": {500, 501, "True", "TooBig", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rows := largestEntries(row.jobs)
			for i := range rows {
				if row.wantReason != "TooBig" {
					rows[i].Finding.Message, rows[i].Finding.Cause = "x", ""
				}
			}
			status := scanEntries(v1alpha1.JobReportStatus{}, testTime, row.top, rows...)
			got := conditionOrEmpty(&status, v1alpha1.ConditionTruncated)
			hasMessage := row.wantMsg == "" || got.Message == row.wantMsg
			require.True(t, got.Status == row.wantStatus && got.Reason == row.wantReason && hasMessage, "condition %+v", got)
		})
	}
}

func TestHeartbeatsAreSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	scannedAt := func(d time.Duration) *v1alpha1.JobReportStatus {
		return &v1alpha1.JobReportStatus{LastScanTime: new(metav1.NewTime(testTime.Add(d)))}
	}
	for i := range 100 {
		name := fmt.Sprintf("team-%d", i)
		beat := heartbeatInterval(name)
		require.True(t, beat >= 54*time.Minute && beat <= 66*time.Minute, "%s has a heartbeat every %s", name, beat)
		require.True(t, heartbeatInterval(name) == beat, "the interval of %s is not constant", name)
		seen[beat] = true
		assert.Equal(t, "write of a first time", WriteHeartbeat, compareStatus(name, &v1alpha1.JobReportStatus{}, scannedAt(0)))
		for after, want := range map[time.Duration]WriteReason{-1: WriteHeartbeat, 0: WriteUnchanged, beat - 1: WriteUnchanged, beat: WriteHeartbeat} {
			assert.Equal(t, fmt.Sprintf("write of %s, %s after the recorded time", name, after), want, compareStatus(name, scannedAt(0), scannedAt(after)))
		}
	}
	require.True(t, len(seen) >= 80, "only %d different intervals", len(seen))
}

func TestEventsReportConditionsOnly(t *testing.T) {
	none := v1alpha1.JobReportStatus{}
	good := scanEntries(none, testTime, 1, zombieEntry("a", 0))
	failed := statusAfterFailure(good, Failure{v1alpha1.ReasonForbidden, "no"}, testTime)
	failedOtherwise := statusAfterFailure(failed, Failure{v1alpha1.ReasonTimeout, "late"}, testTime)
	truncated := scanEntries(good, testTime, 1, zombieEntry("a", 0), zombieEntry("b", 0))
	for name, row := range map[string]struct {
		before, after v1alpha1.JobReportStatus
		want          []decision.Event
	}{
		"first scan":                {none, good, nil},
		"other findings":            {good, scanEntries(good, testTime, 1, zombieEntry("z", 0)), nil},
		"scan fails":                {good, failed, scanEvent("Warning", "ScanFailed", "Forbidden: no")},
		"scan fails again":          {failed, failed, nil},
		"other failure":             {failed, failedOtherwise, scanEvent("Warning", "ScanFailed", "Timeout: late")},
		"scan succeeds again":       {failed, good, scanEvent("Normal", "ScanRecovered", "all Jobs were scanned")},
		"findings are truncated":    {good, truncated, scanEvent("Normal", "Truncated", "findings lists 1 of 2 Jobs that are not healthy")},
		"findings are all included": {truncated, good, scanEvent("Normal", "NotTruncated", "findings lists all Jobs that are not healthy")},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, "events", row.want, transitionEvents(&row.before, &row.after))
		})
	}
}

func failedEntry(name, key string, position int64) Entry {
	row := suspiciousEntry(name, SeverityMedium, time.Duration(position)*time.Hour)
	row.Finding.Reason = ReasonBackoffLimitExceeded
	row.Series = []Series{{Key: key, Position: position}}
	return row
}

func succeededEntry(name, key string, position int64) Entry {
	row := healthyEntry(name)
	row.Series = []Series{{Key: key, Position: position, Supersedes: true}}
	return row
}

func rerunEntry(name, key string, position int64) Entry {
	row := failedEntry(name, key, position)
	row.Series[0].Supersedes = true
	return row
}

func TestAFailureIsHealthyOnceALaterJobSupersedesIt(t *testing.T) {
	withoutSeries, inTwoSeries := failedEntry("a", "k", 1), failedEntry("a", "k", 1)
	withoutSeries.Series, inTwoSeries.Series = nil, append(inTwoSeries.Series, Series{Key: "l", Position: 1})
	var many []Entry
	for i := range int64(3 * MaxFindings) {
		many = append(many, failedEntry(fmt.Sprintf("f-%d", i), "k", i))
	}
	deleting := failedEntry("a", "k", 1)
	deleting.Finding.Reason = ReasonStuckTerminating
	for name, row := range map[string]struct {
		rows []Entry
		want []string
	}{
		"a later success":                               {[]Entry{failedEntry("a", "k", 1), succeededEntry("b", "k", 2)}, nil},
		"a later success that is listed first":          {[]Entry{succeededEntry("a", "k", 2), failedEntry("b", "k", 1)}, nil},
		"an earlier success proves nothing":             {[]Entry{succeededEntry("a", "k", 1), failedEntry("b", "k", 2)}, []string{"b"}},
		"a simultaneous success proves nothing":         {[]Entry{failedEntry("a", "k", 1), succeededEntry("b", "k", 1)}, []string{"a"}},
		"a success of another series":                   {[]Entry{failedEntry("a", "k", 1), succeededEntry("b", "l", 2)}, []string{"a"}},
		"only failures before the success":              {[]Entry{failedEntry("a", "k", 1), failedEntry("c", "k", 3), succeededEntry("b", "k", 2)}, []string{"c"}},
		"the latest of several successes":               {[]Entry{succeededEntry("d", "k", 4), succeededEntry("b", "k", 2), failedEntry("c", "k", 3)}, nil},
		"a rerun that failed":                           {[]Entry{rerunEntry("a", "k", 1), rerunEntry("b", "k", 2)}, []string{"b"}},
		"two failed Jobs of the same run":               {[]Entry{rerunEntry("a", "k", 1), rerunEntry("b", "k", 1)}, []string{"a", "b"}},
		"a failed Job that cannot be deleted stays":     {[]Entry{deleting, succeededEntry("b", "k", 2)}, []string{"a"}},
		"a failed Job without a series is not affected": {[]Entry{withoutSeries, succeededEntry("b", "k", 2)}, []string{"a"}},
		"a success in the second of two series":         {[]Entry{inTwoSeries, succeededEntry("b", "l", 2)}, nil},
		"more failures than are kept":                   {append(slices.Clone(many), succeededEntry("z", "k", 1e6)), nil},
		"more failures than are kept, after a success":  {append([]Entry{succeededEntry("z", "k", 1e6)}, many...), nil},
	} {
		t.Run(name, func(t *testing.T) {
			status := scanEntries(v1alpha1.JobReportStatus{}, testTime, 50, row.rows...)
			assert.Equal(t, "findings", row.want, findingNames(status.Findings))
			require.True(t, int(status.Summary.Suspicious) == len(row.want) && int(status.Summary.Healthy) == len(row.rows)-len(row.want),
				"summary %+v", status.Summary)
			var all []Series
			for i := range row.rows {
				all = append(all, row.rows[i].Series...)
			}
			for _, one := range row.rows {
				isQuiet := one.Finding.Reason != "" && !slices.Contains(row.want, one.Name)
				require.True(t, one.IsSupersededBy(all) == isQuiet, "%s is superseded: want %t", one.Name, isQuiet)
			}
		})
	}
}

func TestAReportThatIsOnlyPrintedHasNoBoundOnItsSize(t *testing.T) {
	aggregator := NewAggregator(MaxFindings)
	for _, row := range largestEntries(MaxFindings) {
		aggregator.Add(row)
	}
	o := Observation{Report: &v1alpha1.JobReport{}, Scan: Scan{Jobs: aggregator, StartTime: testTime}, Now: testTime}
	got := len(Decide(o).Status.Findings)
	require.True(t, got < MaxFindings, "a stored report lists %d findings, want those that fit", got)
	o.Unstored = true
	status := Decide(o).Status
	if got := len(status.Findings); got != MaxFindings || meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionTruncated) {
		t.Errorf("%d findings, want all: %+v", got, status.Conditions)
	}
}

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
		"the next attempt at a step supersedes":                       {jobWith(sequence, run("2"), step, failedFor("X")), []Series{{"9", 2, true}, {"9/2/load", 2 * at, true}}},
		"a success ends the attempts at a step":                       {jobWith(sequence, run("2"), step, completedJob), []Series{{"9", 2, true}, {"9/2/load", 2*at + 1, true}}},
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
		"Argo CD tracks the application":                       {jobWith(generated, argoCD, tracked, failedFor("X")), []Series{{"hook/shop/PreSync/migrate-", at, false}}},
		"a later success with the same label supersedes":       {jobWith(imports, completedJob), []Series{{"label/import", at, true}}},
		"a label is in addition to the controller":             {jobWith(imports, cron, completedJob), []Series{{"label/import", at, true}, {"9", at, true}}},
		"a hook of an unknown application is in no series":     {jobWith(helm, completedJob), nil},
		"a hook of Argo CD with a fixed name is in no series":  {jobWith(argoCD, release, completedJob), nil},
		"another controller without a prefix is in no series":  {jobWith(workflow, completedJob), nil},
		"an AgenticSession of another project":                 {jobWith(session, ofAnotherProject, completedJob), nil},
		"a JobSet of another project":                          {jobWith(jobSet, ofAnotherProject, attempt("1")), nil},
		"a CronJob of another project":                         {jobWith(cron, ofAnotherProject, completedJob), nil},
		"a Job without a controller is in no series":           {jobWith(generated, completedJob), nil},
		"a step without the number of its run is in no series": {jobWith(sequence, failedFor("X")), nil},
		"an invalid number of attempts is in no series":        {jobWith(jobSet, attempt("many")), nil},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, "series", row.want, SeriesOf(row.job)) })
	}
}

func TestTheOwnerOfAJobIsWhatItStates(t *testing.T) {
	helm := func(job *batchv1.Job) {
		job.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "shop"}
	}
	run, nightly := controlledBy("SequentialJob"), labeled("yardmaster.dev/schedule", "nightly")
	for name, row := range map[string]struct {
		job  *batchv1.Job
		want string
	}{
		"a CronJob":                           {jobWith(controlledBy("CronJob")), "CronJob/owner"},
		"a SequentialJob":                     {jobWith(run), "SequentialJob/owner"},
		"a Schedule, by the label of its run": {jobWith(run, nightly), "Schedule/nightly"},
		"a Schedule of sessions":              {jobWith(controlledBy("AgenticSession"), labeled("yardmaster.dev/schedule", "review")), "Schedule/review"},
		"no Schedule of another project":      {jobWith(run, ofAnotherProject, nightly), "SequentialJob/owner"},
		"no Schedule of another controller":   {jobWith(controlledBy("CronJob"), nightly), "CronJob/owner"},
		"a JobSet, by its label":              {jobWith(labeled("jobset.sigs.k8s.io/jobset-name", "train")), "JobSet/train"},
		"an Argo Workflow, by its label":      {jobWith(labeled("workflows.argoproj.io/workflow", "etl-x7k2p")), "Workflow/etl-x7k2p"},
		"a Helm release, by its annotation":   {jobWith(annotated("meta.helm.sh/release-name", "shop")), "HelmRelease/shop"},
		"a Helm release, by labels of hooks":  {jobWith(helm), "HelmRelease/shop"},
		"no Helm release without its label":   {jobWith(labeled("app.kubernetes.io/instance", "shop")), ""},
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
		for j, severity := range []Severity{SeverityLow, SeverityHigh} {
			row := zombieEntry(fmt.Sprintf("job-%d-%d", i, j), time.Duration(i)*time.Hour)
			row.Finding.Severity, row.Finding.Message = severity, row.Name
			rows = append(rows, ownedBy(row, "CronJob", fmt.Sprintf("cron-%02d", i)))
		}
	}
	rows[1].Finding.Since = time.Time{} // an unknown age is not the oldest
	want := scanEntries(v1alpha1.JobReportStatus{}, testTime, 10, rows...)
	require.True(t, len(want.Groups) == MaxGroups && want.Groups[0].Owner.Name == fmt.Sprintf("cron-%02d", 2*MaxGroups), "groups %+v", want.Groups)
	groups := aggregate(10, rows...).Groups()
	require.True(t, groups[0].Severity == SeverityHigh && groups[0].Message == "job-59-0", "group %+v", groups[0])
	random := rand.New(rand.NewSource(1))
	for range 20 {
		random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		require.Equal(t, want, scanEntries(v1alpha1.JobReportStatus{}, testTime, 10, rows...))
		aggregator := aggregate(10, rows...)
		require.Equal(t, groups, aggregator.Groups())
		count, oldest := aggregator.Findings(CategoryZombie, ReasonNeverStarted)
		isComplete := int(count) == len(rows) && aggregator.Count(CategoryZombie) == count
		require.True(t, isComplete && oldest.Equal(testTime), "%d findings, the oldest since %s", count, oldest)
	}
}
