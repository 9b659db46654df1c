package jobreport

import (
	"cmp"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

type simulatedYear struct {
	random     *rand.Rand
	thresholds Thresholds
	jobs       []*simulatedJob // by creation
	next       int
	live       []*simulatedJob

	status v1alpha1.JobReportStatus
	writes int
	// found counts the stuck Jobs that were found, by reason.
	found map[Reason]int
}

// simulatedJob is a Job, its future, and what a scan must find.
type simulatedJob struct {
	*batchv1.Job

	story   string
	changes []jobChange
	end     time.Time // the time when the Job is deleted
	// stuckFor is the reason of a Job that is stuck since stuckSince. Others are healthy.
	stuckFor   Reason
	stuckSince time.Time
	quietFrom  time.Time // the time from which a failed Job is superseded, if any
	wasFound   bool
}

type jobChange struct {
	at    time.Time
	apply func(*batchv1.Job)
}

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

// addJob adds a Job that is created at this time and deleted long after the year.
func (y *simulatedYear) addJob(story string, at time.Time) *simulatedJob {
	name := fmt.Sprintf("job-%05d", len(y.jobs))
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(at)}}
	added := &simulatedJob{Job: job, story: story, end: testTime.Add(10 * oneYear)}
	y.jobs = append(y.jobs, added)
	return added
}

func (j *simulatedJob) change(at time.Time, apply func(*batchv1.Job)) {
	j.changes = append(j.changes, jobChange{at, apply})
}

// changeStatus schedules a change of the status, as the Job controller makes it.
func (j *simulatedJob) changeStatus(at time.Time, apply func(*batchv1.JobStatus)) {
	j.change(at, func(job *batchv1.Job) {
		apply(&job.Status)
		job.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Subresource: "status", Time: new(metav1.NewTime(at))}}
	})
}

func (j *simulatedJob) start(at time.Time) {
	j.changeStatus(at, func(s *batchv1.JobStatus) { s.StartTime = new(metav1.NewTime(at)) })
}

func (j *simulatedJob) setPods(at time.Time, active, ready, terminating, failed int32) {
	j.changeStatus(at, func(s *batchv1.JobStatus) {
		s.Active, s.Ready, s.Terminating, s.Failed = active, new(ready), new(terminating), s.Failed+failed
	})
}

func (j *simulatedJob) setCondition(at time.Time, kind batchv1.JobConditionType, reason string) {
	j.changeStatus(at, func(s *batchv1.JobStatus) {
		s.Conditions = append(s.Conditions, batchv1.JobCondition{Type: kind, Status: "True", Reason: reason, LastTransitionTime: metav1.NewTime(at)})
	})
}

func (j *simulatedJob) finish(at time.Time, kind batchv1.JobConditionType, reason string) {
	j.setPods(at, 0, 0, 0, 0)
	j.setCondition(at, kind, reason)
}

func (j *simulatedJob) setStep(sequence, run, options string) {
	j.setController(v1alpha1.GroupVersion.String(), "SequentialJob", sequence)
	j.Annotations = map[string]string{v1alpha1.AnnotationRun: run, v1alpha1.AnnotationStepOptions: options}
}

func (j *simulatedJob) setController(apiVersion, kind, name string) {
	j.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), Controller: new(true)}}
}

// run schedules a healthy run with random disturbances, from the start until the end of its last Pod, which it returns.
func (y *simulatedYear) run(job *simulatedJob, start time.Time, duration time.Duration) time.Time {
	job.start(start)
	job.setPods(start, 1, 0, 0, 0)
	ready := start.Add(y.between(time.Second, 40*time.Minute))
	job.setPods(ready, 1, 1, 0, 0)
	end := ready.Add(duration)
	for at := ready.Add(y.between(time.Minute, 2*oneDay)); at.Before(end); at = at.Add(y.between(time.Hour, 2*oneDay)) {
		back := at.Add(y.between(2*time.Minute, 5*time.Hour))
		switch y.random.Intn(4) {
		case 0: // a container restarts
			job.setPods(at, 1, 0, 0, 0)
		case 1: // the Pod is evicted, and its successor waits for a node
			job.setPods(at, 1, 0, 0, 1)
		case 2: // the node is drained
			job.setPods(at, 0, 0, 1, 0)
			job.setPods(at.Add(time.Minute), 1, 0, 0, 1)
		case 3: // a quota delays the successor
			job.setPods(at, 0, 0, 0, 1)
		}
		job.setPods(back, 1, 1, 0, 0)
		end = slices.MaxFunc([]time.Time{end, back.Add(time.Minute)}, time.Time.Compare)
	}
	return end
}

