package jobreport

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

// testTime is the creation time of the Jobs.
var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type jobTrait func(*batchv1.Job)

func jobWith(traits ...jobTrait) *batchv1.Job {
	job := &batchv1.Job{}
	job.Name, job.Namespace, job.UID = "job", "ns", "1"
	job.CreationTimestamp = metav1.NewTime(testTime)
	for _, trait := range traits {
		trait(job)
	}
	return job
}

func testTimePlus(d time.Duration) time.Time { return testTime.Add(d) }

// startedJob starts the Job at its creation, which is also the last change of its status.
func startedJob(job *batchv1.Job) {
	startedAt(0)(job)
	writtenAt(0, "status")(job)
}

func startedAt(d time.Duration) jobTrait {
	return func(job *batchv1.Job) { job.Status.StartTime = new(metav1.NewTime(testTimePlus(d))) }
}

func podCounts(active, ready int32) jobTrait {
	return func(job *batchv1.Job) { job.Status.Active, job.Status.Ready = active, new(ready) }
}

func trueConditionSince(kind batchv1.JobConditionType, d time.Duration, reason, message string) jobTrait {
	return jobCondition(kind, corev1.ConditionTrue, d, reason, message)
}

func jobCondition(kind batchv1.JobConditionType, status corev1.ConditionStatus, d time.Duration, reason, message string) jobTrait {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(testTimePlus(d)),
		})
	}
}

var completedJob = trueConditionSince(batchv1.JobComplete, 0, "CompletionsReached", "done")

func failedFor(reason string) jobTrait {
	return trueConditionSince(batchv1.JobFailed, 0, reason, "it broke")
}

func deletedAt(d time.Duration, finalizers ...string) jobTrait {
	return func(job *batchv1.Job) {
		job.DeletionTimestamp, job.Finalizers = new(metav1.NewTime(testTimePlus(d))), finalizers
	}
}

func ttlAfterFinished(seconds int32) jobTrait {
	return func(job *batchv1.Job) { job.Spec.TTLSecondsAfterFinished = new(seconds) }
}

func activeDeadline(seconds int64) jobTrait {
	return func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(seconds) }
}

func suspendedJob(job *batchv1.Job) { job.Spec.Suspend = new(true) }
func parallelism(n int32) jobTrait  { return func(job *batchv1.Job) { job.Spec.Parallelism = new(n) } }

func managedByTrait(controller string) jobTrait {
	return func(job *batchv1.Job) { job.Spec.ManagedBy = new(controller) }
}

func controlledBy(kind string) jobTrait {
	return func(job *batchv1.Job) {
		job.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersions[kind], Kind: kind, Name: "owner", UID: "9", Controller: new(true)}}
	}
}

func ofAnotherProject(job *batchv1.Job) { job.OwnerReferences[0].APIVersion = "a.example/v1" }

var apiVersions = map[string]string{
	"CronJob": "batch/v1", "SequentialJob": "yardmaster.dev/v1alpha1", "AgenticSession": "yardmaster.dev/v1alpha1",
	"JobSet": "jobset.x-k8s.io/v1alpha2", "Workflow": "argoproj.io/v1alpha1",
}

func annotated(key, value string) jobTrait {
	return func(job *batchv1.Job) { metav1.SetMetaDataAnnotation(&job.ObjectMeta, key, value) }
}

func labeled(key, value string) jobTrait {
	return func(job *batchv1.Job) { metav1.SetMetaDataLabel(&job.ObjectMeta, key, value) }
}

var createdByCronJob = annotated(batchv1.CronJobScheduledTimestampAnnotation, "2026-03-01T12:00:00Z")

func writtenAt(d time.Duration, subresource string) jobTrait {
	return func(job *batchv1.Job) {
		job.ManagedFields = append(job.ManagedFields, metav1.ManagedFieldsEntry{Subresource: subresource, Time: new(metav1.NewTime(testTimePlus(d)))})
	}
}

// classification is a Job, its age and the expected category and reason.
type classification struct {
	job  *batchv1.Job
	at   time.Duration
	want string // "Zombie NeverStarted", or "Healthy"
}

func checkClassification(t *testing.T, rows map[string]classification) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			finding := Classify(row.job, testTimePlus(row.at), DefaultThresholds())
			got := strings.TrimSpace(string(finding.Category) + " " + string(finding.Reason))
			require.True(t, got == row.want, "got %s (%s), want %s", got, finding.Message, row.want)
			problem := findingProblem(finding)
			require.True(t, problem == "", "%s: %+v", problem, finding)
		})
	}
}

