package jobreport

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
)

// traitsByReason are the traits of a Job that is classified with the reason after 100 days.
var traitsByReason = map[Reason][]jobTrait{
	ReasonUnknown:                  {completionMode("Sorted")},
	ReasonStuckTerminating:         {deletedAt(0, "x")},
	ReasonTTLNotEnforced:           {completedJob, ttlAfterFinished(0)},
	ReasonFailedLongAgo:            {failedFor("BackoffLimitExceeded")},
	ReasonBackoffLimitExceeded:     {failedFor("BackoffLimitExceeded"), controlledBy("CronJob")},
	ReasonDeadlineExceeded:         {failedFor("DeadlineExceeded"), controlledBy("CronJob")},
	ReasonPodFailurePolicy:         {failedFor("PodFailurePolicy"), controlledBy("CronJob")},
	ReasonMaxFailedIndexesExceeded: {failedFor("MaxFailedIndexesExceeded"), controlledBy("CronJob")},
	ReasonFailedIndexes:            {failedFor("FailedIndexes"), controlledBy("CronJob")},
	ReasonFailedOther:              {failedFor("X"), controlledBy("CronJob")},
	ReasonFinishedNotCleaned:       {completedJob},
	ReasonFailureTargetStuck:       {trueConditionSince(batchv1.JobFailureTarget, 0, "X", "")},
	ReasonSuccessCriteriaStuck:     {trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "X", "")},
	ReasonExternallyManaged:        {managedByTrait("a.example/b")},
	ReasonSuspendedTooLong:         {suspendedJob},
	ReasonNeverStarted:             {},
	ReasonPausedByParallelism:      {startedJob, parallelism(0)},
	ReasonDeadlineNotEnforced:      {startedJob, activeDeadline(1)},
	ReasonNoActivePods:             {startedJob},
	ReasonNoReadyPods:              {startedJob, podCounts(1, 0)},
	ReasonRunningTooLong:           {startedJob, podCounts(1, 1)},
	ReasonOrphaned:                 {startedJob, podCounts(1, 1), activeDeadline(1e9), createdByCronJob},
}

func TestEachReasonHasAMatchingJob(t *testing.T) {
	for _, reason := range AllReasons() {
		traits, found := traitsByReason[reason]
		if !found {
			t.Errorf("no Job for %s", reason)
		}
		if got := Classify(jobWith(traits...), testTimePlus(100*oneDay), DefaultThresholds()).Reason; got != reason {
			t.Errorf("the Job for %s is %s", reason, got)
		}
	}
}

