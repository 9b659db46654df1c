package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
)

// simulation is an API server with one Schedule, and an operator that may crash between any two of its steps, and then
// knows only what the API server stored.
type simulation struct {
	t       *testing.T
	random  *rand.Rand
	now     time.Time
	version int
	stored  *v1alpha1.Schedule
	runs    []Run
	// created counts the runs that were created, by their names.
	created   map[string]int
	requested int64   // the number of times of all accepted requests
	epochs    []epoch // the timetables that applied
	// quota is exhausted, or the broker does not answer, until then.
	quotaUntil  time.Time
	clockOffset time.Duration // by how much the operator's clock was set
	// failed is the number of runs that failed, and counted that of failures that the status counted.
	failed, counted int32
	sent            map[string]time.Time // when the broker stored the messages that it recognizes, by their IDs
}

// epoch is a timetable, and the time until which its times were decided.
type epoch struct {
	timetable v1alpha1.ScheduleTimetable
	until     time.Time
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	random := rand.New(rand.NewPCG(seed, seed))
	s := newSchedule(func(s *v1alpha1.Schedule) {
		s.Spec.Schedule, s.Spec.TimeZone = randomExpressions(random), pick(random, zones)
		s.Spec.When = pick(random, conditions)
		s.Spec.SuspendAfterFailures = pick(random, []*int32{nil, new(1 + random.Int32N(4))})
		s.Spec.ConcurrencyPolicy = pick(random, []v1alpha1.ScheduleConcurrency{"", v1alpha1.ConcurrencyAllow, v1alpha1.ConcurrencyForbid, v1alpha1.ConcurrencyReplace})
		s.Spec.CatchUp = pick(random, []v1alpha1.ScheduleCatchUp{"", v1alpha1.CatchUpNone, v1alpha1.CatchUpLatest, v1alpha1.CatchUpAll})
		s.Spec.Jitter = pick(random, []*v1alpha1.Duration{nil, v1alpha1.NewDuration(time.Duration(1 + random.Int64N(int64(time.Hour))))})
		s.Spec.StartingDeadlineSeconds = pick(random, []*int64{nil, new(1 + random.Int64N(7200))})
		s.Spec.SuccessfulRunsHistoryLimit, s.Spec.FailedRunsHistoryLimit = new(random.Int32N(3)), new(random.Int32N(3))
		if seed%3 == 0 {
			s.Spec.SequentialJob, s.Spec.ConcurrencyPolicy, s.Spec.SuspendAfterFailures = nil, v1alpha1.ConcurrencyAllow, nil
			s.Spec.Message = &v1alpha1.ScheduledMessage{QueueRef: v1alpha1.LocalReference{Name: "billing"}}
		}
	})
	return &simulation{t: t, random: random, now: created, stored: s, created: map[string]int{}, sent: map[string]time.Time{}}
}

var (
	expressions = []string{"30 2 * * *", "0 * * * *", "15 1,2,3 * * *", "0 0 29 2 *", "*/20 2 * * 0", "0 0 1 * *", "45 23 31 * *", "0 3 * * MON-FRI"}
	zones       = []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata"}
	// conditions are values of spec.when. Some fail without a run that has ended, or after the broker was away.
	conditions = []string{
		"", "", onEvenDays, "runs.size() == 0 || runs[0].succeeded || scheduledTime - runs[0].endTime > duration('3h')",
		"runs[0].succeeded || scheduledTime.getHours() < 12", "active == 0", "runs.exists(run, run.scheduledTime == scheduledTime) || runs.size() < 2",
	}
)

const onEvenDays = "scheduledTime.getDate() % 2 == 0"

func randomExpressions(random *rand.Rand) string {
	if random.IntN(3) == 0 {
		return pick(random, expressions) + "; " + pick(random, expressions)
	}
	return pick(random, expressions)
}

func pick[T any](random *rand.Rand, values []T) T { return values[random.IntN(len(values))] }
func (s *simulation) chance(percent int) bool     { return s.random.IntN(100) < percent }

func (s *simulation) run(end time.Time) {
	var operator *v1alpha1.Schedule // what the operator read; nil after a crash
	for s.now.Before(end) {
		s.disturb()
		if operator == nil || s.chance(80) {
			operator = s.stored.DeepCopy()
		}
		wait, crashed := s.pass(operator, func() bool { return s.chance(3) })
		switch {
		case crashed:
			operator = nil
			s.advance(time.Duration(s.random.IntN(3*3600)) * time.Second)
		case s.chance(2): // away
			operator = nil
			s.advance(time.Duration(s.random.IntN(10*24*3600)) * time.Second)
		default:
			s.advance(wait)
		}
	}
	s.stored.Spec.Suspend, s.stored.Spec.SuspendAfterFailures = false, nil
	s.settle()
}

