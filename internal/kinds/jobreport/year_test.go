package jobreport

import (
	"cmp"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

const (
	scanInterval = time.Hour
	oneYear      = 365 * oneDay
)

// A year of random Jobs is scanned every hour: failures, evictions, restarts, drains, suspensions, CronJobs and reruns, and among them Jobs
// that are stuck. REPORT_YEARS sets the number of years.
func TestInAYearOfJobsNoHealthyJobIsAZombieAndEachStuckJobIsFound(t *testing.T) {
	for seed := range testbuilder.NumberFromEnv(t, "REPORT_YEARS", 1) {
		t.Run(fmt.Sprintf("year %d", seed), func(t *testing.T) {
			year := newSimulatedYear(int64(seed))
			scans := 0
			for now := testTime; now.Before(testTime.Add(oneYear)); now = now.Add(scanInterval) {
				year.advance(now)
				if year.random.Intn(100) == 0 {
					year.status = statusAfterFailure(year.status, Failure{v1alpha1.ReasonTimeout, "late"}, now)
					continue
				}
				scans++
				for _, problem := range year.scan(now) {
					t.Errorf("%s: %s", now.Format(time.RFC3339), problem)
				}
				if t.Failed() {
					return
				}
			}
			for reason, threshold := range year.thresholds {
				require.True(t, threshold.Zombie <= 0 || year.found[reason] != 0, "no zombie was found with the reason %s", reason)
			}
			t.Logf("%d Jobs, %d scans, %d writes", len(year.jobs), scans, year.writes)
		})
	}
}

// simulatedYear is a namespace and its report.
type simulatedYear struct {
	random     *rand.Rand
	thresholds Thresholds
	jobs       []*simulatedJob // by creation
	// next is the index of the first Job that does not exist yet.
	next int
	live []*simulatedJob

	status v1alpha1.JobReportStatus
	writes int
	// found counts the stuck Jobs that were found, by reason.
	found map[Reason]int
}

// simulatedJob is a Job, its future, and what a scan must find.
type simulatedJob struct {
	*batchv1.Job

	// story names the generator of the Job.
	story   string
	changes []jobChange
	// end is the time when the Job is deleted.
	end time.Time
	// stuckFor is the reason of a Job that is stuck since stuckSince. Others are healthy.
	stuckFor   Reason
	stuckSince time.Time
	// quietFrom is the time from which a failed Job is superseded, if any.
	quietFrom time.Time
	wasFound  bool
}

type jobChange struct {
	at    time.Time
	apply func(*batchv1.Job)
}

// advance applies all changes until now.
func (y *simulatedYear) advance(now time.Time) {
	for y.next < len(y.jobs) && !y.jobs[y.next].CreationTimestamp.After(now) {
		y.live = append(y.live, y.jobs[y.next])
		y.next++
	}
	y.live = slices.DeleteFunc(y.live, func(job *simulatedJob) bool { return !job.end.After(now) })
	for _, job := range y.live {
		for len(job.changes) > 0 && !job.changes[0].at.After(now) {
			job.changes[0].apply(job.Job)
			job.changes = job.changes[1:]
		}
	}
}

// scan lists the Jobs in random order and returns what is wrong with the report.
func (y *simulatedYear) scan(now time.Time) []string {
	aggregator := NewAggregator(MaxFindings)
	for _, i := range y.random.Perm(len(y.live)) {
		aggregator.Add(NewEntry(y.live[i].Job, now, y.thresholds))
	}
	decision := decideOn(y.status, Scan{Jobs: aggregator, StartTime: now}, nil, now)
	if decision.Write != WriteUnchanged {
		y.writes++
	}
	y.status = decision.Status
	findings := map[string]*v1alpha1.JobFinding{}
	for i := range y.status.Findings {
		findings[y.status.Findings[i].Name] = &y.status.Findings[i]
	}
	var problems []string
	for _, job := range y.live {
		if problem := y.check(job, findings[job.Name], now); problem != "" {
			problems = append(problems, fmt.Sprintf("%s (%s): %s", job.Name, job.story, problem))
		}
	}
	summary := &y.status.Summary
	if int(summary.Total) != len(y.live) || summary.Total != summary.Healthy+summary.Suspicious+summary.Zombie+summary.Ignored {
		problems = append(problems, fmt.Sprintf("%d Jobs, but the summary is %+v", len(y.live), summary))
	}
	return problems
}

// check returns what is wrong with a Job's finding, which is nil if it has none.
func (y *simulatedYear) check(job *simulatedJob, finding *v1alpha1.JobFinding, now time.Time) string {
	if job.stuckFor == "" {
		switch {
		case finding == nil:
		case finding.Category == v1alpha1.JobZombie:
			return fmt.Sprintf("it is healthy, but a zombie: %s, %s", finding.Reason, finding.Message)
		case !job.quietFrom.IsZero() && !now.Before(job.quietFrom):
			return "it is superseded, but has the finding " + finding.Reason
		}
		return ""
	}
	threshold := y.thresholds[job.stuckFor]
	age := now.Sub(job.stuckSince)
	isZombie := finding != nil && finding.Category == v1alpha1.JobZombie && finding.Reason == string(job.stuckFor)
	switch {
	case age < 0:
		return ""
	case threshold.Suspicious > 0 && age >= threshold.Suspicious && finding == nil:
		return fmt.Sprintf("stuck for %s (%s), but without a finding", age, job.stuckFor)
	case age >= threshold.Zombie && !isZombie:
		return fmt.Sprintf("stuck for %s (%s), but not a zombie: %+v", age, job.stuckFor, finding)
	case isZombie && !job.wasFound:
		job.wasFound = true
		y.found[job.stuckFor]++
	}
	return ""
}

func newSimulatedYear(seed int64) *simulatedYear {
	y := &simulatedYear{random: rand.New(rand.NewSource(seed)), thresholds: DefaultThresholds(), found: map[Reason]int{}}
	for range 600 {
		y.addStandaloneJob(y.randomTime())
	}
	for range 150 {
		y.addStuckJob(y.randomTime())
	}
	for range 100 {
		y.addRerunSequence(y.randomTime())
		y.addRetriedStep(y.randomTime())
		y.addUnreadyJob(y.randomTime())
	}
	y.addRepeatedWork()
	y.addCronJob("hourly", 2*time.Hour)
	y.addCronJob("nightly", oneDay)
	slices.SortStableFunc(y.jobs, func(a, b *simulatedJob) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, job := range y.jobs {
		slices.SortStableFunc(job.changes, func(a, b jobChange) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	}
	return y
}

func (y *simulatedYear) randomTime() time.Time {
	return testTime.Add(time.Duration(y.random.Int63n(int64(oneYear))))
}

func (y *simulatedYear) between(low, high time.Duration) time.Duration {
	return low + time.Duration(y.random.Int63n(int64(high-low)))
}
