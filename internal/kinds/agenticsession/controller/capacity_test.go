package controller

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/test/require"
)

// crowd simulates sessions of one SessionRunner, an API server, and an operator whose cache is behind by any time, and whose
// reconciliations of different sessions overlap: each may be interrupted between any two of its steps.
type crowd struct {
	t       *testing.T
	rng     *rand.Rand
	runner  *v1alpha1.SessionRunner
	version int
	// stored are the sessions as the API server has them, and cached those of the operator's cache.
	stored, cached map[string]*v1alpha1.AgenticSession
	capacity       *capacity
	// writes are requests that the operator sent and that have no answer yet.
	writes                            map[string]*v1alpha1.AgenticSession
	started, refused, timeouts, kills int
}

const crowdSize = 12

func newCrowd(t *testing.T, seed uint64) *crowd {
	t.Helper()
	c := &crowd{
		t: t, rng: rand.New(rand.NewPCG(seed, 3)), capacity: newCapacity(kube.Clients{}),
		stored: map[string]*v1alpha1.AgenticSession{}, cached: map[string]*v1alpha1.AgenticSession{}, writes: map[string]*v1alpha1.AgenticSession{},
		runner: &v1alpha1.SessionRunner{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default"}},
	}
	c.runner.Spec.Limits.MaxSessions, c.runner.Spec.Limits.MaxSessionsPerUser = new(int32(1+c.rng.IntN(3))), new(int32(1+c.rng.IntN(2)))
	for i := range crowdSize {
		s := &v1alpha1.AgenticSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("s%d", i), UID: types.UID(strconv.Itoa(i))}}
		s.Spec.Runner, s.Spec.UserContext = "default", &v1alpha1.UserContext{UserID: strconv.Itoa(i % 3)}
		s.Status.Phase = v1alpha1.SessionPending
		c.store(s)
		c.cached[s.Name] = s.DeepCopy()
	}
	return c
}

func (c *crowd) store(s *v1alpha1.AgenticSession) {
	c.version++
	s.ResourceVersion = strconv.Itoa(c.version)
	c.stored[s.Name] = s.DeepCopy()
}

func listOpen(sessions map[string]*v1alpha1.AgenticSession, isOpen func(*v1alpha1.AgenticSession) bool) []agenticsession.Contender {
	var contenders []agenticsession.Contender
	for _, s := range sessions {
		if contender, found := agenticsession.NewContender(s, isOpen(s), time.Time{}); found && contender.IsOpen {
			contenders = append(contenders, contender)
		}
	}
	return contenders
}

// verify reads the stored sessions, as capacity.verify does. Other things happen between the list and its end.
func (c *crowd) verify() {
	process := c.capacity // a killed one verifies nothing for the next one
	token := process.startVerification()
	live := map[string]*v1alpha1.AgenticSession{}
	for name, s := range c.stored {
		live[name] = s.DeepCopy()
	}
	for range c.rng.IntN(3) {
		c.step()
	}
	for name, s := range live {
		if s.Status.Attempt.JobName != "" && isOlder(c.cached[name].ResourceVersion, s.ResourceVersion) {
			return // ErrStale
		}
	}
	process.setVerified(runnerKey(c.stored["s0"]), token)
}

// admit reserves a place for a session, and sends the write of its status.
func (c *crowd) admit(name string) {
	s := c.cached[name].DeepCopy()
	if c.writes[name] != nil || c.capacity.isOpen(s) {
		return
	}
	s.Status.Attempt.JobName, s.Status.Attempt.Runner = "job", "default"
	err := c.capacity.reserve(s, func(isOpen func(*v1alpha1.AgenticSession) bool) (bool, error) {
		return agenticsession.HasPlace(c.runner, listOpen(c.cached, isOpen), agenticsession.UserOf(s)), nil
	})
	if err != nil {
		c.refused++
		return
	}
	c.writes[name] = s
}

// answer answers a write: it is stored, refused, or its outcome is not known.
func (c *crowd) answer(name string) {
	s := c.writes[name]
	if s == nil {
		return
	}
	delete(c.writes, name)
	isCurrent := s.ResourceVersion == c.stored[name].ResourceVersion
	lost := c.rng.IntN(5)
	if isCurrent && lost != 0 {
		c.store(s)
		c.started++
		c.wantWithinLimits()
	}
	switch {
	case lost <= 1: // before or after it was stored
		c.timeouts++
		c.capacity.settle(s, apierrors.NewTimeoutError("timeout", 1))
	case isCurrent:
		c.capacity.settle(s, nil)
	default:
		c.capacity.settle(s, apierrors.NewConflict(schema.GroupResource{}, name, nil))
	}
}

func (c *crowd) wantWithinLimits() {
	c.t.Helper()
	byUser := map[string]int{}
	open := listOpen(c.stored, func(s *v1alpha1.AgenticSession) bool { return s.Status.Attempt.JobName != "" })
	for _, s := range open {
		byUser[s.User]++
		require.True(c.t, byUser[s.User] <= int(*c.runner.Spec.Limits.MaxSessionsPerUser), "user %s has %d", s.User, byUser[s.User])
	}
	require.True(c.t, len(open) <= int(*c.runner.Spec.Limits.MaxSessions), "%d sessions are open", len(open))
}