// ambiguousPairs are Jobs that match two rules, of which the first applies. Pairs of rules that
// exclude each other are omitted.
var ambiguousPairs = map[string]*batchv1.Job{
	"Unknown before StuckTerminating":                jobWith(completionMode("Sorted"), deletedAt(0, "x")),
	"Unknown before TTLNotEnforced":                  jobWith(completionMode("Sorted"), completedJob, ttlAfterFinished(0)),
	"Unknown before FailedLongAgo":                   jobWith(completionMode("Sorted"), failedFor("X")),
	"Unknown before BackoffLimitExceeded":            jobWith(completionMode("Sorted"), failedFor("BackoffLimitExceeded"), controlledBy("CronJob")),
	"Unknown before FinishedNotCleaned":              jobWith(completionMode("Sorted"), completedJob),
	"Unknown before FailureTargetStuck":              jobWith(completionMode("Sorted"), trueConditionSince(batchv1.JobFailureTarget, 0, "X", "")),
	"Unknown before SuccessCriteriaStuck":            jobWith(completionMode("Sorted"), trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "X", "")),
	"Unknown before ExternallyManaged":               jobWith(completionMode("Sorted"), managedByTrait("a.example/b")),
	"Unknown before SuspendedTooLong":                jobWith(completionMode("Sorted"), suspendedJob),
	"Unknown before NeverStarted":                    jobWith(completionMode("Sorted")),
	"Unknown before PausedByParallelism":             jobWith(completionMode("Sorted"), startedJob, parallelism(0)),
	"Unknown before DeadlineNotEnforced":             jobWith(completionMode("Sorted"), startedJob, podCounts(1, 1), activeDeadline(1)),
	"Unknown before NoActivePods":                    jobWith(completionMode("Sorted"), startedJob, activeDeadline(1e9)),
	"Unknown before NoReadyPods":                     jobWith(completionMode("Sorted"), startedJob, podCounts(1, 0), activeDeadline(1e9)),
	"Unknown before RunningTooLong":                  jobWith(completionMode("Sorted"), startedJob, podCounts(1, 1)),
	"Unknown before Orphaned":                        jobWith(completionMode("Sorted"), createdByCronJob),
	"StuckTerminating before FailedLongAgo":          jobWith(deletedAt(0, "x"), failedFor("X")),
	"StuckTerminating before FailedOther":            jobWith(deletedAt(0, "x"), failedFor("X"), controlledBy("CronJob")),
	"StuckTerminating before FinishedNotCleaned":     jobWith(deletedAt(0, "x"), completedJob),
	"TTLNotEnforced before DeadlineExceeded":         jobWith(failedFor("DeadlineExceeded"), ttlAfterFinished(0), controlledBy("CronJob")),
	"TTLNotEnforced before Orphaned":                 jobWith(completedJob, ttlAfterFinished(0), createdByCronJob),
	"FailedLongAgo before PodFailurePolicy":          jobWith(failedFor("PodFailurePolicy")),
	"FailedLongAgo before Orphaned":                  jobWith(failedFor("X"), createdByCronJob),
	"FailureTargetStuck before ExternallyManaged":    jobWith(trueConditionSince(batchv1.JobFailureTarget, 0, "X", ""), managedByTrait("a.example/b")),
	"FailureTargetStuck before SuspendedTooLong":     jobWith(trueConditionSince(batchv1.JobFailureTarget, 0, "X", ""), suspendedJob),
	"FailureTargetStuck before Orphaned":             jobWith(trueConditionSince(batchv1.JobFailureTarget, 0, "X", ""), startedJob, podCounts(1, 1), activeDeadline(1e9), createdByCronJob),
	"SuccessCriteriaStuck before ExternallyManaged":  jobWith(trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "X", ""), managedByTrait("a.example/b")),
	"SuccessCriteriaStuck before SuspendedTooLong":   jobWith(trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "X", ""), suspendedJob),
	"SuccessCriteriaStuck before Orphaned":           jobWith(trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "X", ""), startedJob, podCounts(1, 1), activeDeadline(1e9), createdByCronJob),
	"ExternallyManaged before Orphaned":              jobWith(managedByTrait("a.example/b"), createdByCronJob),
	"SuspendedTooLong before Orphaned":               jobWith(suspendedJob, createdByCronJob),
	"NeverStarted before PausedByParallelism":        jobWith(parallelism(0)),
	"NeverStarted before Orphaned":                   jobWith(createdByCronJob),
	"PausedByParallelism before DeadlineNotEnforced": jobWith(startedJob, parallelism(0), activeDeadline(1)),
	"PausedByParallelism before Orphaned":            jobWith(startedJob, parallelism(0), createdByCronJob),
	"DeadlineNotEnforced before NoActivePods":        jobWith(startedJob, activeDeadline(1)),
	"DeadlineNotEnforced before NoReadyPods":         jobWith(startedJob, podCounts(1, 0), activeDeadline(1)),
	"DeadlineNotEnforced before Orphaned":            jobWith(startedJob, podCounts(1, 1), activeDeadline(1), createdByCronJob),
	"NoActivePods before RunningTooLong":             jobWith(startedJob),
	"NoActivePods before Orphaned":                   jobWith(startedJob, activeDeadline(1e9), createdByCronJob),
	"NoReadyPods before RunningTooLong":              jobWith(startedJob, podCounts(1, 0)),
	"NoReadyPods before Orphaned":                    jobWith(startedJob, podCounts(1, 0), activeDeadline(1e9), createdByCronJob),
	"RunningTooLong before Orphaned":                 jobWith(startedJob, podCounts(1, 1), createdByCronJob),
	"FailedOther before Orphaned":                    recentlyFailed(createdByCronJob),
}

