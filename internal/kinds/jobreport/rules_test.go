package jobreport

import (
	"encoding/json"
	"math"
	"testing"
	"time"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

// The samples of the documentation show each rule on both sides of its thresholds; these are the Jobs next to it.
func TestEachRuleAppliesOnlyToItsJobs(t *testing.T) {
	failureTarget := trueConditionSince(batchv1.JobFailureTarget, 0, "", "")
	successCriteriaMet := trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "", "")
	statusAt := func(d time.Duration) jobTrait { return writtenAt(d, "status") }
	notFailed := jobCondition(batchv1.JobFailed, corev1.ConditionFalse, 0, "", "")
	notSuspended := func(job *batchv1.Job) { job.Spec.Suspend = new(false) }
	unreadableOptions := annotated(v1alpha1.AnnotationStepOptions, "{")
	failedLater := trueConditionSince(batchv1.JobFailed, 2*time.Hour, "X", "")
	failing := trueConditionSince(batchv1.JobFailureTarget, time.Hour, "X", "")
	completing := trueConditionSince(batchv1.JobSuccessCriteriaMet, time.Hour, "X", "")
	suspended := trueConditionSince(batchv1.JobSuspended, oneDay, "JobSuspended", "")
	resumed := jobCondition(batchv1.JobSuspended, corev1.ConditionFalse, 2*oneDay, "", "")
	for rule, rows := range map[string]map[string]classification{
		"no rule": {
			"just completed": {jobWith(startedJob, completedJob), time.Hour, "Healthy"},
			"no field set, not even the creation time": {&batchv1.Job{}, 1000 * oneDay, "Healthy"},
			"a creation time in the future":            {jobWith(), -time.Hour, "Healthy"},
		},
		"Unknown": {
			"complete with FailureTarget":              {jobWith(completedJob, failureTarget), 0, "Suspicious Unknown"},
			"failed with SuccessCriteriaMet":           {jobWith(failedFor("X"), successCriteriaMet), 0, "Suspicious Unknown"},
			"FailureTarget and SuccessCriteriaMet":     {jobWith(failureTarget, successCriteriaMet), 0, "Suspicious Unknown"},
			"a condition with status False is ignored": {jobWith(completedJob, notFailed), 0, "Healthy"},
			"an unknown completion mode":               {jobWith(completionMode("Sorted")), 0, "Suspicious Unknown"},
			"FailureTarget and failed":                 {jobWith(failureTarget, failedFor("DeadlineExceeded")), 0, "Suspicious DeadlineExceeded"},
		},
		"StuckTerminating": {
			"deleted an hour ago, no finalizer":         {jobWith(deletedAt(0)), time.Hour, "Zombie StuckTerminating"},
			"the age counts from the deletion":          {jobWith(deletedAt(oneDay, "x")), oneDay + time.Minute, "Healthy"},
			"other rules do not apply to a deleted Job": {jobWith(startedJob, deletedAt(2*oneDay)), 2*oneDay + time.Minute, "Healthy"},
			"the TTL does not apply to a deleted Job":   {jobWith(completedJob, ttlAfterFinished(0), deletedAt(2*oneDay)), 2*oneDay + time.Minute, "Healthy"},
			"a deleted Job that failed":                 {jobWith(failedFor("X"), deletedAt(time.Hour)), time.Hour, "Suspicious FailedOther"},
		},
		"TTLNotEnforced": {
			"a failed Job":               {jobWith(failedFor("X"), ttlAfterFinished(0)), time.Hour, "Suspicious TTLNotEnforced"},
			"a Job of a CronJob":         {jobWith(completedJob, ttlAfterFinished(0), controlledBy("CronJob")), oneDay, "Zombie TTLNotEnforced"},
			"an unfinished Job":          {jobWith(startedJob, podCounts(1, 1), ttlAfterFinished(0)), 2 * time.Hour, "Healthy"},
			"a condition without a time": {jobWith(completionTimeOnly(3*time.Hour), ttlAfterFinished(0)), 4 * time.Hour, "Suspicious TTLNotEnforced"},
		},
		"Failed": {
			"no reason":                          {jobWith(failedFor("")), 0, "Suspicious FailedOther"},
			"a reason that names a rule":         {jobWith(failedFor("NeverStarted")), 0, "Suspicious FailedOther"},
			"less than a week ago":               {jobWith(failedFor("DeadlineExceeded")), 7*oneDay - 1, "Suspicious DeadlineExceeded"},
			"long ago, of a CronJob":             {jobWith(failedFor("DeadlineExceeded"), controlledBy("CronJob")), 70 * oneDay, "Suspicious DeadlineExceeded"},
			"the age counts from the failure":    {jobWith(trueConditionSince(batchv1.JobFailed, 6*oneDay, "X", "")), 8 * oneDay, "Suspicious FailedOther"},
			"an owner that is not a controller":  {jobWith(failedFor("X"), withNonControllerOwner), 7 * oneDay, "Zombie FailedLongAgo"},
			"long ago, but with a TTL":           {jobWith(failedFor("X"), ttlAfterFinished(30*24*3600)), 29 * oneDay, "Suspicious FailedOther"},
			"a step whose failure is tolerated":  {jobWith(failedFor("X"), controlledBy("SequentialJob"), onFailure("Continue")), 0, "Healthy"},
			"a step whose failure stops the run": {jobWith(failedFor("X"), controlledBy("SequentialJob"), onFailure("Stop")), 0, "Suspicious FailedOther"},
			"a step with unreadable options":     {jobWith(failedFor("X"), controlledBy("SequentialJob"), unreadableOptions), 0, "Suspicious FailedOther"},
			"options of a step on another Job":   {jobWith(failedFor("X"), onFailure("Continue")), 0, "Suspicious FailedOther"},
		},
		"FinishedNotCleaned": {
			"the TTL controller will delete it":  {jobWith(completedJob, ttlAfterFinished(30*24*3600)), 7 * oneDay, "Healthy"},
			"its CronJob will delete it":         {jobWith(completedJob, controlledBy("CronJob")), 1000 * oneDay, "Healthy"},
			"an orphan is reported as an orphan": {jobWith(completedJob, createdByCronJob), 1000 * oneDay, "Suspicious Orphaned"},
		},
		"TargetConditionStuck": {
			"FailureTarget, then failed":        {jobWith(failing, failedLater), 8 * time.Hour, "Suspicious FailedOther"},
			"SuccessCriteriaMet, then complete": {jobWith(completing, completedJob), 8 * time.Hour, "Healthy"},
			"about to fail, needs no Pods":      {jobWith(startedJob, failing), 80 * time.Minute, "Healthy"},
			"about to complete, needs no Pods":  {jobWith(startedJob, completing), 80 * time.Minute, "Healthy"},
			"managed by another controller":     {jobWith(failing, managedByTrait("a.example/b")), 7 * time.Hour, "Zombie FailureTargetStuck"},
		},
		"ExternallyManaged": {
			"finished":                      {jobWith(managedByTrait("a.example/b"), completedJob), 2 * oneDay, "Healthy"},
			"managed by the Job controller": {jobWith(managedByTrait(batchv1.JobControllerName)), oneDay, "Zombie NeverStarted"},
			"no other rule":                 {jobWith(managedByTrait("a.example/b"), suspendedJob, startedJob, parallelism(0), activeDeadline(1)), oneDay - 1, "Healthy"},
		},
		"SuspendedTooLong": {
			"the age counts from the creation":         {jobWith(suspendedJob), 7 * oneDay, "Suspicious SuspendedTooLong"},
			"just suspended, not yet observed":         {jobWith(suspendedJob, startedJob, writtenAt(40*oneDay, "")), 40*oneDay + time.Second, "Healthy"},
			"resumed earlier and just suspended again": {jobWith(suspendedJob, resumed, writtenAt(40*oneDay, "")), 40*oneDay + time.Second, "Healthy"},
			"the start time is ignored":                {jobWith(suspendedJob, suspended, startedJob, podCounts(1, 0)), 7 * oneDay, "Healthy"},
			"finished":                                 {jobWith(suspendedJob, suspended, completedJob), 6 * oneDay, "Healthy"},
			"suspend is false":                         {jobWith(notSuspended, startedJob, podCounts(1, 1)), time.Hour, "Healthy"},
		},
		"NeverStarted": {
			"suspended":                             {jobWith(suspendedJob), oneDay, "Healthy"},
			"the age counts from the resumption":    {jobWith(resumed), 2*oneDay + time.Minute, "Healthy"},
			"just resumed, not yet observed":        {jobWith(suspended, writtenAt(2*oneDay, "")), 2*oneDay + time.Minute, "Healthy"},
			"a later change does not reset the age": {jobWith(writtenAt(2*oneDay, "")), 2*oneDay + time.Minute, "Zombie NeverStarted"},
		},
		"PausedByParallelism": {
			"the age counts from the last change":    {jobWith(startedJob, parallelism(0), writtenAt(6*oneDay, "")), 8 * oneDay, "Healthy"},
			"a status update does not reset the age": {jobWith(startedJob, parallelism(0), statusAt(6*oneDay)), 8 * oneDay, "Suspicious PausedByParallelism"},
			"having no Pods is intended":             {jobWith(startedJob, parallelism(0), podCounts(0, 0)), 2 * oneDay, "Healthy"},
		},
		"Orphaned": {
			"the CronJob exists":       {jobWith(createdByCronJob, controlledBy("CronJob")), 0, "Healthy"},
			"never a zombie":           {jobWith(createdByCronJob, completedJob, ttlAfterFinished(30*24*3600)), 29 * oneDay, "Suspicious Orphaned"},
			"deleted with its CronJob": {jobWith(createdByCronJob, deletedAt(0)), time.Minute, "Healthy"},
		},
		"DeadlineNotEnforced": {
			"it counts from the start":   {jobWith(startedAt(2*time.Hour), podCounts(1, 1), activeDeadline(3600)), 3 * time.Hour, "Healthy"},
			"not started":                {jobWith(activeDeadline(1)), 9 * time.Minute, "Healthy"},
			"suspended":                  {jobWith(suspendedJob, startedJob, activeDeadline(1)), time.Hour, "Healthy"},
			"failed at the deadline":     {jobWith(startedJob, activeDeadline(1), failedFor("DeadlineExceeded")), time.Hour, "Suspicious DeadlineExceeded"},
			"the maximum deadline":       {jobWith(startedJob, podCounts(1, 1), activeDeadline(math.MaxInt64)), 1000 * oneDay, "Healthy"},
			"overdue with parallelism 0": {jobWith(startedJob, parallelism(0), activeDeadline(1)), 2 * time.Hour, "Zombie DeadlineNotEnforced"},
		},
		"NoActivePods": {
			"some Pods are terminating":                  {jobWith(startedJob, podCounts(0, 0), terminatingPods(1)), time.Hour, "Healthy"},
			"no Pod is terminating":                      {jobWith(startedJob, terminatingPods(0)), time.Hour, "Suspicious NoActivePods"},
			"a recent status update between two Pods":    {jobWith(startedJob, activeDeadline(1e9), statusAt(2*oneDay)), 2*oneDay + time.Minute, "Healthy"},
			"no recent status update":                    {jobWith(startedJob, statusAt(2*oneDay)), 3 * oneDay, "Zombie NoActivePods"},
			"the age counts from the resumption":         {jobWith(startedAt(2*oneDay), statusAt(oneDay)), 2*oneDay + time.Minute, "Healthy"},
			"a change of the labels is no status update": {jobWith(startedJob, writtenAt(oneDay, "")), oneDay, "Zombie NoActivePods"},
			"the time of the last change is unknown":     {jobWith(startedAt(0), activeDeadline(1e9)), 30 * oneDay, "Healthy"},
		},
		"NoReadyPods": {
			"one of two Pods is ready":            {jobWith(startedJob, podCounts(2, 1)), time.Hour, "Healthy"},
			"no number of ready Pods":             {jobWith(startedJob, func(job *batchv1.Job) { job.Status.Active = 1 }), time.Hour, "Healthy"},
			"a failed Pod's successor waits":      {jobWith(startedJob, podCounts(1, 0), finishedPods(0, 1), statusAt(time.Hour)), 90 * time.Minute, "Suspicious NoReadyPods"},
			"some Pods succeeded, the rest waits": {jobWith(startedJob, podCounts(1, 0), finishedPods(3, 0), statusAt(time.Hour)), 25 * time.Hour, "Zombie NoReadyPods"},
			"a Pod was evicted just now":          {jobWith(startedJob, podCounts(1, 0), finishedPods(0, 1), statusAt(oneDay)), oneDay + time.Minute, "Suspicious RunningTooLong"},
			"a container restarts just now":       {jobWith(startedJob, activeDeadline(1e9), podCounts(1, 0), statusAt(30*oneDay)), 30*oneDay + time.Minute, "Healthy"},
			"an init container may work":          {jobWith(startedJob, podCounts(1, 0), initContainer(new(corev1.ContainerRestartPolicyNever))), 30 * oneDay, "Suspicious NoReadyPods"},
			"a native sidecar does not work":      {jobWith(startedJob, podCounts(1, 0), initContainer(new(corev1.ContainerRestartPolicyAlways))), oneDay, "Zombie NoReadyPods"},
			"one of two may have ended":           {jobWith(startedJob, podCounts(1, 0), containers(2)), 30 * oneDay, "Suspicious NoReadyPods"},
			"the last change is unknown":          {jobWith(startedAt(0), activeDeadline(1e9), podCounts(1, 0)), 30 * oneDay, "Healthy"},
		},
		"RunningTooLong": {
			"it has a deadline":                  {jobWith(startedJob, podCounts(1, 1), activeDeadline(365*24*3600)), 30 * oneDay, "Healthy"},
			"the age counts from the resumption": {jobWith(startedAt(7*oneDay), podCounts(1, 1)), 7*oneDay + time.Hour, "Healthy"},
		},
	} {
		t.Run(rule, func(t *testing.T) { checkClassification(t, rows) })
	}
}