func TestFindingsHaveACauseAndAMessageOfOneLine(t *testing.T) {
	backoffLimit := func(job *batchv1.Job) { job.Spec.BackoffLimit = new(int32(6)) }
	limits := func(job *batchv1.Job) { job.Spec.BackoffLimit, job.Spec.Completions = new(int32(6)), new(int32(5)) }
	const deleted = "deleted at 2026-03-01T12:00:00Z, waiting for finalizer "
	queued := labeled("kueue.x-k8s.io/queue-name", "team-a")
	const wrongTime = `; the annotation yardmaster.dev/report-running-too-long is ignored: invalid duration "a week": use a value such as 90m, 12h or 7d`
	const wrongIgnore = "; the annotation yardmaster.dev/report-ignore is neither true nor false"
	running := []jobTrait{startedJob, podCounts(1, 1), annotated(v1alpha1.AnnotationReportRunningTooLong, "a week")}
	for name, row := range map[string]struct {
		job            *batchv1.Job
		cause, message string // the end of the message
	}{
		"backoff limit":            {jobWith(failedFor("BackoffLimitExceeded"), backoffLimit, finishedPods(0, 7)), "BackoffLimitExceeded", ": 7 failed, backoffLimit 6: it broke"},
		"completions":              {jobWith(failedFor("X"), limits, finishedPods(3, 2)), "X", ": 3 of 5 completions, 2 failed: it broke"},
		"nothing counted":          {jobWith(failedFor("BackoffLimitExceeded"), limits), "BackoffLimitExceeded", "Z: it broke"},
		"a message of two lines":   {jobWith(trueConditionSince(batchv1.JobFailed, 0, "X", "it\r\nbroke\x00")), "X", ": it  broke"},
		"a custom failure reason":  {jobWith(failedFor("StoppedByHand"), controlledBy("CronJob")), "StoppedByHand", "it broke"},
		"a FailureTarget":          {jobWith(trueConditionSince(batchv1.JobFailureTarget, 0, "PodFailurePolicy", "")), "PodFailurePolicy", ""},
		"the managing controller":  {jobWith(managedByTrait("a.example/b")), "a.example/b", ""},
		"contradictory conditions": {jobWith(completedJob, failedFor("")), "ContradictoryConditions", ""},
		"an unknown mode":          {jobWith(completionMode("Sorted")), "UnknownCompletionMode", ""},
		"a truncated finalizer":    {jobWith(deletedAt(0, strings.Repeat("x", 200))), strings.Repeat("x", MaxCauseBytes-3) + "…", ""},
		"foreground deletion":      {jobWith(deletedAt(0, "foregroundDeletion")), "foregroundDeletion", deleted + "foregroundDeletion: its Pods are not terminating"},
		"orphaned Pods":            {jobWith(deletedAt(0, "orphan")), "orphan", deleted + "orphan: its Pods still refer to it"},
		"several finalizers":       {jobWith(deletedAt(0, "a.example/b", "orphan")), "a.example/b", deleted + "a.example/b, orphan: its controller has not removed it"},
		"a queue of Kueue":         {jobWith(suspendedJob, queued), "Kueue", "queued by Kueue in team-a since 2026-03-01T12:00:00Z"},
		"no time in an annotation": {jobWith(running...), "", wrongTime},
		"no bool in an annotation": {jobWith(annotated(v1alpha1.AnnotationReportIgnore, "yes")), "", wrongIgnore},
	} {
		t.Run(name, func(t *testing.T) {
			got := Classify(row.job, testTimePlus(100*oneDay), DefaultThresholds())
			require.True(t, got.Cause == row.cause && strings.HasSuffix(got.Message, row.message), "%+v, want %q, %q", got, row.cause, row.message)
		})
	}
}