// recentlyFailed returns a Job that failed a day before the classification.
func recentlyFailed(more ...jobTrait) *batchv1.Job {
	return jobWith(append(more, trueConditionSince(batchv1.JobFailed, 99*oneDay, "X", ""))...)
}

func TestTheFirstRuleThatMatchesWins(t *testing.T) {
	for pair, job := range ambiguousPairs {
		t.Run(pair, func(t *testing.T) {
			winner, loser, _ := strings.Cut(pair, " before ")
			matching := matchingReasons(job)
			if !slices.Contains(matching, Reason(loser)) {
				t.Errorf("it does not match %s: %v", loser, matching)
			}
			if got := Classify(job, testTimePlus(100*oneDay), DefaultThresholds()).Reason; got != Reason(winner) {
				t.Errorf("got %s, want %s", got, winner)
			}
		})
	}
}

var defaultThresholds = DefaultThresholds()

// matchingReasons returns the reasons of all rules that match the Job, in the order of the rules.
func matchingReasons(job *batchv1.Job) []Reason {
	var found []Reason
	for i := range rules {
		threshold := ptr.Deref(defaultThresholds[rules[i].key()], Threshold{})
		if finding := rules[i].check(&jobFacts{Job: job, now: testTimePlus(100 * oneDay), threshold: threshold}); finding != nil {
			found = append(found, finding.Reason)
		}
	}
	return found
}

// Combines all traits: every pair of rules that match the same Job must be in ambiguousPairs.
func TestAmbiguousPairsAreComplete(t *testing.T) {
	traitGroups := [][]jobTrait{
		{completionMode("Sorted"), completionMode(batchv1.IndexedCompletion)},
		{deletedAt(0, "x")},
		{completedJob, failedFor("X"), trueConditionSince(batchv1.JobFailed, 99*oneDay, "X", ""), trueConditionSince(batchv1.JobFailureTarget, 0, "X", ""), trueConditionSince(batchv1.JobSuccessCriteriaMet, 0, "X", "")},
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
	known := map[string]bool{}
	for pair := range ambiguousPairs {
		known[samplePairClass(pair)] = true
	}
	possible := map[string]bool{}
	forEachCombination(traitGroups, nil, func(traits []jobTrait) {
		found := matchingReasons(jobWith(traits...))
		for i, winner := range found {
			for _, loser := range found[i+1:] {
				possible[samplePairClass(fmt.Sprintf("%s before %s", winner, loser))] = true
			}
		}
	})
	if diff := cmp.Diff(known, possible); diff != "" {
		t.Errorf("pairs (-in the table +possible):\n%s", diff)
	}
}

// samplePairClass replaces all reasons of the rule for failures by one.
func samplePairClass(pair string) string {
	for _, reason := range append(jobControllerFailures, ReasonFailedOther) {
		pair = strings.ReplaceAll(pair, string(reason), "Failed")
	}
	return pair
}

// forEachCombination calls do with all combinations of at most one trait from each group.
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

func TestReasonsAreInTheOrderOfTheRules(t *testing.T) {
	order := AllReasons()
	for pair := range ambiguousPairs {
		winner, loser, _ := strings.Cut(pair, " before ")
		if slices.Index(order, Reason(winner)) >= slices.Index(order, Reason(loser)) {
			t.Errorf("%s, but AllReasons has another order", pair)
		}
	}
}