func completionTimeOnly(d time.Duration) jobTrait {
	return func(job *batchv1.Job) {
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		job.Status.CompletionTime = new(metav1.NewTime(testTimePlus(d)))
	}
}

func onFailure(action string) jobTrait {
	return annotated(v1alpha1.AnnotationStepOptions, `{"onFailure":"`+action+`"}`)
}

func withNonControllerOwner(job *batchv1.Job) {
	job.OwnerReferences = []metav1.OwnerReference{{Kind: "Note", Name: "n"}}
}

func terminatingPods(n int32) jobTrait { return func(job *batchv1.Job) { job.Status.Terminating = &n } }

func TestSeverityOfJobsThatHaveEnded(t *testing.T) {
	for name, row := range map[string]struct {
		job  *batchv1.Job
		age  time.Duration
		want Severity
	}{
		"a new failure":               {jobWith(failedFor("X")), time.Hour, SeverityMedium},
		"an old failure":              {jobWith(failedFor("X")), 8 * oneDay, SeverityLow},
		"an old success":              {jobWith(completedJob), 8 * oneDay, SeverityLow},
		"a new failure of an orphan":  {jobWith(createdByCronJob, failedFor("X")), 0, SeverityMedium},
		"an old failure of an orphan": {jobWith(createdByCronJob, failedFor("X")), 8 * oneDay, SeverityHigh},
		"a new success of an orphan":  {jobWith(createdByCronJob, completedJob), 0, SeverityMedium},
		"an old success of an orphan": {jobWith(createdByCronJob, completedJob), 8 * oneDay, SeverityMedium},
	} {
		assert.Equal(t, "severity of "+name, row.want, Classify(row.job, testTimePlus(row.age), DefaultThresholds()).Severity)
	}
}

