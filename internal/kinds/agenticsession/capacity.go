package agenticsession

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/decision"
)

const (
	// newSessionAllowance is how long other sessions wait for a session that was never reconciled, so that sessions
	// that are created together start in the order of their creation.
	newSessionAllowance = time.Minute
	// queueRefreshInterval is the interval at which a queued session updates its position: no event causes that.
	queueRefreshInterval = time.Minute
)

// Contender is a session with an open attempt of a SessionRunner, or a session that waits to start an attempt.
type Contender struct {
	Name string
	UID  types.UID
	User string
	// IsOpen means that an attempt is open. Otherwise the contender has waited since Since.
	IsOpen bool
	Since  time.Time
}

// Capacity has the sessions of a SessionRunner with a maximum.
type Capacity struct {
	// Contenders may be stale, but contain all sessions that this process started.
	Contenders []Contender
	// Verified means that Contenders also contain the sessions that earlier processes started.
	Verified bool
}

// RunnerOf returns the name of the SessionRunner of the session's open attempt, or else of its next attempt.
func RunnerOf(s *v1alpha1.AgenticSession) string {
	return cmp.Or(s.Status.Attempt.Runner, s.Spec.Runner)
}

// HasCapacityLimit reports whether a SessionRunner limits how many of its sessions run at a time.
func HasCapacityLimit(runner *v1alpha1.SessionRunner) bool {
	return runner != nil && (runner.Spec.Limits.MaxSessions != nil || runner.Spec.Limits.MaxSessionsPerUser != nil)
}

// UserOf returns the user that a session belongs to; empty if not known.
func UserOf(s *v1alpha1.AgenticSession) string {
	return ptr.Deref(s.Spec.UserContext, v1alpha1.UserContext{}).UserID
}

// NewContender returns the session as a contender; false if it neither has an open attempt nor waits for a place.
func NewContender(s *v1alpha1.AgenticSession, isOpen bool, now time.Time) (Contender, bool) {
	c := Contender{Name: s.Name, UID: s.UID, User: UserOf(s), IsOpen: isOpen}
	switch status := &s.Status; {
	case isOpen:
		return c, true
	case !s.DeletionTimestamp.IsZero() || s.Spec.Suspend:
		return c, false
	case status.QueuedSince != nil:
		c.Since = queuePosition(s, status.QueuedSince.Time)
		return c, true
	}
	c.Since = s.CreationTimestamp.Time
	return c, s.Status.Phase == "" && now.Sub(c.Since) < newSessionAllowance
}

// queuePosition returns the time by which waiting sessions are ordered: before the first attempt, the time of the
// creation. Later attempts queue at the end, so that a session that is often rerun does not delay newer sessions.
func queuePosition(s *v1alpha1.AgenticSession, queuedSince time.Time) time.Time {
	if hasAttempted(&s.Status) {
		return queuedSince
	}
	return s.CreationTimestamp.Time
}

type places struct {
	runner *v1alpha1.SessionRunner
	open   int
	byUser map[string]int
}

func countPlaces(runner *v1alpha1.SessionRunner, contenders []Contender) *places {
	p := &places{runner: runner, byUser: map[string]int{}}
	for i := range contenders {
		if contenders[i].IsOpen {
			p.take(contenders[i].User)
		}
	}
	return p
}

func (p *places) take(user string) {
	p.open++
	p.byUser[user]++
}

func (p *places) isFull() bool {
	most := p.runner.Spec.Limits.MaxSessions
	return most != nil && p.open >= int(*most)
}

func (p *places) isFullFor(user string) bool {
	most := p.runner.Spec.Limits.MaxSessionsPerUser
	return most != nil && p.byUser[user] >= int(*most)
}

// HasPlace reports whether a SessionRunner allows one more session of this user, regardless of the order.
func HasPlace(runner *v1alpha1.SessionRunner, contenders []Contender, user string) bool {
	p := countPlaces(runner, contenders)
	return !p.isFull() && !p.isFullFor(user)
}

func inOrder(contenders []Contender) []Contender {
	waiting := slices.DeleteFunc(slices.Clone(contenders), func(c Contender) bool { return c.IsOpen })
	slices.SortFunc(waiting, func(a, b Contender) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name)) })
	return waiting
}

// NextSessions returns the names of the waiting sessions that can start now. A session that waits for the maximum of
// its user does not delay sessions of other users.
func NextSessions(runner *v1alpha1.SessionRunner, contenders []Contender) []string {
	p := countPlaces(runner, contenders)
	var next []string
	for _, c := range inOrder(contenders) {
		if p.isFull() {
			break
		}
		if !p.isFullFor(c.User) {
			p.take(c.User)
			next = append(next, c.Name)
		}
	}
	return next
}

// checkPlace returns whether the session waits for a place of its SessionRunner.
func checkPlace(f *facts, _ *v1alpha1.AgenticSessionStatus) (*obstacle, *Question) {
	if !HasCapacityLimit(f.Runner) {
		return nil, nil
	}
	s := f.Session
	self := Contender{Name: s.Name, UID: s.UID, User: UserOf(s), Since: queuePosition(s, f.queuedSince().Time)}
	contenders := slices.DeleteFunc(slices.Clone(f.Capacity.Contenders), func(c Contender) bool { return c.UID == s.UID })
	contenders = append(contenders, self)
	switch canStart := slices.Contains(NextSessions(f.Runner, contenders), s.Name); {
	case canStart && f.Capacity.Verified:
		return nil, nil
	case canStart:
		return nil, &Question{OpenSessions: true}
	}
	// The message has no names of other sessions, which may belong to other users.
	p, limits, message := countPlaces(f.Runner, contenders), &f.Runner.Spec.Limits, "earlier sessions of the user start first"
	switch {
	case p.isFullFor(self.User):
		message = fmt.Sprintf("the user runs %d of at most %d sessions of SessionRunner %s", p.byUser[self.User], *limits.MaxSessionsPerUser, f.Runner.Name)
	case limits.MaxSessions != nil:
		message = fmt.Sprintf("SessionRunner %s runs %d of at most %d sessions", f.Runner.Name, p.open, *limits.MaxSessions)
	}
	before := slices.IndexFunc(inOrder(contenders), func(c Contender) bool { return c.UID == self.UID })
	return &obstacle{isQueued: true, retry: queueRefreshInterval, Problem: decision.Problem{
		Reason: v1alpha1.ReasonQueued, Message: fmt.Sprintf("%s; position %d in the queue", message, before+1),
	}}, nil
}