// settle lets the operator work undisturbed, while runs end, until it has stored nothing for a while.
func (s *simulation) settle() {
	s.quotaUntil = time.Time{}
	for idle := 0; idle < 30; idle++ {
		before := s.version
		s.endRuns(100)
		s.pass(s.stored.DeepCopy(), func() bool { return false })
		s.now = s.now.Add(time.Second)
		if s.version != before {
			idle = 0
		}
	}
}

// advance moves the clock to the next decision; timers end up to an hour later, so that years pass in a short time.
func (s *simulation) advance(wait time.Duration) {
	if next := s.stored.Status.NextScheduleTime; wait == maxRequeue && next != nil && !s.stored.Spec.Suspend {
		wait = max(next.Sub(s.now), time.Minute)
	}
	if request := s.stored.Status.Rerun; request != nil && request.Left > 0 {
		wait = min(wait, 10*time.Minute) // until its next run can start
	}
	if s.stored.Spec.Suspend || s.isStopped() {
		wait = time.Duration(s.random.IntN(48*3600)) * time.Second
	}
	s.now = s.now.Add(max(wait, 10*time.Millisecond))
	if s.chance(1) {
		step := time.Duration(s.random.IntN(7200)-3600) * time.Second
		s.now, s.clockOffset = s.now.Add(step), s.clockOffset+step // the clock is set
	}
}

// isStopped reports whether the operator starts no times because too many runs have failed.
func (s *simulation) isStopped() bool {
	limit := s.stored.Spec.SuspendAfterFailures
	return limit != nil && s.stored.Status.Failures >= *limit
}

func (s *simulation) disturb() {
	s.endRuns(40)
	spec := &s.stored.Spec
	switch event := s.random.IntN(100); {
	case event == 0:
		spec.Suspend = !spec.Suspend
		s.changed()
	case event < 20 && spec.Suspend:
		spec.Suspend = false
		s.changed()
	case event < 10 && s.isStopped():
		spec.Suspend = true
		s.changed()
	case event == 20:
		spec.Schedule, spec.TimeZone, spec.When = randomExpressions(s.random), pick(s.random, zones), pick(s.random, conditions)
		s.changed()
	case event == 21:
		s.quotaUntil = s.now.Add(time.Duration(s.random.IntN(4*3600)) * time.Second)
	case event == 22:
		spec.Rerun = nil
		s.changed()
	case event == 23, event == 24:
		spec.Rerun = &v1alpha1.ScheduleRerun{Rerun: v1alpha1.Rerun{ID: strconv.Itoa(s.random.IntN(1000))}}
		if s.chance(60) { // of another time, which may not have come
			spec.Rerun.From = apiTime(s.now.Add(-time.Duration(s.random.IntN(20*24*3600)-3600) * time.Second))
		}
		if spec.Rerun.From != nil && s.chance(40) {
			spec.Rerun.To = apiTime(spec.Rerun.From.Add(time.Duration(s.random.IntN(10*24*3600)) * time.Second))
		}
		s.changed()
	}
}

func (s *simulation) changed() {
	s.version++
	s.stored.ResourceVersion = strconv.Itoa(s.version)
}

// endRuns ends active runs with this chance, and completes deletions.
func (s *simulation) endRuns(percent int) {
	kept := s.runs[:0:0]
	for _, run := range s.runs {
		if !run.IsFinished && s.chance(percent) {
			run.IsFinished, run.HasSucceeded, run.CompletionTime = true, s.chance(70), s.now
			if !run.HasSucceeded {
				s.failed++
			}
		}
		if !run.IsDeleted || !run.IsFinished {
			kept = append(kept, run)
		}
	}
	s.runs = kept
}

// pass is one pass of the operator, as the controller makes it. It may crash after each of its requests.
func (s *simulation) pass(read *v1alpha1.Schedule, crash func() bool) (wait time.Duration, crashed bool) {
	observation := Observation{Schedule: read, Runs: s.observedRuns(), Now: s.now, Answers: map[string]*Run{}}
	for range 5 {
		decision := Decide(observation)
		for decision.Question != "" {
			observation.Answers[decision.Question] = findRun(s.runs, decision.Question)
			decision = Decide(observation)
		}
		if read.ResourceVersion != s.stored.ResourceVersion {
			return time.Millisecond, false // a conflict
		}
		if decision.StatusChanged {
			s.store(&decision.Status)
		}
		if crash() {
			return 0, true
		}
		s.deleteRuns(decision.DeleteRuns)
		if decision.CreateRun == nil {
			return decision.RequeueAfter, false
		}
		observation = Observation{Schedule: s.stored.DeepCopy(), Runs: s.observedRuns(), Now: s.now, Answers: map[string]*Run{}}
		if s.stored.Spec.Message != nil {
			s.send(&decision, &observation)
			read = observation.Schedule
			if crash() {
				return 0, true
			}
			continue
		}
		created, refusal := s.create(decision.CreateRun)
		if observation.Refusal = refusal; created != nil && !slices.ContainsFunc(observation.Runs, func(run Run) bool { return run.UID == created.UID }) {
			observation.Runs = append(observation.Runs, *created)
		}
		read = observation.Schedule
		if crash() {
			return 0, true
		}
	}
	return time.Millisecond, false
}

