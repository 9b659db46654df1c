package agenticsession

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/require"
)

// newLimitedScenario returns a new session of user jane, whose SessionRunner has these limits; 0 means none.
func newLimitedScenario(t *testing.T, most, mostPerUser int32) *scenario {
	t.Helper()
	s := newScenario(t, func(spec *v1alpha1.AgenticSessionSpec) { spec.UserContext = &v1alpha1.UserContext{UserID: "jane"} })
	setLimits(s.Runner, most, mostPerUser)
	s.Capacity.Verified = true
	return s
}

func setLimits(runner *v1alpha1.SessionRunner, most, mostPerUser int32) {
	if most > 0 {
		runner.Spec.Limits.MaxSessions = &most
	}
	if mostPerUser > 0 {
		runner.Spec.Limits.MaxSessionsPerUser = &mostPerUser
	}
}

func openSession(name, user string) Contender {
	return Contender{Name: name, UID: types.UID(name), User: user, IsOpen: true}
}

func waitingSession(name, user string, since time.Duration) Contender {
	return Contender{Name: name, UID: types.UID(name), User: user, Since: testStartTime.Add(since)}
}

func TestSessionWaitsInTheQueueOfItsSessionRunner(t *testing.T) {
	for title, test := range map[string]struct {
		most, mostPerUser int32
		others            []Contender
		want              string // "" if the session starts
	}{
		"no limit":                          {0, 0, []Contender{openSession("a", "jane"), openSession("b", "jane")}, ""},
		"a free place":                      {2, 0, []Contender{openSession("a", "bob")}, ""},
		"all places are used":               {2, 0, []Contender{openSession("a", "bob"), openSession("b", "jane")}, "SessionRunner default runs 2 of at most 2 sessions; position 1 in the queue"},
		"a lowered limit":                   {1, 0, []Contender{openSession("a", "bob"), openSession("b", "jane")}, "SessionRunner default runs 2 of at most 1 sessions; position 1 in the queue"},
		"the user has enough sessions":      {5, 1, []Contender{openSession("a", "jane")}, "the user runs 1 of at most 1 sessions of SessionRunner default; position 1 in the queue"},
		"another user has enough":           {5, 1, []Contender{openSession("a", "bob")}, ""},
		"an older session waits":            {1, 0, []Contender{waitingSession("z", "bob", -time.Second)}, "SessionRunner default runs 0 of at most 1 sessions; position 2 in the queue"},
		"a session of the same second":      {1, 0, []Contender{waitingSession("a", "bob", 0)}, "SessionRunner default runs 0 of at most 1 sessions; position 2 in the queue"},
		"a later session waits":             {1, 0, []Contender{waitingSession("a", "bob", time.Second)}, ""},
		"the older one cannot start either": {2, 1, []Contender{openSession("a", "bob"), waitingSession("b", "bob", -time.Second)}, ""},
		"an older session of the user":      {0, 1, []Contender{waitingSession("a", "jane", -time.Second)}, "earlier sessions of the user start first; position 2 in the queue"},
	} {
		t.Run(title, func(t *testing.T) {
			s := newLimitedScenario(t, test.most, test.mostPerUser)
			s.Capacity.Contenders = test.others
			decision := s.decideAndRecord()
			if test.want == "" {
				require.True(t, decision.CreateJob != nil && decision.Status.QueuedSince == nil, "it does not start: %+v", decision.Status.Conditions)
				return
			}
			s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
			require.Equal(t, test.want, s.findCondition(v1alpha1.ConditionReady).Message)
			require.True(t, s.Session.Status.QueuedSince != nil && decision.RequeueAfter > 0 && len(decision.ApplyObjects) == 0,
				"it is not in the queue, is not reconciled again, or has objects")
		})
	}
}

// It does not fail after startupTimeout.
func TestQueuedSessionStartsWhenItIsItsTurn(t *testing.T) {
	s := newLimitedScenario(t, 1, 0)
	s.Capacity.Contenders = []Contender{openSession("a", "bob"), waitingSession("b", "bob", -time.Second)}
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	since := *s.Session.Status.QueuedSince
	s.Capacity.Contenders = []Contender{openSession("b", "bob")}
	s.advanceClock(time.Hour).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	require.True(t, s.Session.Status.QueuedSince.Equal(&since), "the session lost its position")
	s.Capacity.Contenders = nil
	s.startAttempt()
	require.True(t, s.Session.Status.QueuedSince == nil && s.Session.Status.Attempt.Runner == "default", "%+v", s.Session.Status)
}

func TestSessionThatCannotStartAnywayIsNotInTheQueue(t *testing.T) {
	for title, change := range map[string]func(s *scenario){
		"it is stopped":       func(s *scenario) { s.updateSpec(suspend) },
		"it is not accepted":  func(s *scenario) { s.Runner.Spec.Image = ""; s.Session.Spec.Image = "other" },
		"its cost is used up": func(s *scenario) { s.updateSpec(withMaxCost("0")) },
	} {
		t.Run(title, func(t *testing.T) {
			s := newLimitedScenario(t, 1, 0)
			s.Capacity.Contenders = []Contender{openSession("a", "bob")}
			s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
			change(s)
			s.decideAndRecord()
			require.True(t, s.Session.Status.QueuedSince == nil, "it is in the queue")
		})
	}
}

