package zombie

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
)

// afflictions make a Job that is, a hundred days later, what the reason says.
var afflictions = map[Reason][]trait{
	Unknown:                  {mode("Sorted")},
	StuckTerminating:         {deletedAt(0, "x")},
	TTLNotEnforced:           {complete, ttl(0)},
	FailedLongAgo:            {failedFor("BackoffLimitExceeded")},
	BackoffLimitExceeded:     {failedFor("BackoffLimitExceeded"), controlledBy("CronJob")},
	DeadlineExceeded:         {failedFor("DeadlineExceeded"), controlledBy("CronJob")},
	PodFailurePolicy:         {failedFor("PodFailurePolicy"), controlledBy("CronJob")},
	MaxFailedIndexesExceeded: {failedFor("MaxFailedIndexesExceeded"), controlledBy("CronJob")},
	FailedIndexes:            {failedFor("FailedIndexes"), controlledBy("CronJob")},
	FailedOther:              {failedFor("X"), controlledBy("CronJob")},
	FinishedNotCleaned:       {complete},
	FailureTargetStuck:       {is(batchv1.JobFailureTarget, 0, "X", "")},
	SuccessCriteriaStuck:     {is(batchv1.JobSuccessCriteriaMet, 0, "X", "")},
	ExternallyManaged:        {managedBy("a.example/b")},
	SuspendedTooLong:         {suspend},
	NeverStarted:             {},
	PausedByParallelism:      {started, parallelism(0)},
	DeadlineNotEnforced:      {started, deadline(1)},
	NoActivePods:             {started},
	NoReadyPods:              {started, pods(1, 0)},
	RunningTooLong:           {started, pods(1, 1)},
	Orphaned:                 {started, pods(1, 1), deadline(1e9), scheduled},
}

func TestEachAfflictionIsWhatItSays(t *testing.T) {
	for _, reason := range Reasons() {
		traits, given := afflictions[reason]
		if !given {
			t.Errorf("no Job for %s", reason)
		}
		if got := Classify(jobWith(traits...), at(100*day), Defaults()).Reason; got != reason {
			t.Errorf("the Job for %s is %s", reason, got)
		}
	}
}

// pairs are Jobs that two rules have found, and the first of them wins. Left out are
// those that exclude each other.
var pairs = map[string]*batchv1.Job{
	"Unknown before StuckTerminating":                jobWith(mode("Sorted"), deletedAt(0, "x")),
	"Unknown before TTLNotEnforced":                  jobWith(mode("Sorted"), complete, ttl(0)),
	"Unknown before FailedLongAgo":                   jobWith(mode("Sorted"), failedFor("X")),
	"Unknown before BackoffLimitExceeded":            jobWith(mode("Sorted"), failedFor("BackoffLimitExceeded"), controlledBy("CronJob")),
	"Unknown before FinishedNotCleaned":              jobWith(mode("Sorted"), complete),
	"Unknown before FailureTargetStuck":              jobWith(mode("Sorted"), is(batchv1.JobFailureTarget, 0, "X", "")),
	"Unknown before SuccessCriteriaStuck":            jobWith(mode("Sorted"), is(batchv1.JobSuccessCriteriaMet, 0, "X", "")),
	"Unknown before ExternallyManaged":               jobWith(mode("Sorted"), managedBy("a.example/b")),
	"Unknown before SuspendedTooLong":                jobWith(mode("Sorted"), suspend),
	"Unknown before NeverStarted":                    jobWith(mode("Sorted")),
	"Unknown before PausedByParallelism":             jobWith(mode("Sorted"), started, parallelism(0)),
	"Unknown before DeadlineNotEnforced":             jobWith(mode("Sorted"), started, pods(1, 1), deadline(1)),
	"Unknown before NoActivePods":                    jobWith(mode("Sorted"), started, deadline(1e9)),
	"Unknown before NoReadyPods":                     jobWith(mode("Sorted"), started, pods(1, 0), deadline(1e9)),
	"Unknown before RunningTooLong":                  jobWith(mode("Sorted"), started, pods(1, 1)),
	"Unknown before Orphaned":                        jobWith(mode("Sorted"), scheduled),
	"StuckTerminating before FailedLongAgo":          jobWith(deletedAt(0, "x"), failedFor("X")),
	"StuckTerminating before FailedOther":            jobWith(deletedAt(0, "x"), failedFor("X"), controlledBy("CronJob")),
	"StuckTerminating before FinishedNotCleaned":     jobWith(deletedAt(0, "x"), complete),
	"TTLNotEnforced before FailedLongAgo":            jobWith(failedFor("X"), ttl(0)),
	"TTLNotEnforced before DeadlineExceeded":         jobWith(failedFor("DeadlineExceeded"), ttl(0), controlledBy("CronJob")),
	"TTLNotEnforced before Orphaned":                 jobWith(complete, ttl(0), scheduled),
	"FailedLongAgo before PodFailurePolicy":          jobWith(failedFor("PodFailurePolicy")),
	"FailedLongAgo before Orphaned":                  jobWith(failedFor("X"), scheduled),
	"FinishedNotCleaned before Orphaned":             jobWith(complete, scheduled),
	"FailureTargetStuck before ExternallyManaged":    jobWith(is(batchv1.JobFailureTarget, 0, "X", ""), managedBy("a.example/b")),
	"FailureTargetStuck before SuspendedTooLong":     jobWith(is(batchv1.JobFailureTarget, 0, "X", ""), suspend),
	"FailureTargetStuck before Orphaned":             jobWith(is(batchv1.JobFailureTarget, 0, "X", ""), started, pods(1, 1), deadline(1e9), scheduled),
	"SuccessCriteriaStuck before ExternallyManaged":  jobWith(is(batchv1.JobSuccessCriteriaMet, 0, "X", ""), managedBy("a.example/b")),
	"SuccessCriteriaStuck before SuspendedTooLong":   jobWith(is(batchv1.JobSuccessCriteriaMet, 0, "X", ""), suspend),
	"SuccessCriteriaStuck before Orphaned":           jobWith(is(batchv1.JobSuccessCriteriaMet, 0, "X", ""), started, pods(1, 1), deadline(1e9), scheduled),
	"ExternallyManaged before Orphaned":              jobWith(managedBy("a.example/b"), scheduled),
	"SuspendedTooLong before Orphaned":               jobWith(suspend, scheduled),
	"NeverStarted before PausedByParallelism":        jobWith(parallelism(0)),
	"NeverStarted before Orphaned":                   jobWith(scheduled),
	"PausedByParallelism before DeadlineNotEnforced": jobWith(started, parallelism(0), deadline(1)),
	"PausedByParallelism before Orphaned":            jobWith(started, parallelism(0), scheduled),
	"DeadlineNotEnforced before NoActivePods":        jobWith(started, deadline(1)),
	"DeadlineNotEnforced before NoReadyPods":         jobWith(started, pods(1, 0), deadline(1)),
	"DeadlineNotEnforced before Orphaned":            jobWith(started, pods(1, 1), deadline(1), scheduled),
	"NoActivePods before RunningTooLong":             jobWith(started),
	"NoActivePods before Orphaned":                   jobWith(started, deadline(1e9), scheduled),
	"NoReadyPods before RunningTooLong":              jobWith(started, pods(1, 0)),
	"NoReadyPods before Orphaned":                    jobWith(started, pods(1, 0), deadline(1e9), scheduled),
	"RunningTooLong before Orphaned":                 jobWith(started, pods(1, 1), scheduled),
	"FailedOther before Orphaned":                    recentlyFailed(scheduled),
}

