package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/test/demo/scenario"
	"github.com/yardmaster/yardmaster/test/demo/shell"
)

// sessions is the act of the AgenticSessions. Their runner's image has come with those of the
// act before.
type sessions struct {
	*stage

	played []*playedSession
}

// playedSession is a session on its way.
type playedSession struct {
	scenario.Session
	now *v1alpha1.AgenticSession
	// done is how many of its actions are.
	done int
	// phaseSince is when the demo first saw it in the phase it is in.
	phaseSince time.Time
}

// play has sessions run, has one stopped and go on, and judges.
func (a *sessions) play(ctx context.Context) error {
	a.title("AgenticSession: an agent's session as a hardened Job")
	err := a.act(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errSaid) {
		a.showAll(ctx)
		return a.explainOperator(ctx, err)
	}
	return err
}

func (a *sessions) act(ctx context.Context) error {
	for _, step := range []func(context.Context) error{a.apply, a.refuse, a.follow, a.judge} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	a.kubectl(ctx, "-n", sessionsNamespace, "get", "agenticsessions")
	a.kubectl(ctx, "-n", sessionsNamespace, "events", "--for", "agenticsession/paint")
	return nil
}

// apply puts the sessions that run into a fresh namespace.
func (a *sessions) apply(ctx context.Context) error {
	if err := a.freshNamespace(ctx, sessionsNamespace); err != nil {
		return err
	}
	args := []string{"-n", sessionsNamespace, "apply", "-f", "examples/" + scenario.SessionsFile}
	a.screen.PrintLine("  $ kubectl %s", strings.Join(args, " "))
	command := a.cluster.Kubectl()
	if err := shell.Quiet(ctx, command[0], append(command[1:], args...)...); err != nil {
		return err
	}
	for _, s := range scenario.Sessions() {
		a.played = append(a.played, &playedSession{Session: s, now: &v1alpha1.AgenticSession{}})
	}
	return nil
}

// refuse tries one that must be refused.
func (a *sessions) refuse(ctx context.Context) error {
	object, err := read(scenario.RefusedSessionFile, sessionsNamespace)
	if err != nil {
		return err
	}
	a.screen.PrintLine("  $ kubectl -n %s apply -f examples/%s", sessionsNamespace, scenario.RefusedSessionFile)
	err = a.create(ctx, object)
	switch {
	case err == nil:
		return fmt.Errorf("%s was taken, it should have been refused with: %s", scenario.RefusedSessionFile, scenario.RefusedSession)
	case !strings.Contains(err.Error(), scenario.RefusedSession):
		return fmt.Errorf("%s should have been refused with %q, not with: %w", scenario.RefusedSessionFile, scenario.RefusedSession, err)
	}
	a.screen.PrintLine("    %s", a.screen.Failure(err.Error()))
	a.screen.PrintLine("    refused, as it should be\n")
	return nil
}

// follow shows how the sessions get on, and does to them what is due, until all have ended.
func (a *sessions) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.limit, errors.New("time is up"))
	defer cancel()
	defer a.screen.KeepLines()
	started := time.Now()
	for {
		failure := a.look(ctx, started)
		if failure == nil && !slices.ContainsFunc(a.played, func(s *playedSession) bool { return !s.Over(s.now) }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%w: not all sessions have ended after %s", context.Cause(ctx), a.limit), failure)
		case <-time.After(often):
		}
	}
}

// look sees how each session stands, shows that, and does what is due.
func (a *sessions) look(ctx context.Context, started time.Time) error {
	shown := make([]*v1alpha1.AgenticSession, 0, len(a.played))
	for _, s := range a.played {
		before := s.now
		s.now = &v1alpha1.AgenticSession{}
		if err := a.client.Get(ctx, client.ObjectKey{Namespace: sessionsNamespace, Name: s.Name}, s.now); err != nil {
			s.now = before
			return err
		}
		if s.phaseSince.IsZero() || before.Status.Phase != s.now.Status.Phase {
			s.phaseSince = time.Now()
		}
		shown = append(shown, s.now)
		if a.screen.IsTerminal() {
			continue
		}
		for _, change := range render.SessionChanges(before, s.now) {
			a.screen.PrintLine("  %4s  %-6s %s", time.Since(started).Round(time.Second), s.Name, change)
		}
	}
	a.screen.DrawLines(render.SessionTable(a.screen.Style, shown, time.Now()).Lines(false))
	return a.do(ctx)
}

// do does what a user would, where it is due.
func (a *sessions) do(ctx context.Context) error {
	for _, s := range a.played {
		action := s.Due(s.now, s.done, time.Since(s.phaseSince))
		if action == nil {
			continue
		}
		a.screen.PrintLine("\n  %s\n  $ %s\n", action.What, action.Command(sessionsNamespace, s.Name))
		if err := a.client.Patch(ctx, s.now.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(action.Patch))); err != nil {
			return fmt.Errorf("patching %s: %w", s.Name, err)
		}
		s.done++
	}
	return nil
}

// judge tells how each session ended, with what it left.
func (a *sessions) judge(ctx context.Context) error {
	a.screen.PrintLine("")
	good := true
	for _, s := range a.played {
		for _, line := range render.SessionDetail(a.screen.Style, s.now, time.Now()) {
			a.screen.PrintLine("  %s", line)
		}
		for _, fault := range s.Faults(s.now) {
			good = false
			a.screen.PrintLine("    %s", a.screen.Failure(fault))
		}
	}
	if !good {
		a.showAll(ctx)
		a.showOperator(ctx)
		a.screen.PrintLine("\n%s", a.screen.Failure("Not all sessions ended as they should."))
		return errSaid
	}
	a.screen.PrintLine("\n%s", a.screen.Success(fmt.Sprintf(
		"All %d sessions ended as they should: with a result and its cost, in the workspace kept over a stop, and when the time was up. The invalid one was refused.",
		len(a.played))))
	return nil
}

func (a *sessions) showAll(ctx context.Context) {
	a.kubectl(ctx, "-n", sessionsNamespace, "get", "agenticsessions,jobs,pods", "-o", "wide")
	a.kubectl(ctx, "-n", sessionsNamespace, "events")
}