// observedRuns are the runs in the operator's cache: the newest may be missing. It may be missing for long only while the status
// does not count it as started, because that needs its observation.
func (s *simulation) observedRuns() []Run {
	runs := append([]Run(nil), s.runs...)
	if len(runs) == 0 {
		return nil
	}
	newest := runs[len(runs)-1]
	last := s.stored.Status.LastScheduleTime
	isCounted := s.stored.Status.Pending == nil && (newest.RerunID != "" || last != nil && !newest.ScheduledTime.After(last.Time))
	if s.chance(20) && (!isCounted || s.now.Sub(newest.CreationTime) < time.Second) {
		runs = runs[:len(runs)-1]
	}
	return runs
}

func (s *simulation) store(status *v1alpha1.ScheduleStatus) {
	before := s.stored.Status
	last := before.LastScheduleTime
	require.True(s.t, last == nil || !status.LastScheduleTime.Before(last), "lastScheduleTime moved from %s back to %s", last, status.LastScheduleTime)
	s.counted += max(status.Failures-before.Failures, 0)
	require.True(s.t, s.counted <= s.failed, "%d failures are counted of %d", s.counted, s.failed)
	if request := status.Rerun; request != nil && (before.Rerun == nil || before.Rerun.ID != request.ID) {
		s.accepted()
	}
	s.stored.Status = *status.DeepCopy()
	s.changed()
	if status.Timetable == nil {
		return
	}
	if len(s.epochs) == 0 || s.epochs[len(s.epochs)-1].timetable != *status.Timetable {
		s.epochs = append(s.epochs, epoch{timetable: *status.Timetable})
	}
	current := &s.epochs[len(s.epochs)-1]
	if last := status.LastScheduleTime; last != nil && last.After(status.Timetable.Since.Time) {
		current.until = last.Time
	}
}

func (s *simulation) accepted() {
	wanted, times := s.stored.Spec.Rerun, int64(1)
	if wanted.To != nil {
		timetable, err := NewTimetable(s.stored.Spec.Cron)
		require.NoError(s.t, err)
		times = 0
		for due := timetable.Next(wanted.From.Add(-time.Second)); !due.IsZero() && !due.After(wanted.To.Time); due = timetable.Next(due) {
			times++
		}
	}
	s.requested += times
}

func (s *simulation) deleteRuns(runs []Run) {
	for _, run := range runs {
		if found := findRun(s.runs, run.Name); found != nil {
			found.IsDeleted = true
		}
	}
}

// create creates a run, or finds that it exists, or refuses it.
func (s *simulation) create(pending *v1alpha1.ScheduledRun) (*Run, *decision.Refusal) {
	if existing := findRun(s.runs, pending.Name); existing != nil {
		return existing, nil
	}
	if s.now.Before(s.quotaUntil) {
		return nil, &decision.Refusal{Class: decision.QuotaExceeded, Message: "exceeded quota"}
	}
	due, spec := pending.ScheduledTime.UTC(), &s.stored.Spec
	s.created[pending.Name]++
	require.Equal(s.t, 1, s.created[pending.Name])
	isRequested, mustMeet := pending.RerunID != "", spec.When == onEvenDays && s.mustMeetCondition(pending)
	isWithdrawn := isRequested && (spec.Rerun == nil || spec.Rerun.ID != pending.RerunID)
	require.True(s.t, !isWithdrawn, "the time %s of request %s ran after it was withdrawn", due, pending.RerunID)
	isSuspended := spec.Suspend && (!isRequested || spec.Rerun.To != nil)
	require.True(s.t, !isSuspended, "the time %s, requested by %q, ran although the Schedule is suspended", due, pending.RerunID)
	require.True(s.t, isRequested || !s.isStopped(), "the time %s ran after %d failures", due, s.stored.Status.Failures)
	require.True(s.t, !mustMeet || due.Day()%2 == 0, "the time %s ran although spec.when is false", due)
	s.checkConcurrency(due)
	s.runs = append(s.runs, Run{Name: pending.Name, UID: types.UID(pending.Name), ScheduledTime: due, RerunID: pending.RerunID, CreationTime: s.now})
	return &s.runs[len(s.runs)-1], nil
}