func TestStoppedOrDeletedSessionGivesUpItsPosition(t *testing.T) {
	s := newLimitedScenario(t, 1, 0)
	s.Capacity.Contenders = []Contender{openSession("a", "bob")}
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
	_, contends := NewContender(s.Session, false, s.Now)
	require.True(t, contends, "a queued session does not contend")
	stopped, deleted := s.Session.DeepCopy(), s.Session.DeepCopy()
	stopped.Spec.Suspend = true
	deleted.DeletionTimestamp = new(metav1.NewTime(s.Now))
	for _, other := range []*v1alpha1.AgenticSession{stopped, deleted} {
		_, contends := NewContender(other, false, s.Now)
		require.True(t, !contends, "it contends")
	}
}

// Sessions that are created together are reconciled in any order.
func TestNewSessionsAreWaitedForOnlyForAMoment(t *testing.T) {
	s := newScenario(t).Session
	for age, want := range map[time.Duration]bool{0: true, newSessionAllowance - 1: true, newSessionAllowance: false, time.Hour: false} {
		_, got := NewContender(s, false, testStartTime.Add(age))
		require.True(t, got == want, "a new session contends after %s: %t, want %t", age, got, want)
	}
}

func TestChangedSessionRunnerNameDoesNotFreeThePlaceOfARunningSession(t *testing.T) {
	s := newLimitedScenario(t, 1, 0).startAttempt()
	s.updateSpec(func(spec *v1alpha1.AgenticSessionSpec) { spec.Runner = "other" })
	require.Equal(t, "default", RunnerOf(s.Session))
	s.startRunner().exitRunner(0, "").decideAndRecord()
	require.Equal(t, "other", RunnerOf(s.Session))
}

func TestSessionsOfEarlierProcessesAreReadBeforeASessionStarts(t *testing.T) {
	s := newLimitedScenario(t, 1, 0)
	s.Capacity.Verified = false
	question := Decide(s.Observation).Question
	require.True(t, question != nil && question.OpenSessions, "question %+v", question)
	s.Capacity.Contenders = []Contender{openSession("a", "bob")}
	s.wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued) // which needs no read
}

func TestARerunSessionDoesNotKeepOthersWaiting(t *testing.T) {
	s := newLimitedScenario(t, 1, 0).startAttempt().startRunner()
	s.decideAndRecord()
	s.advanceClock(time.Hour).exitRunner(0, "").decideAndRecord()
	s.Capacity.Contenders = []Contender{waitingSession("b", "bob", time.Minute)}
	s.updateSpec(requestNextRun).wantPhase(v1alpha1.SessionPending, v1alpha1.ReasonQueued)
}

// The property of the order: whatever ends first, sessions start in the order of their creation, except that users with
// enough sessions are passed over; never more than the limits run, and all run in the end.
func TestRandomQueuesKeepTheirOrderAndStarveNobody(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 2))
		runner := newTestRunner()
		setLimits(runner, int32(1+rng.IntN(4)), int32(rng.IntN(3)))
		var all []Contender
		for i := range 2 + rng.IntN(20) {
			all = append(all, waitingSession(fmt.Sprintf("s%d", i), fmt.Sprint(rng.IntN(3)), time.Duration(rng.IntN(5))*time.Second))
		}
		ended, started := 0, map[string]bool{}
		for steps := 0; ended < len(all); steps++ {
			require.True(t, steps <= 1000, "seed %d: some session never starts", seed)
			current := slices.DeleteFunc(slices.Clone(all), func(c Contender) bool { return c.User == "" })
			rng.Shuffle(len(current), func(i, j int) { current[i], current[j] = current[j], current[i] })
			next := NextSessions(runner, current)
			checkOrder(t, runner, current, next)
			for i := range all {
				if slices.Contains(next, all[i].Name) && rng.IntN(2) == 0 {
					all[i].IsOpen = true
					started[all[i].Name] = true
				} else if all[i].IsOpen && rng.IntN(3) == 0 {
					all[i] = Contender{Name: all[i].Name}
					ended++
				}
			}
			p := countPlaces(runner, current)
			require.True(t, p.open <= int(*runner.Spec.Limits.MaxSessions), "seed %d: %d sessions run", seed, p.open)
		}
		require.True(t, len(started) == len(all), "seed %d: %d of %d sessions started", seed, len(started), len(all))
	}
}

// checkOrder checks that each session that starts is preceded only by sessions that start too, or whose user has enough.
func checkOrder(t *testing.T, runner *v1alpha1.SessionRunner, contenders []Contender, next []string) {
	t.Helper()
	waiting := slices.DeleteFunc(slices.Clone(contenders), func(c Contender) bool { return c.IsOpen })
	slices.SortFunc(waiting, func(a, b Contender) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name)) })
	p := countPlaces(runner, contenders)
	var want []string
	for _, c := range waiting {
		if !p.isFull() && !p.isFullFor(c.User) {
			want = append(want, c.Name)
			p.take(c.User)
		}
	}
	require.Equal(t, want, next, cmpopts.EquateEmpty())
}