// addStandaloneJob adds a Job that nobody controls and that always makes progress.
func (y *simulatedYear) addStandaloneJob(at time.Time) {
	job := y.addJob("standalone", at)
	start := at.Add(y.between(0, time.Minute))
	if y.random.Intn(5) == 0 {
		start = y.suspend(job, at)
	}
	duration := y.between(time.Minute, 5*oneDay)
	switch y.random.Intn(5) {
	case 0:
		job.story, duration = "long, with a deadline", y.between(oneDay, 30*oneDay)
		job.Spec.ActiveDeadlineSeconds = new(int64(60 * oneDay / time.Second))
	case 1:
		job.story, duration = "long, with an annotation", y.between(oneDay, 30*oneDay)
		job.Annotations = map[string]string{v1alpha1.AnnotationReportRunningTooLong: "60d"}
	}
	end := y.run(job, start, duration)
	switch y.random.Intn(3) {
	case 0:
		job.Spec.TTLSecondsAfterFinished = new(int32(20 * oneDay / time.Second))
		job.finish(end, batchv1.JobFailed, "BackoffLimitExceeded")
		job.end = end.Add(20*oneDay + y.between(0, time.Minute))
	case 1:
		job.finish(end, batchv1.JobFailed, "BackoffLimitExceeded")
		job.end = end.Add(y.between(time.Hour, 7*oneDay-time.Hour)) // a user reads and deletes it
	default:
		job.finish(end, batchv1.JobComplete, "CompletionsReached")
		job.end = end.Add(y.between(time.Hour, 20*oneDay))
	}
}

// suspend schedules a suspension from the creation until the returned time.
func (y *simulatedYear) suspend(job *simulatedJob, at time.Time) time.Time {
	job.story = "suspended"
	job.Spec.Suspend = new(true)
	job.setCondition(at.Add(time.Second), batchv1.JobSuspended, "JobSuspended")
	resumed := at.Add(y.between(time.Hour, 29*oneDay))
	job.change(resumed, func(job *batchv1.Job) {
		job.Spec.Suspend = new(false)
		job.Status.Conditions[0].Status, job.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(resumed)
	})
	return resumed.Add(time.Second)
}

// addCronJob adds the Jobs of a CronJob, which keeps three successful runs and a failed one.
func (y *simulatedYear) addCronJob(name string, period time.Duration) {
	var succeeded, failed []*simulatedJob
	for at := testTime; at.Before(testTime.Add(oneYear)); at = at.Add(period) {
		job := y.addJob("run of CronJob "+name, at)
		job.setController("batch/v1", "CronJob", name)
		end := at.Add(y.between(time.Minute, period/2))
		job.start(at)
		job.setPods(at, 1, 1, 0, 0)
		if y.random.Intn(5) == 0 {
			job.finish(end, batchv1.JobFailed, "BackoffLimitExceeded")
			for _, before := range failed {
				before.end = end
			}
			failed = []*simulatedJob{job}
			continue
		}
		job.finish(end, batchv1.JobComplete, "CompletionsReached")
		for _, before := range failed {
			if before.quietFrom.IsZero() {
				before.quietFrom = end
			}
		}
		if succeeded = append(succeeded, job); len(succeeded) > 3 {
			succeeded[0].end, succeeded = end, succeeded[1:]
		}
	}
}