// kill replaces the operator by one that remembers nothing. Of its unanswered writes, each is stored or not. The cache of
// the new one may be behind by any time.
func (c *crowd) kill() {
	for name := range c.writes {
		c.answer(name)
	}
	c.kills++
	c.capacity = newCapacity(kube.Clients{})
}

func (c *crowd) step() {
	name := fmt.Sprintf("s%d", c.rng.IntN(crowdSize))
	switch action := c.rng.IntN(100); {
	case action < 40:
		c.admit(name)
	case action < 60:
		c.answer(name)
	case action < 75: // the cache catches up
		c.cached[name] = c.stored[name].DeepCopy()
		c.capacity.isOpen(c.cached[name])
	case action < 85: // the operator records the end of an attempt
		if s := c.stored[name].DeepCopy(); s.Status.Attempt.JobName != "" && c.writes[name] == nil {
			s.Status.Attempt.JobName, s.Status.Attempt.Runner = "", ""
			c.store(s)
		}
	case action < 90: // somebody changes the session
		c.store(c.stored[name].DeepCopy())
	case action < 92:
		c.kill()
	default:
		c.verify()
	}
}

func TestMoreSessionsThanTheLimitNeverStart(t *testing.T) {
	var started, refused, timeouts, kills int
	for seed := range uint64(1000) {
		c := newCrowd(t, seed)
		for range 400 {
			c.step()
		}
		started, refused, timeouts, kills = started+c.started, refused+c.refused, timeouts+c.timeouts, kills+c.kills
		require.True(t, !t.Failed(), "seed %d", seed)
	}
	t.Logf("%d started, %d refused, %d timeouts, %d kills", started, refused, timeouts, kills)
	require.True(t, started >= 1000 && refused >= 1000 && timeouts >= 1000 && kills >= 1000, "the simulation contained too few events")
}

// Without events that fail, places do not get lost: after all attempts ended, as many sessions as the limit start again.
func TestPlacesOfEndedSessionsAreFreeAgain(t *testing.T) {
	for seed := range uint64(300) {
		c := newCrowd(t, seed)
		for range 300 {
			c.step()
		}
		for name := range c.stored {
			c.answer(name)
		}
		for name, s := range c.stored {
			ended := s.DeepCopy()
			ended.Status.Attempt.JobName = ""
			c.store(ended)
			c.cached[name] = c.stored[name].DeepCopy()
		}
		c.capacity.setVerified(runnerKey(c.stored["s0"]), c.capacity.startVerification())
		for name := range c.stored {
			c.admit(name)
		}
		want := min(int(*c.runner.Spec.Limits.MaxSessions), 3*int(*c.runner.Spec.Limits.MaxSessionsPerUser))
		require.True(t, len(c.writes) == want, "seed %d: %d sessions start, want %d", seed, len(c.writes), want)
	}
}

func TestSessionsAreIndexedUnlessTheyAreAtRest(t *testing.T) {
	ended := func(outcome v1alpha1.RunOutcome, reason v1alpha1.StopReason, suspend bool, rerun string) *v1alpha1.AgenticSession {
		s := &v1alpha1.AgenticSession{}
		s.Spec.Runner, s.Spec.Suspend, s.Spec.Rerun = "default", suspend, &v1alpha1.Rerun{ID: rerun}
		s.Status.Run, s.Status.RerunID, s.Status.StoppedReason, s.Status.Attempts = 1, "1", reason, []v1alpha1.SessionAttempt{{JobAttempt: v1alpha1.JobAttempt{AttemptNumber: v1alpha1.AttemptNumber{Run: 1}}, Outcome: outcome}}
		return s
	}
	running := ended(v1alpha1.RunCompleted, "", false, "1")
	running.Status.Attempt.JobName, running.Status.Attempt.Runner = "job", "earlier"
	fresh := &v1alpha1.AgenticSession{}
	fresh.Spec.Runner = "default"
	check := func(title string, s *v1alpha1.AgenticSession, want string) {
		t.Run(title, func(t *testing.T) { require.Equal(t, want, contendedRunner(s)) })
	}
	check("new", fresh, "default")
	check("running", running, "earlier")
	check("completed", ended(v1alpha1.RunCompleted, "", false, "1"), "")
	check("failed", ended(v1alpha1.RunFailed, "", false, "1"), "")
	check("another run requested", ended(v1alpha1.RunFailed, "", false, "2"), "default")
	check("to be retried", ended(v1alpha1.RunRetried, "", false, "1"), "default")
	check("stopped", ended(v1alpha1.RunStopped, v1alpha1.StopUser, true, "1"), "")
	check("to be resumed", ended(v1alpha1.RunStopped, v1alpha1.StopUser, false, "1"), "default")
	check("stopped for inactivity", ended(v1alpha1.RunStopped, v1alpha1.StopInactivity, false, "1"), "")
}