func TestThresholds(t *testing.T) {
	job := jobWith()
	for name, row := range map[string]struct {
		threshold Threshold
		want      Category
	}{
		"both thresholds exceeded":                                     {Threshold{time.Minute, time.Hour}, CategoryZombie},
		"only the first threshold exceeded":                            {Threshold{time.Minute, 3 * time.Hour}, CategorySuspicious},
		"no threshold exceeded":                                        {Threshold{3 * time.Hour, 4 * time.Hour}, CategoryHealthy},
		"zombie threshold disabled":                                    {Threshold{time.Minute, 0}, CategorySuspicious},
		"suspicious threshold disabled, zombie threshold not exceeded": {Threshold{0, 3 * time.Hour}, CategoryHealthy},
		"suspicious threshold disabled, zombie threshold exceeded":     {Threshold{0, time.Hour}, CategoryZombie},
		"both thresholds disabled":                                     {Threshold{}, CategoryHealthy},
	} {
		t.Run(name, func(t *testing.T) {
			thresholds := DefaultThresholds()
			*thresholds[ReasonNeverStarted] = row.threshold
			assert.Equal(t, "category", row.want, Classify(job, testTimePlus(2*time.Hour), thresholds).Category)
		})
	}
}

func TestSettingsCoverEveryDefaultThreshold(t *testing.T) {
	thresholds := DefaultThresholds()
	names := map[string]bool{}
	for _, setting := range thresholds.Settings() {
		require.True(t, !names[setting.Name], "%s exists twice", setting.Name)
		require.True(t, *setting.Value != 0, "%s has no default", setting.Name)
		names[setting.Name] = true
		*setting.Value = 0
	}
	for reason, threshold := range thresholds {
		require.True(t, *threshold == (Threshold{}), "%s cannot be set completely: %+v", reason, threshold)
	}
	require.NoError(t, thresholds.Validate()) // 0 means never
	defaults, changed := DefaultThresholds(), thresholds.Changed()
	require.True(t, len(changed) == len(names) && defaults.Changed() == nil, "changed are %q, by default %q", changed, defaults.Changed())
	require.Equal(t, thresholds, defaults.With(changed))
	require.Equal(t, DefaultThresholds(), defaults.With(map[string]string{"a-setting-of-another-version": "1h"}))
}

func TestNegativeThresholdsAreInvalid(t *testing.T) {
	thresholds := DefaultThresholds()
	require.NoError(t, thresholds.Validate())
	thresholds[ReasonNeverStarted].Zombie = -time.Second
	require.ErrorContains(t, thresholds.Validate(), "never-started-zombie-after is -1s")
}

func completionMode(name batchv1.CompletionMode) jobTrait {
	return func(job *batchv1.Job) { job.Spec.CompletionMode = new(name) }
}

func TestReportIgnore(t *testing.T) {
	ignore, invalid := annotated(v1alpha1.AnnotationReportIgnore, "true"), annotated(v1alpha1.AnnotationReportIgnore, "yes")
	long := deletedAt(0, strings.Repeat("x", MaxMessageBytes))
	checkClassification(t, map[string]classification{
		"no rule applies to the Job":         {jobWith(startedJob, deletedAt(0), ignore), 30 * oneDay, "Ignored"},
		"a healthy Job is counted as well":   {jobWith(ignore), 0, "Ignored"},
		"True and 1 are true":                {jobWith(annotated(v1alpha1.AnnotationReportIgnore, "True")), oneDay, "Ignored"},
		"any other value has no effect":      {jobWith(invalid), oneDay, "Zombie NeverStarted"},
		"a remark on the value fits":         {jobWith(long, invalid), oneDay, "Zombie StuckTerminating"},
		"the value false does not ignore it": {jobWith(annotated(v1alpha1.AnnotationReportIgnore, "false")), oneDay, "Zombie NeverStarted"},
	})
}

func TestReportRunningTooLong(t *testing.T) {
	running := func(limit string) []jobTrait {
		return []jobTrait{startedJob, podCounts(1, 1), annotated(v1alpha1.AnnotationReportRunningTooLong, limit)}
	}
	checkClassification(t, map[string]classification{
		"less than the stated time":       {jobWith(running("10d")...), 10*oneDay - 1, "Ignored"},
		"longer than the stated time":     {jobWith(running("10d")...), 10 * oneDay, "Suspicious RunningTooLong"},
		"never a zombie":                  {jobWith(running("10d")...), 1000 * oneDay, "Suspicious RunningTooLong"},
		"0 means never":                   {jobWith(running("0s")...), 1000 * oneDay, "Ignored"},
		"a shorter time than the default": {jobWith(running("1h")...), time.Hour, "Suspicious RunningTooLong"},
		"an invalid time has no effect":   {jobWith(running("a week")...), 7 * oneDay, "Zombie RunningTooLong"},
		"a negative time has no effect":   {jobWith(running("-1h")...), 7 * oneDay, "Zombie RunningTooLong"},
		"other rules still apply":         {jobWith(append(running("10d"), podCounts(1, 0))...), oneDay, "Zombie NoReadyPods"},
	})
}

func TestDurationsMayCountDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"7d": 7 * oneDay, "90m": 90 * time.Minute, "1d12h": 36 * time.Hour, "0": 0, "0s": 0, "36h": 36 * time.Hour, "1h30m5s": time.Hour + 30*time.Minute + 5*time.Second,
	} {
		got, err := ParseDuration(text)
		require.True(t, err == nil && got == want, "%q is %s, %v, want %s", text, got, err, want)
		again, err := ParseDuration(FormatDuration(want))
		require.True(t, err == nil && again == want, "%s is formatted as %q", want, FormatDuration(want))
	}
	for _, text := range []string{"", "d", "7", "7D", "1.5d", "-7d", "7d-1h", "a week", "1h7d", "99999999999999d", "d1h"} {
		got, err := ParseDuration(text)
		require.True(t, err != nil, "%q is accepted as %s", text, got)
	}
	for d, want := range map[time.Duration]string{
		7 * oneDay: "7d", 36 * time.Hour: "1d12h", 30 * time.Minute: "30m", time.Hour: "1h", 0: "0s", time.Hour + time.Second: "1h0m1s", 5 * time.Second: "5s",
	} {
		assert.Equal(t, d.String(), want, FormatDuration(d))
	}
}

// Combines all traits of Jobs. TestSamples compares the order of the reasons with that of the documentation.
func TestTheFirstRuleThatMatchesWins(t *testing.T) {
	traitGroups := [][]jobTrait{
		{completionMode("Sorted")},
		{deletedAt(0, "x")},
		{
			completedJob, failedFor("X"), trueConditionSince(batchv1.JobFailed, 99*oneDay, "X", ""),
			trueConditionSince(batchv1.JobFailureTarget, 0, "X", ""), trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "X", ""),
		},
		{ttlAfterFinished(0)},
		{controlledBy("CronJob")},
		{managedByTrait("a.example/b")},
		{suspendedJob},
		{startedJob},
		{parallelism(0)},
		{activeDeadline(1), activeDeadline(1e9)},
		{podCounts(1, 0), podCounts(1, 1)},
		{createdByCronJob},
	}
	order, thresholds := AllReasons(), DefaultThresholds()
	losers := map[Reason]bool{}
	forEachCombination(traitGroups, nil, func(traits []jobTrait) {
		job := jobWith(traits...)
		matching, want := matchingReasons(job, thresholds), Reason("")
		if len(matching) > 0 {
			slices.SortFunc(matching, func(a, b Reason) int { return slices.Index(order, a) - slices.Index(order, b) })
			want = matching[0]
			for _, loser := range matching[1:] {
				losers[loser] = true
			}
		}
		got := Classify(job, testTimePlus(100*oneDay), thresholds).Reason
		require.True(t, got == want, "got %s, but the rules %v match: %+v", got, matching, job)
	})
	require.True(t, len(losers) >= 15, "only %d rules match Jobs for which others win: %v", len(losers), losers)
}

func matchingReasons(job *batchv1.Job, thresholds Thresholds) []Reason {
	var found []Reason
	for i := range rules {
		threshold := ptr.Deref(thresholds[rules[i].key()], Threshold{})
		if finding := rules[i].check(&jobFacts{Job: job, now: testTimePlus(100 * oneDay), threshold: threshold}); finding != nil {
			found = append(found, finding.Reason)
		}
	}
	return found
}

func forEachCombination(traitGroups [][]jobTrait, chosen []jobTrait, do func([]jobTrait)) {
	if len(traitGroups) == 0 {
		do(chosen)
		return
	}
	forEachCombination(traitGroups[1:], chosen, do)
	for _, one := range traitGroups[0] {
		forEachCombination(traitGroups[1:], append(slices.Clone(chosen), one), do)
	}
}

func TestAFindingDependsOnlyOnTheJobAndItsCategory(t *testing.T) {
	for _, sample := range readSamples(t) {
		before := sample.job.DeepCopy()
		one := Classify(sample.job, testTimePlus(100*oneDay), DefaultThresholds())
		later := Classify(sample.job, testTimePlus(101*oneDay), DefaultThresholds())
		assert.Equal(t, "finding of "+string(sample.reason)+" a day later", one, later)
		assert.Equal(t, "unchanged Job of "+string(sample.reason), before, sample.job)
	}
}