// addRerunSequence adds the Jobs of a SequentialJob whose second step fails, and is rerun. A third step may fail.
func (y *simulatedYear) addRerunSequence(at time.Time) {
	name := fmt.Sprintf("sequence-%05d", len(y.jobs))
	step := func(story string, at time.Time, run string, kind batchv1.JobConditionType, options string) (*simulatedJob, time.Time) {
		job := y.addJob(story, at)
		job.setStep(name, run, options)
		end := y.run(job, at, time.Hour)
		job.finish(end, kind, "BackoffLimitExceeded")
		return job, end
	}
	rerun := at.Add(y.between(2*oneDay, 20*oneDay))
	first, _ := step("step that is rerun", at, "1", batchv1.JobFailed, `{}`)
	first.quietFrom = rerun
	again, _ := step("rerun step", rerun, "2", batchv1.JobComplete, `{}`)
	tolerated, finished := step("tolerated step", rerun.Add(oneDay), "2", batchv1.JobFailed, `{"onFailure":"Continue"}`)
	tolerated.quietFrom = finished
	end := rerun.Add(y.between(2*oneDay, 30*oneDay))
	first.end, again.end, tolerated.end = end, end, end
}

// addRetriedStep adds the attempts at a step, of which the last one succeeds.
func (y *simulatedYear) addRetriedStep(at time.Time) {
	name := fmt.Sprintf("retried-%05d", len(y.jobs))
	var failed []*simulatedJob
	for attempt := range 3 {
		job := y.addJob("attempt at a step", at)
		job.setStep(name, "1", "{}")
		job.Labels = map[string]string{v1alpha1.LabelStep: "load"}
		end := y.run(job, at, y.between(time.Minute, 10*time.Hour))
		job.end = at.Add(30 * oneDay)
		if attempt == 2 {
			job.finish(end, batchv1.JobComplete, "CompletionsReached")
			return
		}
		job.finish(end, batchv1.JobFailed, "BackoffLimitExceeded")
		at = end.Add(y.between(time.Second, 20*oneDay))
		for _, before := range append(failed, job) {
			if before.quietFrom.IsZero() {
				before.quietFrom = at
			}
		}
		failed = append(failed, job)
	}
}

// addSeries adds Jobs that a change of the Job puts into one series, and of which every fourth fails. They are deleted after six days.
func (y *simulatedYear) addSeries(story string, period time.Duration, change func(job *simulatedJob, number int)) {
	var failed []*simulatedJob
	number := 0
	for at := testTime; at.Before(testTime.Add(oneYear)); at = at.Add(period) {
		number++
		job := y.addJob(story, at)
		change(job, number)
		end := at.Add(y.between(time.Minute, period/2))
		job.start(at)
		job.setPods(at, 1, 1, 0, 0)
		job.end = at.Add(6 * oneDay)
		if y.random.Intn(4) == 0 {
			job.finish(end, batchv1.JobFailed, "BackoffLimitExceeded")
			failed = append(failed, job)
			continue
		}
		job.finish(end, batchv1.JobComplete, "CompletionsReached")
		for _, before := range failed {
			before.quietFrom = end
		}
		failed = nil
	}
}

// addRepeatedWork adds the runs of Schedules, hooks of Helm and Argo CD, and the Jobs of a series that a user names.
func (y *simulatedYear) addRepeatedWork() {
	hook := func(annotation string) func(job *simulatedJob, number int) {
		return func(job *simulatedJob, number int) {
			job.Annotations = map[string]string{annotation: "PreSync"}
			job.Labels = map[string]string{labelInstance: "shop"}
			if annotation == annotationArgoCDHook {
				job.GenerateName = "migrate-"
			}
			job.Name = fmt.Sprintf("shop-%s-%d", strings.ReplaceAll(annotation, "/", "-"), number)
			job.UID = types.UID(job.Name)
		}
	}
	y.addSeries("hook of Helm", 2*oneDay, hook(annotationHelmHook))
	y.addSeries("hook of Argo CD", 2*oneDay, hook(annotationArgoCDHook))
	y.addSeries("named series", oneDay, func(job *simulatedJob, _ int) { job.Labels = map[string]string{v1alpha1.LabelReportSeries: "import"} })
	for _, kind := range []string{"SequentialJob", "AgenticSession"} {
		y.addSeries("run of a Schedule: "+kind, oneDay, func(job *simulatedJob, number int) {
			name := fmt.Sprintf("%s-%d", strings.ToLower(kind), number)
			job.setStep(name, "1", "{}")
			job.setController(v1alpha1.GroupVersion.String(), kind, name)
			job.Labels = map[string]string{v1alpha1.LabelSchedule: "nightly", v1alpha1.LabelStep: "load"}
		})
	}
}

