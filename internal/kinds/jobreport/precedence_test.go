package jobreport

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

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

func TestAFindingDependsOnlyOnTheJobAndItsCategory(t *testing.T) {
	for _, sample := range readSamples(t) {
		before := sample.job.DeepCopy()
		one := Classify(sample.job, testTimePlus(100*oneDay), DefaultThresholds())
		later := Classify(sample.job, testTimePlus(101*oneDay), DefaultThresholds())
		assert.Equal(t, "finding of "+string(sample.reason)+" a day later", one, later)
		assert.Equal(t, "unchanged Job of "+string(sample.reason), before, sample.job)
	}
}