// mustMeetCondition reports whether a run may only start if spec.when is true. That of a time that was recorded before spec.when
// changed may start.
func (s *simulation) mustMeetCondition(pending *v1alpha1.ScheduledRun) bool {
	isTriggered := pending.RerunID != "" && s.stored.Spec.Rerun.To == nil
	return !isTriggered && s.epochs[len(s.epochs)-1].timetable.Cron == s.stored.Spec.Cron && s.stored.Status.Pending == nil
}

// send sends a message to a broker that recognizes it for deduplicateFor, may not answer, and may answer although it has stored nothing.
func (s *simulation) send(d *Decision, observation *Observation) {
	id := d.CreateRun.Name
	isAway := s.now.Before(s.quotaUntil)
	if isAway && s.chance(50) {
		if d.IsFirstAttempt {
			observation.NotSent = &decision.Problem{Reason: "Unavailable", Message: "the connection is refused"}
		}
		return
	}
	if stored, found := s.sent[id]; !found || s.brokerNow().Sub(stored) > deduplicateFor {
		s.created[id]++
		s.sent[id] = s.brokerNow()
	}
	require.True(s.t, s.created[id] <= 1, "the job of %s was stored twice", d.CreateRun.ScheduledTime)
	observation.Sent = !isAway
}

// brokerNow is the time of the broker, whose clock nobody sets.
func (s *simulation) brokerNow() time.Time { return s.now.Add(-s.clockOffset) }

func (s *simulation) checkConcurrency(due time.Time) {
	policy := s.stored.Spec.ConcurrencyPolicy
	for _, run := range s.runs {
		isAllowed := policy != v1alpha1.ConcurrencyForbid && policy != v1alpha1.ConcurrencyReplace
		require.True(s.t, run.IsFinished || isAllowed, "the run of %s starts while that of %s is active", due, run.ScheduledTime)
	}
}

// check compares the times that started and were missed with those that were due.
func (s *simulation) check() {
	status, dueTimes, left := s.stored.Status, int64(0), int64(0)
	if status.Rerun != nil {
		left = int64(status.Rerun.Left)
	}
	for i, e := range s.epochs {
		timetable, err := NewTimetable(e.timetable.Cron)
		require.NoError(s.t, err)
		until := e.until
		if i+1 < len(s.epochs) {
			until = s.epochs[i+1].timetable.Since.Time // all times before the change must be decided
		}
		for due := timetable.Next(e.timetable.Since.Time); !due.IsZero() && !due.After(until); due = timetable.Next(due) {
			dueTimes++
		}
	}
	require.True(s.t, status.Pending == nil, "still pending: %+v", status.Pending)
	created := int64(len(s.created))
	mayBeUnknown := s.stored.Spec.Message != nil && status.Runs <= created // messages that were stored
	require.True(s.t, mayBeUnknown || status.Runs == created, "status.runs is %d, and %d runs were created", status.Runs, created)
	require.True(s.t, status.Runs+status.Missed+left == dueTimes+s.requested,
		"%d times started, %d were missed and %d are left, but %d were due and %d requested", status.Runs, status.Missed, left, dueTimes, s.requested)
	earliest := s.now.Add(-2 * time.Hour)
	require.True(s.t, left == 0 || !status.Rerun.To.Before(apiTime(earliest)), "the request does not end: %+v", status.Rerun)
	next := status.NextScheduleTime
	require.True(s.t, next != nil && next.After(earliest), "at %s the next time is %s", s.now, next)
}

// TestSimulationDecidesEachTimeOnce simulates ten years of Schedules in several time zones, with crashes, an operator
// that is away, stale reads, conflicts, clocks that are set, suspensions, changes of the schedule, exhausted
// quotas, requests for further runs that are repeated, replaced and withdrawn, and runs of any length. SCHEDULE_RUNS is the number of Schedules.
func TestSimulationDecidesEachTimeOnce(t *testing.T) {
	count := testbuilder.NumberFromEnv(t, "SCHEDULE_RUNS", 60)
	var started, missed, requested int64
	for seed := range count {
		passed := t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			s := newSimulation(t, uint64(seed))
			s.run(created.AddDate(10, 0, 0))
			s.check()
			started, missed, requested = started+s.stored.Status.Runs, missed+s.stored.Status.Missed, requested+s.requested
		})
		if !passed {
			return
		}
	}
	t.Logf("%d times started, %d were missed; %d of them were requested", started, missed, requested)
}
