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
)

// sessionScenario runs the examples of AgenticSessions. The pool scenario has already loaded the
// image of their runner.
type sessionScenario struct {
	*demoEnvironment

	sessions []*runningSession
}

// runningSession is a session and the demo's progress with it.
type runningSession struct {
	scenario.SessionExample
	current *v1alpha1.AgenticSession
	// actionsDone is the number of applied actions.
	actionsDone int
	// phaseSince is when the demo first saw the current phase.
	phaseSince time.Time
}

// runScenario runs sessions, stops and restarts one, and checks how they end.
func (a *sessionScenario) runScenario(ctx context.Context) error {
	return a.runScenarioSteps(ctx, "AgenticSession: an agent session as a hardened Job", a.showSessionState,
		a.applySessions, a.checkRefusal, a.followSessions, a.checkOutcomes, a.showSessions)
}

func (a *sessionScenario) showSessions(ctx context.Context) error {
	a.runKubectl(ctx, "-n", sessionsNamespace, "get", "agenticsessions")
	a.runKubectl(ctx, "-n", sessionsNamespace, "events", "--for", "agenticsession/pause")
	return nil
}

// applySessions creates the sessions in a new namespace.
func (a *sessionScenario) applySessions(ctx context.Context) error {
	if err := a.recreateNamespace(ctx, sessionsNamespace); err != nil {
		return err
	}
	if err := a.runKubectlQuietly(ctx, "-n", sessionsNamespace, "apply", "-f", "examples/"+scenario.SessionsFile); err != nil {
		return err
	}
	for _, s := range scenario.SessionExamples() {
		a.sessions = append(a.sessions, &runningSession{SessionExample: s, current: &v1alpha1.AgenticSession{}})
	}
	return nil
}

// checkRefusal checks that an invalid session is refused.
func (a *sessionScenario) checkRefusal(ctx context.Context) error {
	object, err := readManifest(scenario.RefusedSessionFile, sessionsNamespace)
	if err != nil {
		return err
	}
	a.screen.PrintLine("  $ kubectl -n %s apply -f examples/%s", sessionsNamespace, scenario.RefusedSessionFile)
	err = a.createWithRetry(ctx, object)
	switch {
	case err == nil:
		return fmt.Errorf("%s was accepted, expected a refusal with: %s", scenario.RefusedSessionFile, scenario.RefusedSessionMessage)
	case !strings.Contains(err.Error(), scenario.RefusedSessionMessage):
		return fmt.Errorf("%s was refused, expected the message %q: %w", scenario.RefusedSessionFile, scenario.RefusedSessionMessage, err)
	}
	a.screen.PrintLine("    %s", a.screen.Failure(err.Error()))
	a.screen.PrintLine("    refused as expected\n")
	return nil
}

// followSessions prints the progress of the sessions and applies their actions until all are
// finished.
func (a *sessionScenario) followSessions(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, errors.New("timeout"))
	defer cancel()
	defer a.screen.KeepLines()
	started := time.Now()
	for {
		lastErr := a.refreshSessions(ctx, started)
		if lastErr == nil && !slices.ContainsFunc(a.sessions, func(s *runningSession) bool { return !s.IsFinished(s.current) }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%w: not all sessions are finished after %s", context.Cause(ctx), a.timeout), lastErr)
		case <-time.After(pollInterval):
		}
	}
}

// refreshSessions reads and prints the sessions and applies the actions that are due.
func (a *sessionScenario) refreshSessions(ctx context.Context, started time.Time) error {
	shown := make([]*v1alpha1.AgenticSession, 0, len(a.sessions))
	for _, s := range a.sessions {
		before := s.current
		s.current = &v1alpha1.AgenticSession{}
		if err := a.client.Get(ctx, client.ObjectKey{Namespace: sessionsNamespace, Name: s.Name}, s.current); err != nil {
			s.current = before
			return err
		}
		if s.phaseSince.IsZero() || before.Status.Phase != s.current.Status.Phase {
			s.phaseSince = time.Now()
		}
		shown = append(shown, s.current)
		if a.screen.IsTerminal() {
			continue
		}
		for _, change := range render.SessionChanges(before, s.current) {
			a.screen.PrintLine("  %4s  %-6s %s", time.Since(started).Round(time.Second), s.Name, change)
		}
	}
	a.screen.DrawLines(render.SessionTable(a.screen.Style, shown, time.Now()).Lines(false))
	return a.applyDueActions(ctx)
}

// applyDueActions applies the actions that are due.
func (a *sessionScenario) applyDueActions(ctx context.Context) error {
	for _, s := range a.sessions {
		action := s.DueAction(s.current, s.actionsDone, time.Since(s.phaseSince))
		if action == nil {
			continue
		}
		a.screen.PrintLine("\n  %s\n  $ %s\n", action.Description, action.KubectlCommand(sessionsNamespace, s.Name))
		if err := a.client.Patch(ctx, s.current.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(action.Patch))); err != nil {
			return fmt.Errorf("patching %s: %w", s.Name, err)
		}
		s.actionsDone++
	}
	return nil
}

// checkOutcomes prints how each session ended and compares it with the expectation.
func (a *sessionScenario) checkOutcomes(ctx context.Context) error {
	a.screen.PrintLine("")
	asExpected := true
	for _, s := range a.sessions {
		for _, line := range render.SessionDetail(a.screen.Style, s.current, time.Now()) {
			a.screen.PrintLine("  %s", line)
		}
		for _, mismatch := range s.Mismatches(s.current) {
			asExpected = false
			a.screen.PrintLine("    %s", a.screen.Failure(mismatch))
		}
	}
	if !asExpected {
		a.showSessionState(ctx)
		a.showOperatorState(ctx)
		a.screen.PrintLine("\n%s", a.screen.Failure("Not all sessions ended as expected."))
		return errAlreadyReported
	}
	a.screen.PrintLine("\n%s", a.screen.Success(fmt.Sprintf(
		"All %d sessions ended as expected: with a result and cost, after a restart in the kept workspace, and at the time limit. The invalid one was refused.",
		len(a.sessions))))
	return nil
}

func (a *sessionScenario) showSessionState(ctx context.Context) {
	a.runKubectl(ctx, "-n", sessionsNamespace, "get", "agenticsessions,jobs,pods", "-o", "wide")
	a.runKubectl(ctx, "-n", sessionsNamespace, "events")
}