// recentlyFailed is a Job whose failure is not long ago.
func recentlyFailed(more ...trait) *batchv1.Job {
	return jobWith(append(more, is(batchv1.JobFailed, 99*day, "X", ""))...)
}

func TestTheFirstRuleThatMatchesWins(t *testing.T) {
	for pair, job := range pairs {
		t.Run(pair, func(t *testing.T) {
			winner, loser, _ := strings.Cut(pair, " before ")
			matching := matches(job)
			if !slices.Contains(matching, Reason(loser)) {
				t.Errorf("it is not %s at all: %v", loser, matching)
			}
			if got := Classify(job, at(100*day), Defaults()).Reason; got != Reason(winner) {
				t.Errorf("it is %s, want %s", got, winner)
			}
		})
	}
}

// matches are the reasons of all rules that have found the Job, in their order.
func matches(job *batchv1.Job) []Reason {
	var found []Reason
	for _, rule := range rules {
		if finding, matches := rule(&facts{job, at(100 * day), Defaults()}); matches {
			found = append(found, finding.Reason)
		}
	}
	return found
}

// Jobs of every kind at once: no two rules meet that the table above has not got.
func TestNoPairOfRulesIsForgotten(t *testing.T) {
	ingredients := [][]trait{
		{mode("Sorted"), mode(batchv1.IndexedCompletion)},
		{deletedAt(0, "x")},
		{complete, failedFor("X"), is(batchv1.JobFailed, 99*day, "X", ""), is(batchv1.JobFailureTarget, 0, "X", ""), is(batchv1.JobSuccessCriteriaMet, 0, "X", "")},
		{ttl(0)},
		{controlledBy("CronJob")},
		{managedBy("a.example/b")},
		{suspend},
		{started},
		{parallelism(0)},
		{deadline(1), deadline(1e9)},
		{pods(1, 0), pods(1, 1)},
		{scheduled},
	}
	known := map[string]bool{}
	for pair := range pairs {
		known[class(pair)] = true
	}
	met := map[string]bool{}
	each(ingredients, nil, func(traits []trait) {
		found := matches(jobWith(traits...))
		for i, winner := range found {
			for _, loser := range found[i+1:] {
				met[class(fmt.Sprintf("%s before %s", winner, loser))] = true
			}
		}
	})
	if diff := cmp.Diff(known, met); diff != "" {
		t.Errorf("pairs (-in the table +that can be):\n%s", diff)
	}
}

// class takes the reasons of the rule for failures for one.
func class(pair string) string {
	for _, reason := range append(failures, FailedOther) {
		pair = strings.ReplaceAll(pair, string(reason), "Failed")
	}
	return pair
}

// each calls do with none or one of each ingredient, in all combinations.
func each(ingredients [][]trait, chosen []trait, do func([]trait)) {
	if len(ingredients) == 0 {
		do(chosen)
		return
	}
	each(ingredients[1:], chosen, do)
	for _, one := range ingredients[0] {
		each(ingredients[1:], append(slices.Clone(chosen), one), do)
	}
}

func TestReasonsAreInTheOrderOfTheRules(t *testing.T) {
	order := Reasons()
	for pair := range pairs {
		winner, loser, _ := strings.Cut(pair, " before ")
		if slices.Index(order, Reason(winner)) >= slices.Index(order, Reason(loser)) {
			t.Errorf("%s, but not so in Reasons", pair)
		}
	}
}