func initContainer(restart *corev1.ContainerRestartPolicy) jobTrait {
	return func(job *batchv1.Job) {
		job.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "init", RestartPolicy: restart}}
	}
}

func containers(count int) jobTrait {
	return func(job *batchv1.Job) { job.Spec.Template.Spec.Containers = make([]corev1.Container, count) }
}

func finishedPods(succeeded, failed int32) jobTrait {
	return func(job *batchv1.Job) { job.Status.Succeeded, job.Status.Failed = succeeded, failed }
}

func FuzzEveryJobHasAFinding(f *testing.F) {
	for _, sample := range readSamples(f) {
		raw, err := json.Marshal(sample.job)
		require.NoError(f, err)
		f.Add(raw, testTimePlus(100*oneDay).Unix())
	}
	f.Fuzz(func(t *testing.T, raw []byte, seconds int64) {
		job := &batchv1.Job{}
		if json.Unmarshal(raw, job) != nil {
			return
		}
		now := time.Unix(seconds, 0)
		finding := Classify(job, now, DefaultThresholds())
		problem := findingProblem(finding)
		require.True(t, problem == "", "%s: %+v", problem, finding)
		require.Equal(t, finding, Classify(job, now, DefaultThresholds()))
	})
}

func findingProblem(finding Finding) string {
	switch {
	case finding == (Finding{Category: CategoryHealthy}), finding == (Finding{Category: CategoryIgnored}):
		return ""
	case finding.Category == CategoryHealthy || finding.Category == CategoryIgnored:
		return "healthy or ignored, but other fields are set"
	case finding.Reason == "" || finding.Message == "":
		return "not healthy, but reason or message is missing"
	case finding.Category == CategoryZombie && finding.Severity != SeverityHigh && finding.Reason != ReasonFailedLongAgo:
		return "a zombie without high severity"
	case finding.Category == CategorySuspicious && (finding.Severity == SeverityLow) != (finding.Reason == ReasonFinishedNotCleaned):
		return "the wrong severity"
	case len(finding.Message) > MaxMessageBytes || len(finding.Cause) > MaxCauseBytes:
		return "too long"
	case !utf8.ValidString(finding.Message) || !utf8.ValidString(finding.Cause):
		return "invalid UTF-8"
	default:
		return ""
	}
}