// addUnreadyJob adds a Job that works while its Pod is not ready.
func (y *simulatedYear) addUnreadyJob(at time.Time) {
	job := y.addJob("init container at work", at)
	job.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "download"}}
	job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "train"}}
	if y.random.Intn(2) == 0 {
		job.story = "one of two containers has ended"
		job.Spec.Template.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "train"}, {Name: "warm-up"}}}
	}
	end := at.Add(y.between(time.Hour, 6*oneDay))
	job.start(at)
	job.setPods(at, 1, 0, 0, 0)
	job.finish(end, batchv1.JobComplete, "CompletionsReached")
	job.end = end.Add(oneDay)
}

// stuckStories make a Job stuck and return since when. The Job starts at its creation.
var stuckStories = map[Reason]func(*simulatedYear, *simulatedJob, time.Time) time.Time{
	ReasonNoReadyPods: func(y *simulatedYear, job *simulatedJob, at time.Time) time.Time {
		if y.random.Intn(2) == 0 {
			job.start(at)
			job.setPods(at, 1, 0, 0, 0) // never ready
			return at
		}
		end := y.run(job, at, y.between(time.Hour, 3*oneDay))
		job.setPods(end, 1, 0, 0, 1) // its successor fits no node
		return end
	},
	ReasonNoActivePods: func(y *simulatedYear, job *simulatedJob, at time.Time) time.Time {
		end := y.run(job, at, y.between(time.Hour, 3*oneDay))
		job.setPods(end, 0, 0, 0, 1)
		return end
	},
	ReasonNeverStarted: func(_ *simulatedYear, _ *simulatedJob, at time.Time) time.Time { return at },
	ReasonStuckTerminating: func(y *simulatedYear, job *simulatedJob, at time.Time) time.Time {
		end := y.run(job, at, time.Hour)
		job.change(end, func(job *batchv1.Job) {
			job.DeletionTimestamp, job.Finalizers = new(metav1.NewTime(end)), []string{"a.example/hold"}
		})
		return end
	},
	ReasonSuspendedTooLong: func(_ *simulatedYear, job *simulatedJob, at time.Time) time.Time {
		job.Spec.Suspend = new(true)
		job.setCondition(at, batchv1.JobSuspended, "JobSuspended")
		return at
	},
	ReasonRunningTooLong: func(_ *simulatedYear, job *simulatedJob, at time.Time) time.Time {
		job.start(at)
		job.setPods(at, 1, 1, 0, 0)
		return at
	},
	ReasonDeadlineNotEnforced: func(_ *simulatedYear, job *simulatedJob, at time.Time) time.Time {
		job.Spec.ActiveDeadlineSeconds = new(int64(3600))
		job.start(at)
		job.setPods(at, 1, 1, 0, 0)
		return at.Add(time.Hour)
	},
	ReasonTTLNotEnforced: func(y *simulatedYear, job *simulatedJob, at time.Time) time.Time {
		job.Spec.TTLSecondsAfterFinished = new(int32(60))
		end := y.run(job, at, time.Hour)
		job.finish(end, batchv1.JobComplete, "CompletionsReached")
		return end.Add(time.Minute)
	},
	ReasonFailedLongAgo: func(y *simulatedYear, job *simulatedJob, at time.Time) time.Time {
		end := y.run(job, at, time.Hour)
		job.finish(end, batchv1.JobFailed, "BackoffLimitExceeded")
		return end
	},
	ReasonFailureTargetStuck: func(y *simulatedYear, job *simulatedJob, at time.Time) time.Time {
		end := y.run(job, at, time.Hour)
		job.setCondition(end, batchv1.JobFailureTarget, "BackoffLimitExceeded")
		return end
	},
}

// addStuckJob adds a Job that never makes progress again, until somebody deletes it two hours after it became a zombie.
func (y *simulatedYear) addStuckJob(at time.Time) {
	var reasons []Reason
	for _, reason := range AllReasons() {
		if stuckStories[reason] != nil {
			reasons = append(reasons, reason)
		}
	}
	job := y.addJob("stuck", at)
	job.stuckFor = reasons[y.random.Intn(len(reasons))]
	job.stuckSince = stuckStories[job.stuckFor](y, job, at)
	job.end = job.stuckSince.Add(DefaultThresholds()[job.stuckFor].Zombie + 2*time.Hour)
}
